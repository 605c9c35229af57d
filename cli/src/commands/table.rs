//! Tables for people.

use std::fmt;

use comfy_table::presets::NOTHING;
use phalanx_terminal::ColorRole;

/// Columns under their names, as wide as they need to be.
pub(crate) struct Table {
    table: comfy_table::Table,
    /// Of each line.
    paints: Vec<ColorRole>,
}

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_header(columns.iter().copied());
        Self { table, paints: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.styled_row(ColorRole::Plain, cells);
    }

    /// Adds a row in a color, if colors are shown.
    pub(crate) fn styled_row(&mut self, paint: ColorRole, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        let lines = cells.iter().map(|cell| cell.lines().count()).max().unwrap_or_default().max(1);
        self.paints.resize(self.paints.len() + lines, paint);
        self.table.add_row(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.table.trim_fmt();
        let paints = std::iter::once(&ColorRole::Bold).chain(&self.paints);
        let lines: Vec<String> = text.lines().zip(paints).map(|(line, paint)| paint.apply(line)).collect();
        f.write_str(&lines.join("\n"))
    }
}
