//! Records by their words: the index finds them, [`rank`](super::rank) puts them in order.
//!
//! What a search costs does not grow with how many records fit. Where more than [`RANKED`] do, of each kind (cve, cwe, …)
//! as many of the latest stored are ranked, and up to [`RANKED_TITLES`] more that have all words in their title. A small
//! catalogue is thus always ranked whole, however many vulnerabilities use the same words.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{OptionalExtension as _, Row, params};

use super::rank::{Measured, Ranking, Term, measure, terms};
use super::read::Reader;
use super::view::{Hit, from_row};
use super::{Error, rows};

/// How many records are ranked, of each kind where there are more, the latest stored first.
const RANKED: i64 = 500;
/// How many more of them, by their titles, and how far back these are looked for.
const RANKED_TITLES: i64 = 250;
const TITLES_BACK: i64 = 65_536;
/// What begins a facet in the index; see `schema_4.sql`.
const FACET: char = '\u{e000}';
/// The kinds there are records of.
const KINDS: &str =
    "SELECT id FROM providers WHERE EXISTS (SELECT 1 FROM records WHERE provider = providers.id)";

/// What to look for.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Words, all of which must be there; "several words" in quotes stand next to each other, `inject*` is a beginning.
    pub text: String,
    /// Kinds, such as `cve`; all where there is none.
    pub types: Vec<String>,
    /// What it is among its kind, such as `technique`.
    pub subtype: Option<String>,
    /// How bad, in any case of letters.
    pub severity: Option<String>,
    /// Changed or published then or later: a year, a month or a day.
    pub since: Option<String>,
    /// At most so many.
    pub limit: usize,
}

impl Query {
    /// The filters as the index takes them, without the kind.
    fn facets(&self, this_year: u32) -> String {
        let mut facets = String::new();
        let mut also = |expression: String| facets.extend([" AND ", &expression]);
        if let Some(subtype) = &self.subtype {
            also(facet('s', subtype));
        }
        if let Some(severity) = &self.severity {
            also(facet('v', severity));
        }
        if let Some(since) = &self.since {
            let number = |range: std::ops::Range<usize>| since.get(range).and_then(|text| text.parse().ok());
            let (year, month): (u32, Option<u32>) = (number(0..4).unwrap_or_default(), number(5..7));
            let months = month.into_iter().flat_map(|first| first..=12);
            let months = months.map(|month| facet('m', &format!("{year:04}{month:02}")));
            // Nothing is dated later than next year.
            let years = year + u32::from(month.is_some())..=(this_year + 1).max(year);
            let years = years.map(|year| facet('y', &format!("{year:04}")));
            also(format!("({})", months.chain(years).collect::<Vec<_>>().join(" OR ")));
        }
        facets
    }
}

/// One of the words that [`schema_4.sql`](super::migrate) puts beside a record.
fn facet(sort: char, value: &str) -> String {
    format!("\"{FACET}{sort}{}\"", value.replace([' ', '"', '*'], ""))
}

impl Reader {
    /// The records that fit, best first.
    pub fn search(&self, query: &Query) -> Result<Vec<Hit>, Error> {
        let terms = terms(&query.text);
        if terms.is_empty() {
            return Ok(Vec::new());
        }
        // One look at the store for all of it: consistent, and locked once.
        let _look = self.connection.unchecked_transaction()?;
        let mut ranked = Vec::new();
        for id in self.candidates(query, &terms)? {
            ranked.extend(self.measured(id, query.since.as_deref(), &terms)?.map(|measured| (id, measured)));
        }
        let records = self.last_id()?;
        let found = match terms.as_slice() {
            // Nothing to weigh it against.
            [_] => vec![1.0],
            _ => terms.iter().map(|term| self.found(term, records)).collect::<Result<_, _>>()?,
        };
        let measured = ranked.iter().map(|(_, measured)| measured);
        let ranking = Ranking::new(terms, &found, records as f64, measured);
        let mut best: Vec<(f64, i64)> =
            ranked.iter().map(|(id, measured)| (ranking.score(measured), *id)).collect();
        // Of two that fit alike, the one stored first.
        best.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        best.truncate(query.limit);
        best.into_iter().map(|(score, id)| self.hit(id, score, &ranking)).collect()
    }

    /// Who is to be ranked.
    fn candidates(&self, query: &Query, terms: &[Term]) -> Result<Vec<i64>, Error> {
        let words = terms.iter().map(Term::expression).collect::<Vec<_>>().join(" AND ");
        let facets = query.facets(this_year());
        if query.types.is_empty() {
            let all = self.latest_with(&format!("({words}){facets}"), 0, RANKED)?;
            if (all.len() as i64) < RANKED {
                return Ok(all);
            }
        }
        let kinds = match query.types.as_slice() {
            [] => rows(&self.connection, KINDS, [], |row| row.get(0))?,
            some => some.to_vec(),
        };
        let titles_after = self.last_id()? - TITLES_BACK;
        let mut all = Vec::new();
        for kind in kinds {
            let narrowed = format!("{}{facets}", facet('k', &kind));
            let latest = self.latest_with(&format!("({words}) AND {narrowed}"), 0, RANKED)?;
            if latest.len() as i64 == RANKED {
                let titles = format!("({{title}} : ({words})) AND {narrowed}");
                let more = self.latest_with(&titles, titles_after, RANKED + RANKED_TITLES)?;
                // They come the latest first, as the others did.
                let seen = latest.last().copied().unwrap_or_default();
                all.extend(more.into_iter().filter(|id| *id < seen).take(RANKED_TITLES as usize));
            }
            all.extend(latest);
        }
        Ok(all)
    }

    fn latest_with(&self, expression: &str, after: i64, limit: i64) -> Result<Vec<i64>, Error> {
        let sql =
            "SELECT rowid FROM search WHERE search MATCH ?1 AND rowid > ?2 ORDER BY rowid DESC LIMIT ?3";
        rows(&self.connection, sql, params![expression, after, limit], |row| row.get(0))
    }

    fn last_id(&self) -> Result<i64, Error> {
        let sql = "SELECT coalesce(max(id), 0) FROM records";
        Ok(self.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
    }

    /// In how many records the term stands: counted where they are few, else reckoned from how close the latest stand.
    fn found(&self, term: &Term, records: i64) -> Result<f64, Error> {
        let latest = self.latest_with(&term.expression(), 0, RANKED)?;
        let len = latest.len() as f64;
        match latest.last() {
            Some(first) if latest.len() as i64 == RANKED => {
                Ok(len * records as f64 / (records - first + 1).max(1) as f64)
            }
            _ => Ok(len),
        }
    }

    /// What ranking needs of a record, unless it is too old.
    fn measured(&self, id: i64, since: Option<&str>, terms: &[Term]) -> Result<Option<Measured>, Error> {
        let sql = "SELECT title, text FROM records
            WHERE id = ?1 AND (?2 IS NULL OR max(coalesce(modified, ''), coalesce(published, '')) >= ?2)";
        let mut statement = self.connection.prepare_cached(sql)?;
        let measured = statement.query_row(params![id, since], |row| {
            let (title, text) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
            Ok(measure(terms, title, text))
        });
        Ok(measured.optional()?)
    }

    fn hit(&self, id: i64, score: f64, ranking: &Ranking) -> Result<Hit, Error> {
        let hit = |row: &Row<'_>| {
            let hit = from_row!(row => Hit {
                urn, subtype, title, severity, status, published, modified;
                kind: row.get("provider")?, excerpt: String::new(), score: score,
            });
            let excerpt = ranking.excerpt(&hit.title, row.get_ref("text")?.as_str()?);
            Ok(Hit { excerpt, ..hit })
        };
        let sql = "SELECT * FROM records WHERE id = ?1";
        Ok(self.connection.prepare_cached(sql)?.query_row([id], hit)?)
    }
}

/// A year, a month or a day, as [`Query::since`] takes it.
pub fn parse_since(text: &str) -> Result<String, String> {
    let shapes = ["0000", "0000-00", "0000-00-00"];
    let shape: String = text.chars().map(|one| if one.is_ascii_digit() { '0' } else { one }).collect();
    if shapes.contains(&shape.as_str()) {
        Ok(text.to_owned())
    } else {
        Err("it should read 2024, 2024-05 or 2024-05-01".to_owned())
    }
}

fn this_year() -> u32 {
    let days = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    1970 + (days as f64 / 365.2425) as u32
}
