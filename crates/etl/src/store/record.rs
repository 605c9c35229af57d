//! Writing one record: new, changed, or just as it was.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::write::Commit;
use super::{Error, millis};
use crate::record::{Entry, Record};

/// What a later version may change.
const FIELDS: [&str; 8] = ["title", "text", "published", "modified", "status", "severity", "details", "raw"];

/// Stores the record; whether it was new or had changed.
pub(super) fn store(
    to: &Connection,
    commit: &Commit,
    source_id: i64,
    entry: &Entry,
    record: &Record,
) -> Result<bool, Error> {
    let urn = record.urn.as_str();
    let known: Option<(i64, [u8; 32])> = to
        .prepare_cached("SELECT id, hash FROM records WHERE urn = ?1")?
        .query_row([urn], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if known.is_some_and(|(_, hash)| hash == entry.hash) {
        return Ok(false);
    }
    if let Some((id, _)) = known {
        keep_version(to, id)?;
        to.prepare_cached("DELETE FROM links WHERE from_urn = ?1")?.execute([urn])?;
    }
    let values = params![
        urn,
        commit.provider,
        record.title,
        record.text,
        record.published,
        record.modified,
        record.status,
        record.severity,
        record.details,
        entry.raw,
        entry.hash,
        record.subtype
    ];
    let id = if let Some((id, _)) = known {
        to.prepare_cached(
            "UPDATE records SET provider = ?2, title = ?3, text = ?4, published = ?5, modified = ?6, status = ?7,
                severity = ?8, details = ?9, raw = ?10, hash = ?11, subtype = ?12, version = version + 1 WHERE urn = ?1",
        )?
        .execute(values)?;
        id
    } else {
        to.prepare_cached(
            "INSERT INTO records (urn, provider, title, text, published, modified, status, severity, details, raw,
                hash, subtype, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 1)",
        )?
        .execute(values)?;
        to.last_insert_rowid()
    };
    if known.is_some() {
        say_what_changed(to, id)?;
    }
    index(to, id, "INSERT INTO search (rowid, title, text, facets) VALUES (?1, ?2, ?3, ?4)")?;
    to.prepare_cached(if known.is_some() {
        "REPLACE INTO provenance (record_id, source_id, position, run_id, stored_ms) VALUES (?1, ?2, ?3, ?4, ?5)"
    } else {
        // Guarded by no savepoint, as a replacement is.
        "INSERT INTO provenance (record_id, source_id, position, run_id, stored_ms) VALUES (?1, ?2, ?3, ?4, ?5)"
    })?
    .execute(params![id, source_id, entry.position as i64, commit.run_id, millis(commit.at)])?;
    for link in &record.links {
        to.prepare_cached("INSERT OR IGNORE INTO links (from_urn, kind, to_urn) VALUES (?1, ?2, ?3)")?
            .execute([urn, link.kind, link.to.as_str()])?;
    }
    Ok(true)
}

/// Puts the present version among the earlier ones, and takes it out of the index.
fn keep_version(to: &Connection, id: i64) -> Result<(), Error> {
    to.prepare_cached(
        "INSERT INTO record_versions SELECT urn, version, '[]', title, text, published, modified, status, severity,
            details, raw, p.source_id, p.run_id FROM records LEFT JOIN provenance p ON p.record_id = id WHERE id = ?1",
    )?
    .execute([id])?;
    index(to, id, "INSERT INTO search (search, rowid, title, text, facets) VALUES ('delete', ?1, ?2, ?3, ?4)")
}

/// Tells the index of a record as it is stored. Read first and then written: what a statement selects for another table
/// is guarded by a savepoint, as an upsert is.
fn index(to: &Connection, id: i64, sql: &str) -> Result<(), Error> {
    let mut stored = to.prepare_cached("SELECT title, text, facets FROM records WHERE id = ?1")?;
    let mut rows = stored.query([id])?;
    if let Some(row) = rows.next()? {
        let text =
            |column| Ok::<_, Error>(row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)?);
        to.prepare_cached(sql)?.execute(params![id, text(0)?, text(1)?, text(2)?])?;
    }
    Ok(())
}

/// Writes beside the version before the present one which of its fields are other ones now.
fn say_what_changed(to: &Connection, id: i64) -> Result<(), Error> {
    let differ = FIELDS.map(|field| format!("old.{field} IS NOT new.{field}")).join(", ");
    let changed: Vec<&str> = to
        .prepare_cached(&format!(
            "SELECT {differ} FROM records new JOIN record_versions old
             ON old.urn = new.urn AND old.version = new.version - 1 WHERE new.id = ?1"
        ))?
        .query_row([id], |row| {
            let mut changed = Vec::new();
            for (at, field) in FIELDS.into_iter().enumerate() {
                if row.get(at)? {
                    changed.push(field);
                }
            }
            Ok(changed)
        })?;
    to.prepare_cached(
        "UPDATE record_versions SET changed = ?2 WHERE (urn, version) =
            (SELECT urn, version - 1 FROM records WHERE id = ?1)",
    )?
    .execute(params![id, serde_json::json!(changed).to_string()])?;
    Ok(())
}
