//! CCE: a workbook with a sheet per platform, and the same sheets as CSV files. There are many layouts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Provider;
use crate::record::{Item, Record, Reject, Verdict};
use crate::source::{Collected, Context, Extract, Failure, Found, Gathered, Limits, Piece, Source, sheets};
use crate::{Urn, text};

/// The provider `cce`.
pub struct Cce;

/// The header stands among the first rows, below notes such as the date.
const HEADER_ROW_MAX: usize = 20;

/// The columns we know by name, lower case, with what they are to us. Whatever else there is, is a reference.
const COLUMNS: [(&str, &[&str]); 10] = [
    ("title", &["cce title", "title", "name"]),
    ("description", &["cce description", "description", "configuration details", "discussion", "check_fix"]),
    ("parameters", &["cce parameters", "usgcb setting", "check result"]),
    (
        "mechanism",
        &["cce technical mechanisms", "cce technical mechanism", "technical mechanism", "mechanism"],
    ),
    ("rationale", &["rationale", "impact"]),
    ("check", &["check"]),
    ("fix", &["fix"]),
    ("severity", &["severity"]),
    ("rule", &["rule id", "ruleid"]),
    ("old_id", &["old v4 cce id"]),
];
const SAME_SHEET: &str = "the workbook has this row too";
const NO_ID: &str = "a row without an id";

/// All that is known of an id: one row for each place it stands in.
#[derive(Serialize, Deserialize)]
struct Raw {
    id: String,
    sources: Vec<Row>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skip: Option<String>,
}

/// A row as it stands, with the names of its columns.
#[derive(Clone, Serialize, Deserialize)]
struct Row {
    file: String,
    sheet: String,
    row: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    columns: BTreeMap<String, String>,
}

impl Provider for Cce {
    fn id(&self) -> &'static str {
        "cce"
    }

    fn upstream(&self) -> &'static str {
        "https://csrc.nist.gov/csrc/media/Projects/national-vulnerability-database/documents/CCE/cce-COMBINED-5.20220713.xlsx"
    }

    fn open(
        &self,
        source: &Source,
        resume: Option<&str>,
        context: &Context,
    ) -> Result<Box<dyn Extract>, Failure> {
        let urls = |url: &str| vec![url.to_owned()];
        Ok(Box::new(Collected::open(source, fits, urls, gather, resume, context)?))
    }

    fn tallies(&self) -> &'static [(&'static str, &'static str)] {
        &[("sources", "$.sources")]
    }

    fn understand(&self, item: &Item) -> Result<Verdict, Reject> {
        let raw: Raw = serde_json::from_slice(&item.raw).map_err(Reject::new)?;
        match raw.skip.as_deref() {
            Some(NO_ID) => return Ok(Verdict::Skip(NO_ID)),
            Some(_) => return Ok(Verdict::Skip(SAME_SHEET)),
            None => {}
        }
        if !is_id(&raw.id) {
            return Err(Reject(format!(
                "`{}` is not an id, such as CCE-26967-0",
                text::shorten(&raw.id, 40)
            )));
        }
        // The newest sheet says what the record says; the others are beside it.
        let first = raw
            .sources
            .iter()
            .max_by_key(|row| (row.modified.clone(), std::cmp::Reverse((&row.sheet, row.row))))
            .ok_or_else(|| Reject(format!("{} stands nowhere", raw.id)))?;
        let known = known_columns(first);
        let get = |name: &str| known.get(name).map(|text| (*text).to_owned());
        let body = get("description").or_else(|| get("title"));
        let Some(body) = body else { return Err(Reject(format!("{} has no description", raw.id))) };
        let title = text::headline(&get("title").unwrap_or_else(|| body.clone()), 120);
        let sources: Vec<_> = raw
            .sources
            .iter()
            .map(|row| {
                let known = known_columns(row);
                let names: BTreeSet<&str> = known.values().copied().collect();
                let references: BTreeMap<_, _> =
                    row.columns.iter().filter(|(_, text)| !names.contains(text.trim())).collect();
                json!({"file": row.file, "sheet": row.sheet, "row": row.row, "modified": row.modified,
                    "version": row.version, "fields": known, "references": references})
            })
            .collect();
        let platforms: BTreeSet<&str> = raw.sources.iter().map(|row| row.sheet.as_str()).collect();
        let details = json!({
            "platforms": platforms,
            "parameters": get("parameters"),
            "mechanism": get("mechanism"),
            "rationale": get("rationale"),
            "check": get("check"),
            "fix": get("fix"),
            "rule": get("rule"),
            "old_id": get("old_id"),
            "sources": sources,
        });
        Ok(Verdict::Record(Box::new(Record {
            urn: Urn::new("cce", &raw.id).map_err(Reject::new)?,
            subtype: "configuration",
            title,
            text: body,
            published: None,
            modified: first.modified.clone(),
            status: None,
            severity: get("severity"),
            details: details.to_string(),
            links: Vec::new(),
        })))
    }
}

fn fits(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".xlsx") || name.ends_with(".csv")
}

/// `CCE-26967-0`
fn is_id(id: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    id.strip_prefix("CCE-")
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(number, check)| digits(number) && check.len() == 1 && digits(check))
}

/// The columns of a row that we know, by our names.
fn known_columns(row: &Row) -> BTreeMap<&'static str, &str> {
    let mut known = BTreeMap::new();
    for (ours, theirs) in COLUMNS {
        let find = |name: &&str| row.columns.iter().find(|(column, _)| column.to_lowercase() == **name);
        if let Some((_, text)) = theirs.iter().find_map(find) {
            known.insert(ours, text.trim());
        }
    }
    known
}

/// A table: rows by number, cells by column.
type Cells = BTreeMap<u32, BTreeMap<u32, String>>;

fn gather(pieces: &[Piece], limits: Limits) -> Result<Gathered, Failure> {
    let mut gathered = Gathered::default();
    let mut by_id: BTreeMap<String, (usize, Vec<Row>)> = BTreeMap::new();
    let mut in_workbook: BTreeSet<(String, String)> = BTreeSet::new();
    let skip = |piece: usize, row: Row, id: &str, why: &str, items: &mut Vec<Found>| {
        let position = u64::from(row.row);
        let raw = Raw { id: id.to_owned(), sources: vec![row], skip: Some(why.to_owned()) };
        items.push(Found { piece, position, raw: to_json(&raw) });
    };
    // Workbooks first, so that a CSV file can be told to be one of their sheets.
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by_key(|&at| !is_workbook(&pieces[at]));
    for piece in order {
        let file = &pieces[piece];
        let tables = match tables(file, limits) {
            Ok(tables) => tables,
            Err(why) if pieces.len() > 1 => {
                gathered.gaps.push(format!("{}: {why}", file.name));
                continue;
            }
            Err(why) => return Err(Failure::Broken(format!("{}: {why}", file.name))),
        };
        for (sheet, cells) in tables {
            let Some((header, names)) = header(&cells) else {
                gathered
                    .gaps
                    .push(format!("{}, sheet `{sheet}`: there is no row with the column names", file.name));
                continue;
            };
            let note = |what: &str| preamble(&cells, header, what);
            let (modified, version) = (note("last mod"), note("version"));
            for (&number, row) in cells.range(header + 1..) {
                let id = row.get(&names[0].0).map(|id| id.trim()).unwrap_or_default();
                let columns = names[1..]
                    .iter()
                    .filter_map(|(column, name)| Some((name.clone(), row.get(column)?.trim().to_owned())))
                    .collect();
                let row = Row {
                    file: file.name.clone(),
                    sheet: sheet.clone(),
                    row: number,
                    modified: modified.clone(),
                    version: version.clone(),
                    columns,
                };
                let place = (sheet.clone(), id.to_owned());
                if id.is_empty() {
                    skip(piece, row, "", NO_ID, &mut gathered.items);
                } else if !is_workbook(file) && in_workbook.contains(&place) {
                    skip(piece, row, id, SAME_SHEET, &mut gathered.items);
                } else {
                    if is_workbook(file) {
                        in_workbook.insert(place);
                    }
                    by_id.entry(id.to_owned()).or_insert_with(|| (piece, Vec::new())).1.push(row);
                }
            }
        }
    }
    for (id, (piece, sources)) in by_id {
        let position = sources.first().map_or(0, |row| u64::from(row.row));
        gathered.items.push(Found { piece, position, raw: to_json(&Raw { id, sources, skip: None }) });
    }
    gathered.items.sort_by_key(|found| found.piece);
    Ok(gathered)
}

fn to_json(raw: &Raw) -> Vec<u8> {
    serde_json::to_vec(raw).expect("texts and numbers are JSON")
}

fn is_workbook(piece: &Piece) -> bool {
    piece.file_name().to_ascii_lowercase().ends_with(".xlsx")
}

/// The tables in a file: sheets of a workbook, or the one of a CSV file, under the file's name.
fn tables(file: &Piece, limits: Limits) -> Result<Vec<(String, Cells)>, String> {
    if is_workbook(file) {
        return Ok(sheets(&file.bytes, limits)?.into_iter().map(|sheet| (sheet.name, sheet.rows)).collect());
    }
    let mut reader = csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(&file.bytes[..]);
    let mut cells = Cells::new();
    let mut record = csv::ByteRecord::new();
    for number in 1.. {
        if !reader.read_byte_record(&mut record).map_err(|error| error.to_string())? {
            break;
        }
        let row: BTreeMap<u32, String> = (0..)
            .zip(&record)
            .map(|(column, cell)| (column, String::from_utf8_lossy(cell).into_owned()))
            .filter(|(_, cell)| !cell.trim().is_empty())
            .collect();
        if !row.is_empty() {
            cells.insert(number, row);
        }
    }
    let name = file.file_name();
    Ok(vec![(name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned(), cells)])
}

/// The row with the names of the columns, and those names; the id comes first.
fn header(cells: &Cells) -> Option<(u32, Vec<(u32, String)>)> {
    cells.iter().take(HEADER_ROW_MAX).find_map(|(&number, row)| {
        let is_id_column = |name: &str| {
            let name = name.trim().to_lowercase();
            ["cce", "cce id", "cce-id", "cce id v5", "cce_id"].contains(&name.as_str())
        };
        let id = row.iter().find(|(_, name)| is_id_column(name))?;
        if row.len() < 2 {
            return None;
        }
        let mut names = vec![(*id.0, id.1.trim().to_owned())];
        names.extend(
            row.iter()
                .filter(|(column, _)| *column != id.0)
                .map(|(column, name)| (*column, name.split_whitespace().collect::<Vec<_>>().join(" "))),
        );
        Some((number, names))
    })
}

/// What stands above the header after `what…:`, such as a date.
fn preamble(cells: &Cells, header: u32, what: &str) -> Option<String> {
    let notes = cells.range(..header).flat_map(|(_, row)| row.values());
    let mut found = notes.filter(|note| note.trim().to_lowercase().starts_with(what));
    found.find_map(|note| note.split_once(':').map(|(_, value)| value.trim().to_owned()))
}
