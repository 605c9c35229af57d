//! A list of chambers as CSV.

use std::collections::HashMap;

use jiff::Timestamp;
use thiserror::Error;

use super::weight;
use crate::record::{Chamber, Metadata};

/// The first line of a list.
const HEADER: [&str; 5] =
    ["tool_id", "chamber_id", "svid_count", "collection_freq_hz", "context_duration_seconds"];

/// A list that cannot be used: nothing of it is.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BadImport {
    /// It does not begin as it should.
    #[error("the first line must be {}, not {found:?}", HEADER.join(","))]
    Header {
        /// What it begins with.
        found: String,
    },
    /// A line says something that cannot be.
    #[error("line {line}: {reason}")]
    Line {
        /// Which, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// It has no chamber.
    #[error("there is no chamber in it")]
    Empty,
}

/// Reads a list of chambers with the columns
/// `tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds`: all of it, or nothing.
///
/// ```
/// use jiff::Timestamp;
/// use phalanx_defender::weights::import;
///
/// let list = "tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds\netch-01,A,100,1,1200\n";
/// let chambers = import(list, Timestamp::UNIX_EPOCH)?;
/// assert_eq!((chambers[0].chamber.to_string().as_str(), chambers[0].weight), ("etch-01:A", 120_000));
/// let error = import(&list.replace("100", "many"), Timestamp::UNIX_EPOCH).unwrap_err();
/// assert_eq!(error.to_string(), "line 2: svid_count is \"many\", it must be a whole number from 1 to 1000000");
/// # Ok::<(), phalanx_defender::weights::BadImport>(())
/// ```
pub fn import(text: &str, now: Timestamp) -> Result<Vec<Metadata>, BadImport> {
    // Spreadsheets put a mark before the first character.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut chambers, mut seen) = (Vec::new(), HashMap::new());
    let mut header = false;
    // No name has a line end in it, so a record is a line, and its number is what an editor shows.
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
        let fields = fields(text).map_err(|reason| BadImport::Line { line, reason })?;
        if !header {
            if fields.iter().ne(HEADER) {
                return Err(BadImport::Header { found: fields.iter().collect::<Vec<_>>().join(",") });
            }
            header = true;
            continue;
        }
        let metadata = chamber(&fields, now).map_err(|reason| BadImport::Line { line, reason })?;
        if let Some(first) = seen.insert(metadata.chamber.clone(), line) {
            let reason = format!("chamber {} stands in line {first} already", metadata.chamber);
            return Err(BadImport::Line { line, reason });
        }
        chambers.push(metadata);
    }
    if chambers.is_empty() { Err(BadImport::Empty) } else { Ok(chambers) }
}

fn fields(line: &str) -> Result<csv::StringRecord, String> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).trim(csv::Trim::All).from_reader(line.as_bytes());
    reader.records().next().unwrap_or_else(|| Ok(csv::StringRecord::new())).map_err(|e| e.to_string())
}

fn chamber(fields: &csv::StringRecord, now: Timestamp) -> Result<Metadata, String> {
    let found: Vec<&str> = fields.iter().collect();
    let [tool, chamber, svids, frequency, duration] = found[..] else {
        return Err(format!("{} columns, there must be {}", fields.len(), HEADER.len()));
    };
    let chamber = Chamber::new(tool, chamber).map_err(|e| e.to_string())?;
    let svid_count = svids
        .parse()
        .ok()
        .filter(|n| (1..=1_000_000).contains(n))
        .ok_or_else(|| format!("svid_count is {svids:?}, it must be a whole number from 1 to 1000000"))?;
    let number = |name: &str, text: &str, most: f64| {
        let found = text.parse::<f64>().ok().filter(|n| *n > 0.0 && *n <= most);
        found.ok_or_else(|| format!("{name} is {text:?}, it must be a number above 0, at most {most}"))
    };
    let collection_freq_hz = number("collection_freq_hz", frequency, 1e6)?;
    let context_duration_seconds = number("context_duration_seconds", duration, 1e7)?;
    Ok(Metadata {
        chamber,
        svid_count,
        collection_freq_hz,
        context_duration_seconds,
        weight: weight(svid_count, collection_freq_hz, context_duration_seconds),
        last_updated: now,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(lines: &str) -> Result<Vec<Metadata>, BadImport> {
        import(&format!("{}\n{lines}", HEADER.join(",")), Timestamp::UNIX_EPOCH)
    }

    #[track_caller]
    fn refused(lines: &str, line: u64, word: &str) {
        match list(lines).unwrap_err() {
            BadImport::Line { line: found, reason } => {
                assert_eq!(found, line, "{reason}");
                assert!(reason.contains(word), "{reason}");
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_list_is_read_whatever_its_line_ends_and_quotes() {
        let chambers = list("etch-01,A,100,1,1200\r\n\r\n\"etch-01\", B , 50,0.5,600.5\r\n").unwrap();
        let weights: Vec<_> = chambers.iter().map(|m| (m.chamber.to_string(), m.weight)).collect();
        assert_eq!(weights, [("etch-01:A".to_owned(), 120_000), ("etch-01:B".to_owned(), 15_013)]);
        let marked = format!("\u{feff}{}\na,b,1,1,1", HEADER.join(","));
        assert_eq!(import(&marked, Timestamp::UNIX_EPOCH).unwrap().len(), 1);
    }

    #[test]
    fn every_mistake_is_named_with_its_line() {
        let good = "etch-01,A,100,1,1200\n";
        refused(&format!("{good}etch.01,B,1,1,1"), 3, "etch.01");
        refused(&format!("{good}\n\netch-01,A,5,1,1"), 5, "line 2");
        refused("etch-01,A,100,1", 2, "4 columns");
        refused("etch-01,A,100,1,1200,9", 2, "6 columns");
        for bad in ["0", "-1", "1.5", "", "1000001"] {
            refused(&format!("{good}etch-01,B,{bad},1,1"), 3, "svid_count");
        }
        for bad in ["0", "-1", "NaN", "inf", "", "1,5", "1e9"] {
            refused(&format!("{good}etch-01,B,1,\"{bad}\",1"), 3, "collection_freq_hz");
            refused(&format!("{good}etch-01,B,1,1,\"{bad}\""), 3, "context_duration_seconds");
        }
    }

    #[test]
    fn a_list_without_its_header_or_without_chambers_is_refused() {
        let header = import("tool,chamber\n", Timestamp::UNIX_EPOCH).unwrap_err();
        assert!(
            header.to_string().contains("tool_id,chamber_id") && header.to_string().contains("tool,chamber")
        );
        assert_eq!(list("").unwrap_err(), BadImport::Empty);
        assert_eq!(import("", Timestamp::UNIX_EPOCH).unwrap_err(), BadImport::Empty);
    }
}
