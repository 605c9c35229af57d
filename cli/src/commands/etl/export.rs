//! `phalanx etl export`: everything, one record a line.

use std::io::{BufWriter, Write as _};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use phalanx_etl::store::Reader;

/// Writes records to standard output, one a line, by URN.
#[derive(Args)]
pub(super) struct Export {
    /// How.
    #[arg(long, value_enum, default_value = "jsonl")]
    format: Format,

    /// Only of this kind, such as cve.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,

    /// The database.
    #[arg(long, value_name = "FILE", default_value = "phalanx-etl.db")]
    db: std::path::PathBuf,

    /// The same as --format jsonl.
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Jsonl,
    Csv,
}

const COLUMNS: [&str; 11] =
    ["urn", "type", "id", "title", "text", "published", "modified", "status", "severity", "links", "source"];

impl Export {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let known: Vec<_> = phalanx_etl::providers::all().iter().map(|one| one.id()).collect();
        if let Some(unknown) = self.kind.as_deref().filter(|kind| !known.contains(kind)) {
            super::run::wrong_use(&format!("--type {unknown}: there are: {}", known.join(", ")));
        }
        let reader = Reader::open(&self.db)?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        match self.format {
            Format::Jsonl => reader.export(self.kind.as_deref(), &mut |record| {
                serde_json::to_writer(&mut out, &record)?;
                out.write_all(b"\n")
            })??,
            Format::Csv => {
                let mut table = csv::Writer::from_writer(&mut out);
                table.write_record(COLUMNS)?;
                reader.export(self.kind.as_deref(), &mut |one| {
                    let links = serde_json::to_string(&one.links)?;
                    let maybe = |text: &Option<String>| text.clone().unwrap_or_default();
                    let dates = [
                        maybe(&one.published),
                        maybe(&one.modified),
                        maybe(&one.status),
                        maybe(&one.severity),
                    ];
                    let names = [one.urn, one.kind, one.id, one.title, one.text];
                    let row = names.iter().chain(&dates).chain([&links, &one.source]);
                    table.write_record(row).map_err(std::io::Error::from)
                })??;
                table.flush()?;
            }
        }
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}
