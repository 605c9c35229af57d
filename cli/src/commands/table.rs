//! Tables for people.

use std::fmt;

use comfy_table::presets::NOTHING;

/// Columns under their names, as wide as they need to be.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_header(columns.iter().copied());
        Self(table)
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.trim_fmt().fmt(f)
    }
}
