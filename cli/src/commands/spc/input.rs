//! Reads CSV files; whatever is wrong with one is told with its line.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use phalanx_spc::chart::Sample;

/// A CSV file with a header.
pub(super) struct Sheet {
    path: PathBuf,
    header: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    line: u64,
    cells: csv::StringRecord,
}

/// Samples, and the line where each began.
pub(super) struct Samples {
    pub(super) samples: Vec<Sample>,
    pub(super) lines: Vec<u64>,
}

impl Sheet {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(file);
        let header: Vec<String> =
            reader.headers().with_context(|| format!("{shown}, line 1"))?.iter().map(str::to_owned).collect();
        let mut rows = Vec::new();
        for record in reader.records() {
            let cells = record.map_err(|error| {
                let line = error.position().map_or(0, csv::Position::line);
                anyhow!("{shown}, line {line}: {error}")
            })?;
            let line = cells.position().map_or(0, csv::Position::line);
            if cells.len() != header.len() {
                bail!("{shown}, line {line}: {} cells, where the header has {}", cells.len(), header.len());
            }
            rows.push(Row { line, cells });
        }
        if rows.is_empty() {
            bail!("{shown} has no rows below its header");
        }
        Ok(Self { path: path.to_owned(), header, rows })
    }

    /// The position of a column.
    pub(super) fn column(&self, name: &str) -> anyhow::Result<usize> {
        self.header.iter().position(|known| known == name).ok_or_else(|| {
            let shown = self.path.display();
            anyhow!("{shown}, line 1: there is no column `{name}`; there are: {}", self.header.join(", "))
        })
    }

    /// Every row as what `read` makes of it, with its line.
    pub(super) fn rows<T>(
        &self,
        mut read: impl FnMut(&csv::StringRecord) -> anyhow::Result<T>,
    ) -> anyhow::Result<Vec<(u64, T)>> {
        let row = |row: &Row| {
            let value =
                read(&row.cells).map_err(|e| anyhow!("{}, line {}: {e}", self.path.display(), row.line))?;
            Ok((row.line, value))
        };
        self.rows.iter().map(row).collect()
    }

    fn number(&self, cells: &csv::StringRecord, column: usize) -> anyhow::Result<f64> {
        let (text, name) = (&cells[column], &self.header[column]);
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ if text.is_empty() => bail!("the cell of column `{name}` is empty"),
            _ => bail!("`{text}` in column `{name}` is not a finite number"),
        }
    }

    pub(super) fn values(&self, column: &str) -> anyhow::Result<Samples> {
        let column = self.column(column)?;
        Ok(unzip(self.rows(|cells| self.number(cells, column).map(Sample::Value))?))
    }

    /// Rows with the same label are a subgroup, whether they are neighbours or not; subgroups are in the order in
    /// which they first appear.
    pub(super) fn groups(&self, group: &str, value: &str) -> anyhow::Result<Samples> {
        let (group, value) = (self.column(group)?, self.column(value)?);
        let rows = self.rows(|cells| Ok((cells[group].to_owned(), self.number(cells, value)?)))?;
        let mut order = std::collections::HashMap::new();
        let mut groups: Vec<(u64, Vec<f64>)> = Vec::new();
        for (line, (label, value)) in rows {
            let position = *order.entry(label).or_insert(groups.len());
            if position == groups.len() {
                groups.push((line, Vec::new()));
            }
            groups[position].1.push(value);
        }
        Ok(unzip(groups.into_iter().map(|(line, values)| (line, Sample::Group(values))).collect()))
    }

    pub(super) fn counts(&self, count: &str, size: Option<&str>) -> anyhow::Result<Samples> {
        let count = self.column(count)?;
        let size = size.map(|size| self.column(size)).transpose()?;
        Ok(unzip(self.rows(|cells| {
            let size = size.map_or(Ok(1.0), |size| self.number(cells, size))?;
            Ok(Sample::Count { count: self.number(cells, count)?, size })
        })?))
    }

    pub(super) fn vectors(&self, columns: &[String]) -> anyhow::Result<Samples> {
        let columns: Vec<usize> =
            columns.iter().map(|name| self.column(name.trim())).collect::<Result<_, _>>()?;
        Ok(unzip(self.rows(|cells| {
            let values: anyhow::Result<Vec<f64>> =
                columns.iter().map(|&column| self.number(cells, column)).collect();
            values.map(Sample::Vector)
        })?))
    }
}

fn unzip(rows: Vec<(u64, Sample)>) -> Samples {
    let (lines, samples) = rows.into_iter().unzip();
    Samples { samples, lines }
}
