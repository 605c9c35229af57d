//! Sheets of an XLSX workbook as rows of text.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};

use calamine::{DataRef, Reader as _, Xlsx};

use super::limit::{Bounded, Limits};

/// What no sheet of ours comes near: cells that are kept, and characters in them.
const CELLS_MAX: usize = 20_000_000;

/// A sheet: rows by their number from 1, cells by their column from 0. Empty cells are not there.
pub(crate) struct Sheet {
    pub(crate) name: String,
    pub(crate) rows: BTreeMap<u32, BTreeMap<u32, String>>,
}

/// Every sheet, in order. What the file unpacks to is measured before anything of it is read: a small archive can hold
/// a large one, and sheets are kept by their cells, so that two cells far apart cost no more than two.
pub(crate) fn sheets(bytes: &[u8], limits: Limits) -> Result<Vec<Sheet>, String> {
    measure(bytes, limits)?;
    let no_workbook = |error: calamine::XlsxError| format!("not a workbook: {error}");
    let mut book: Xlsx<_> = Xlsx::new(Cursor::new(bytes)).map_err(no_workbook)?;
    let mut cells = 0;
    let mut sheets = Vec::new();
    for name in book.sheet_names() {
        let mut reader = book.worksheet_cells_reader(&name).map_err(no_workbook)?;
        let mut rows: BTreeMap<u32, BTreeMap<u32, String>> = BTreeMap::new();
        while let Some(cell) = reader.next_cell().map_err(|error| format!("sheet `{name}`: {error}"))? {
            let Some(text) = text(cell.get_value()) else { continue };
            cells += 1;
            if cells > CELLS_MAX {
                return Err(format!("sheet `{name}`: there are more than {CELLS_MAX} cells: refused"));
            }
            let (row, column) = cell.get_position();
            rows.entry(row + 1).or_default().insert(column, text);
        }
        sheets.push(Sheet { name, rows });
    }
    Ok(sheets)
}

/// Unpacks everything once and keeps nothing: sizes that an archive declares may be lies.
fn measure(bytes: &[u8], limits: Limits) -> Result<(), String> {
    let mut archive =
        zip::ZipArchive::new(Cursor::new(bytes)).map_err(|error| format!("not a workbook: {error}"))?;
    let mut left = limits.unpacked;
    for index in 0..archive.len() {
        let member = archive.by_index(index).map_err(|error| format!("not a workbook: {error}"))?;
        let mut member = Bounded::new(member, left, "it unpacks to");
        let mut buffer = [0; 64 << 10];
        loop {
            match member.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => left = left.saturating_sub(len as u64),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Ok(())
}

fn text(value: &DataRef<'_>) -> Option<String> {
    let text = match value {
        DataRef::Empty | DataRef::Error(_) => return None,
        DataRef::String(text) | DataRef::DateTimeIso(text) | DataRef::DurationIso(text) => text.clone(),
        DataRef::SharedString(text) => (*text).to_owned(),
        DataRef::Bool(value) => if *value { "TRUE" } else { "FALSE" }.to_owned(),
        DataRef::Int(value) => value.to_string(),
        DataRef::Float(value) => value.to_string(),
        DataRef::DateTime(value) => value.as_f64().to_string(),
    };
    (!text.trim().is_empty()).then_some(text)
}
