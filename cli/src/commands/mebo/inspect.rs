use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use phalanx_mebo::{Blob, Endian, Error, NumericBlob, TextBlob};
use serde_json::{Value, json};

/// Shows what is in a blob: header, encodings, metrics, counts, sizes.
#[derive(Args)]
pub(crate) struct Inspect {
    file: PathBuf,

    /// Prints one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let bytes = super::read(&self.file)?;
        let blob = Blob::open(&bytes).with_context(|| self.file.display().to_string())?;
        let summary = match &blob {
            Blob::Numeric(blob) => numeric(blob),
            Blob::Text(blob) => Ok(text(blob)),
        };
        let summary = summary.with_context(|| self.file.display().to_string())?;
        let printed = if self.json { summary.to_string() } else { tables(&summary) };
        writeln!(io::stdout(), "{printed}")?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What is shown of a blob of numbers. Columns are measured before compression.
fn numeric(blob: &NumericBlob<'_>) -> Result<Value, Error> {
    let header = blob.header();
    let metrics = blob
        .metrics()
        .map(|metric| {
            let (timestamps, values) = (metric.timestamps_size()?, metric.values_size()?);
            let mut entry = json!({
                "id": super::id(metric.id()),
                "name": metric.name(),
                "points": metric.len(),
                "timestamp_bytes": timestamps,
                "value_bytes": values,
                "bytes_per_point": per_point(timestamps + values, metric.len()),
            });
            if metric.timestamps_of() != metric.index() {
                entry["timestamps_of"] =
                    json!(blob.metric(metric.timestamps_of()).map(|owner| super::id(owner.id())));
            }
            Ok(entry)
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let points: usize = blob.metrics().map(|metric| metric.len()).sum();
    let [t, v, g] =
        [header.timestamps_offset, header.values_offset, header.tags_offset].map(|start| start as usize);
    Ok(json!({
        "family": "numeric",
        "layout": format!("{}{}", header.layout, if header.extended { " extended" } else { "" }),
        "byte_order": byte_order(header.endian),
        "start_time": header.start_time,
        "timestamps": {
            "encoding": header.timestamp_encoding.to_string(),
            "compression": header.timestamp_compression.to_string(),
            "bytes": v - t,
            "shared": header.has_shared_timestamps,
        },
        "values": {
            "encoding": header.value_encoding.to_string(),
            "compression": header.value_compression.to_string(),
            "bytes": g - v,
        },
        "tags": header.has_tags.then(|| json!({"compression": "zstd", "bytes": blob.size() - g})),
        "names": header.has_names,
        "metric_count": blob.len(),
        "points": points,
        "bytes": blob.size(),
        "bytes_per_point": per_point(blob.size(), points),
        "metrics": metrics,
    }))
}

fn text(blob: &TextBlob<'_>) -> Value {
    let header = blob.header();
    let metrics: Vec<Value> = blob
        .metrics()
        .map(|metric| {
            json!({
                "id": super::id(metric.id()),
                "name": metric.name(),
                "points": metric.len(),
                "row_bytes": metric.rows_size(),
                "bytes_per_point": per_point(metric.rows_size(), metric.len()),
            })
        })
        .collect();
    let points: usize = blob.metrics().map(|metric| metric.len()).sum();
    json!({
        "family": "text",
        "layout": "V1",
        "byte_order": byte_order(header.endian),
        "start_time": header.start_time,
        "timestamps": {"encoding": header.timestamp_encoding.to_string()},
        "rows": {
            "compression": header.compression.to_string(),
            "bytes": blob.size() - header.data_offset as usize,
            "plain_bytes": header.data_size,
        },
        "tags": header.has_tags,
        "names": header.has_names,
        "metric_count": blob.len(),
        "points": points,
        "bytes": blob.size(),
        "bytes_per_point": per_point(blob.size(), points),
        "metrics": metrics,
    })
}

fn byte_order(endian: Endian) -> &'static str {
    match endian {
        Endian::Little => "little",
        Endian::Big => "big",
    }
}

/// Rounded to hundredths; `null` where there are no points.
fn per_point(bytes: usize, points: usize) -> Option<f64> {
    (points > 0).then(|| (bytes as f64 * 100.0 / points as f64).round() / 100.0)
}

/// The same as tables: the blob's own facts one a line, then the metrics.
fn tables(summary: &Value) -> String {
    let mut facts = Table::new();
    facts.load_style(presets::NOTHING);
    let mut metrics = Table::new();
    metrics.load_style(presets::UTF8_BORDERS_ONLY);
    for (key, value) in summary.as_object().into_iter().flatten() {
        match value {
            Value::Array(entries) => list(entries, &mut metrics),
            Value::Object(parts) => {
                let parts: Vec<String> =
                    parts.iter().map(|(key, value)| format!("{} {}", words(key), plain(value))).collect();
                facts.add_row([words(key), parts.join(", ")]);
            }
            value => {
                facts.add_row([words(key), plain(value)]);
            }
        }
    }
    format!("{facts}\n\n{metrics}")
}

fn list(entries: &[Value], table: &mut Table) {
    const COLUMNS: [&str; 7] =
        ["id", "name", "points", "timestamp_bytes", "value_bytes", "row_bytes", "bytes_per_point"];
    let shown: Vec<&str> =
        COLUMNS.into_iter().filter(|column| entries.iter().any(|entry| !entry[column].is_null())).collect();
    table.set_header(shown.iter().map(|column| words(column)));
    for entry in entries {
        table.add_row(shown.iter().map(|column| match (&entry["timestamps_of"], *column) {
            (Value::String(owner), "timestamp_bytes") => format!("those of {owner}"),
            _ => plain(&entry[column]),
        }));
    }
    for (column, i) in shown.iter().zip(0..) {
        if !matches!(*column, "id" | "name")
            && let Some(column) = table.column_mut(i)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn words(key: &str) -> String {
    key.replace('_', " ")
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "–".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
