//! Asking for records: by what changed, by provider, all of them.

use rusqlite::{OptionalExtension as _, params};

use super::read::Reader;
use super::view::{Change, Exported, ExportedLink, Holding, from_row};
use super::{Error, rows};

/// A name, and the list in the details of records whose entries it counts.
pub type Tally = (&'static str, &'static str);

impl Reader {
    /// Returns what the store holds of each provider, with the tallies of its records.
    pub fn holdings(&self, providers: &[(String, &[Tally])]) -> Result<Vec<Holding>, Error> {
        let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let mut all = Vec::new();
        for (id, tallies) in providers {
            let sql = "SELECT subtype, count(*) FROM records WHERE provider = ?1 GROUP BY subtype";
            let mut holding = Holding { provider: id.clone(), ..Holding::default() };
            holding.records = rows(&self.connection, sql, [id], pair)?.into_iter().collect();
            for (name, list) in *tallies {
                let sql = "SELECT coalesce(sum(json_array_length(details, ?2)), 0) FROM records WHERE provider = ?1";
                let count = self.connection.query_row(sql, params![id, list], |row| row.get(0))?;
                holding.entries.insert((*name).to_owned(), count);
            }
            let sql = "SELECT l.kind, count(*) FROM records r JOIN links l ON l.from_urn = r.urn
                WHERE r.provider = ?1 GROUP BY l.kind";
            holding.links = rows(&self.connection, sql, [id], pair)?.into_iter().collect();
            all.push(holding);
        }
        Ok(all)
    }

    /// Gives every record, or those of the kind, to `each`, by URN.
    pub fn export(
        &self,
        kind: Option<&str>,
        each: &mut dyn FnMut(Exported) -> std::io::Result<()>,
    ) -> Result<std::io::Result<()>, Error> {
        let mut records = self.connection.prepare(
            "SELECT r.urn, r.provider, r.title, r.text, r.published, r.modified, r.status, r.severity, s.location AS source
             FROM records r JOIN provenance p ON p.record_id = r.id JOIN sources s ON s.id = p.source_id
             WHERE ?1 IS NULL OR r.provider = ?1 ORDER BY r.urn",
        )?;
        let mut found = records.query([kind])?;
        while let Some(row) = found.next()? {
            let urn: String = row.get("urn")?;
            let links = "SELECT to_urn AS \"to\", kind FROM links WHERE from_urn = ?1 ORDER BY kind, to_urn";
            let exported = from_row!(row => Exported {
                urn, title, text, published, modified, status, severity, source;
                id: urn.splitn(4, "::").nth(3).unwrap_or_default().to_owned(),
                kind: row.get("provider")?,
                links: rows(&self.connection, links, [&urn], |row| Ok(from_row!(row => ExportedLink { to, kind; })))?,
            });
            if let Err(error) = each(exported) {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// When the run began, in milliseconds; `None` where there is no such run.
    pub fn run_began(&self, run: &str) -> Result<Option<i64>, Error> {
        let sql = "SELECT started_ms FROM runs WHERE id = ?1";
        Ok(self.connection.query_row(sql, [run], |row| row.get(0)).optional()?)
    }

    /// What runs that began at `from_ms` or later stored: new records and changed ones, by URN.
    pub fn changes(&self, from_ms: i64) -> Result<Vec<Change>, Error> {
        let sql = "SELECT r.urn, r.title, p.run_id,
                r.version = 1 OR EXISTS (SELECT 1 FROM record_versions v JOIN runs vr ON vr.id = v.run_id
                    WHERE v.urn = r.urn AND v.version = 1 AND vr.started_ms >= ?1),
                (SELECT json_group_array(DISTINCT field.value) FROM record_versions v, json_each(v.changed) field
                    WHERE v.urn = r.urn AND coalesce(
                        (SELECT nr.started_ms FROM record_versions n JOIN runs nr ON nr.id = n.run_id
                            WHERE n.urn = v.urn AND n.version = v.version + 1), run.started_ms) >= ?1)
             FROM provenance p JOIN runs run ON run.id = p.run_id JOIN records r ON r.id = p.record_id
             WHERE run.started_ms >= ?1 ORDER BY r.urn";
        rows(&self.connection, sql, [from_ms], |row| {
            let is_new: bool = row.get(3)?;
            let fields: Option<String> = row.get(4)?;
            let mut fields: Vec<String> =
                fields.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
            // Whatever changes, changes the bytes; they are news only where nothing else is.
            if fields.len() > 1 {
                fields.retain(|field| field != "raw");
            }
            fields.sort_unstable();
            if is_new {
                fields.clear();
            }
            Ok(Change {
                urn: row.get(0)?,
                title: row.get(1)?,
                change: if is_new { "new" } else { "changed" },
                fields,
                run: row.get(2)?,
            })
        })
    }
}
