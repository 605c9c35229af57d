//! OWASP ASVS: the CSV files of versions 4.0.3 and 5.0.0.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Provider;
use crate::record::{Item, Link, Record, Reject, Verdict};
use crate::source::{Context, Cut, Extract, Failure, Files, OpenRows, Rows, RowsError, Source};
use crate::{Urn, text};

/// The provider `asvs`.
pub struct Asvs;

/// Columns every layout has.
const COLUMNS: [&str; 6] =
    ["chapter_id", "chapter_name", "section_id", "section_name", "req_id", "req_description"];

/// A row with its column names, and the version it belongs to: all there is to know to understand it.
#[derive(Serialize, Deserialize)]
struct RawRow {
    version: String,
    row: BTreeMap<String, Cell>,
}

/// What stands in a column: text, or bytes that are none, kept as they are.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Cell {
    Text(String),
    Bytes(Vec<u8>),
}

impl Cell {
    fn new(bytes: &[u8]) -> Self {
        std::str::from_utf8(bytes)
            .map_or_else(|_| Self::Bytes(bytes.to_owned()), |text| Self::Text(text.to_owned()))
    }
}

impl Provider for Asvs {
    fn id(&self) -> &'static str {
        "asvs"
    }

    fn upstream(&self) -> &'static str {
        "https://raw.githubusercontent.com/OWASP/ASVS/v5.0.0/5.0/docs_en/OWASP_Application_Security_Verification_Standard_5.0.0_en.csv"
    }

    fn open(
        &self,
        source: &Source,
        resume: Option<&str>,
        context: &Context,
    ) -> Result<Box<dyn Extract>, Failure> {
        let version = source.version.clone();
        let open_rows: OpenRows = Box::new(move |input, name| open_rows(input, name, version.clone()));
        Ok(Box::new(Files::open(source, is_csv, open_rows, resume, context)?))
    }

    fn version_separator(&self) -> Option<&'static str> {
        Some("-V")
    }

    fn understand(&self, item: &Item) -> Result<Verdict, Reject> {
        let RawRow { version, row } = serde_json::from_slice(&item.raw).map_err(Reject::new)?;
        let mut texts = BTreeMap::new();
        for (name, cell) in row {
            match cell {
                Cell::Text(text) => texts.insert(name, text),
                Cell::Bytes(_) => return Err(Reject(format!("its column `{name}` is not UTF-8"))),
            };
        }
        let row = texts;
        let column = |name: &str| row.get(name).map(String::as_str).unwrap_or_default().trim();
        let (id, text) = (column("req_id"), column("req_description"));
        if !is_requirement_id(id) {
            return Err(Reject(format!("`{id}` is not the id of a requirement, such as V1.1.1")));
        }
        if text.is_empty() {
            return Err(Reject(format!("{id} has no text")));
        }
        let level = level(&row).ok_or_else(|| Reject(format!("{id} has no level, or an unknown one")));
        let deleted = text.contains("[DELETED");
        // What was taken out of the standard keeps its id and its row, but has no level.
        let level = if deleted { level.ok() } else { Some(level?) };
        let mut links = Vec::new();
        for number in column("cwe").split([',', ';', ' ']).filter(|part| !part.is_empty()) {
            let number = number.trim_start_matches("CWE-");
            links.push(Link {
                kind: "weakness",
                to: Urn::new("cwe", &format!("CWE-{number}")).map_err(Reject::new)?,
            });
        }
        let details = json!({
            "version": version,
            "chapter": {"id": column("chapter_id"), "name": column("chapter_name")},
            "section": {"id": column("section_id"), "name": column("section_name")},
            "level": level,
            "nist": column("nist"),
        });
        Ok(Verdict::Record(Box::new(Record {
            urn: Urn::new("asvs", &format!("{version}-{id}")).map_err(Reject::new)?,
            subtype: "requirement",
            title: format!("{id} {}", text::shorten(column("section_name"), 80)),
            text: text.to_owned(),
            published: None,
            modified: None,
            status: Some(if deleted { "deleted" } else { "active" }.to_owned()),
            severity: level.map(|level| format!("L{level}")),
            details: details.to_string(),
            links,
        })))
    }
}

fn is_csv(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".csv")
}

/// `V1.2.3`
fn is_requirement_id(id: &str) -> bool {
    id.strip_prefix('V').is_some_and(|numbers| {
        let mut parts = 0;
        numbers.split('.').all(|part| {
            parts += 1;
            !part.is_empty() && part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit())
        }) && parts == 3
    })
}

/// The lowest level that demands the requirement.
fn level(row: &BTreeMap<String, String>) -> Option<u8> {
    if let Some(level) = row.get("L") {
        return level.trim().trim_start_matches('L').parse().ok().filter(|level| (1..=3).contains(level));
    }
    // A mark, or a condition in words such as "30 days".
    (1..=3).find(|level| row.get(&format!("level{level}")).is_some_and(|mark| !mark.trim().is_empty()))
}

fn open_rows(
    input: Box<dyn Read + Send>,
    location: &str,
    version: Option<String>,
) -> Result<Box<dyn Rows>, RowsError> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).has_headers(true).from_reader(input);
    let headers = reader.byte_headers().map_err(cut)?;
    let mut columns: Vec<String> =
        headers.iter().map(|name| String::from_utf8_lossy(name).trim().to_owned()).collect();
    if let Some(first) = columns.first_mut() {
        *first = first.trim_start_matches('\u{FEFF}').to_owned();
    }
    let has = |name: &str| columns.iter().any(|column| column == name);
    let layout = match (has("L"), (1..=3).all(|level| has(&format!("level{level}")))) {
        (true, _) => "5.0.0",
        (false, true) => "4.0.3",
        (false, false) => "",
    };
    if layout.is_empty() || !COLUMNS.iter().all(|name| has(name)) {
        return Err(RowsError::Format(format!(
            "not an ASVS file: asvs reads CSV with the columns {} and either L or level1, level2, level3; this begins with `{}`",
            COLUMNS.join(", "),
            text::shorten(&columns.join(","), 60)
        )));
    }
    let version = version.or_else(|| version_in_name(location)).unwrap_or_else(|| layout.to_owned());
    Ok(Box::new(CsvRows { reader, columns, version }))
}

/// The version in `asvs-5.0.0-en.csv` or `…_Standard_5.0.0_en.csv`.
fn version_in_name(location: &str) -> Option<String> {
    let name = Path::new(location).file_name()?.to_str()?;
    name.split(['-', '_'])
        .map(|part| part.trim_start_matches('v').trim_end_matches(".csv"))
        .find(|part| {
            part.split('.').count() == 3
                && part.split('.').all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
        .map(str::to_owned)
}

struct CsvRows {
    reader: csv::Reader<Box<dyn Read + Send>>,
    columns: Vec<String>,
    version: String,
}

impl Rows for CsvRows {
    fn next_row(&mut self) -> Result<Option<Vec<u8>>, RowsError> {
        let mut record = csv::ByteRecord::new();
        if !self.reader.read_byte_record(&mut record).map_err(cut)? {
            return Ok(None);
        }
        let row =
            self.columns.iter().zip(&record).map(|(name, value)| (name.clone(), Cell::new(value))).collect();
        let raw = RawRow { version: self.version.clone(), row };
        Ok(Some(serde_json::to_vec(&raw).map_err(|error| RowsError::Format(error.to_string()))?))
    }

    fn declared(&self) -> Option<u64> {
        None
    }
}

fn cut(error: csv::Error) -> RowsError {
    let at = error.position().map_or(0, csv::Position::byte);
    RowsError::Cut(Cut::Io { at, error: error.into() })
}

#[cfg(test)]
#[path = "asvs_test.rs"]
mod tests;
