//! `phalanx etl show`: one record, and all that is known of it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use phalanx_etl::Urn;
use phalanx_etl::store::{Reader, RecordView};
use serde_json::json;

/// Shows a record: what it says, where it comes from, what it is linked with, and what it said before.
#[derive(Args)]
pub(super) struct Show {
    /// Such as v2e::nvd::cve::CVE-2023-27314; v2e::owasp::asvs::V1.1.1 is that of the newest version loaded.
    urn: String,

    /// The database.
    #[arg(long, value_name = "FILE", default_value = "phalanx-etl.db")]
    db: PathBuf,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let urn: Urn = self.urn.parse()?;
        let record =
            Reader::open(&self.db)?.record(urn.as_str()).with_context(|| format!("reading {urn}"))?;
        let Some(record) = record else { bail!("{urn} is not in {}", self.db.display()) };
        if self.json {
            super::print(json!(record))?;
        } else {
            print(&record)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(record: &RecordView) -> anyhow::Result<()> {
    let line = |name: &str, value: Option<&str>| match value {
        Some(value) if !value.is_empty() => super::print(format_args!("{name:<10} {value}")),
        _ => Ok(()),
    };
    line("urn", Some(&record.urn))?;
    line("title", Some(&record.title))?;
    line("status", record.status.as_deref())?;
    line("severity", record.severity.as_deref())?;
    line("published", record.published.as_deref())?;
    line("modified", record.modified.as_deref())?;
    line("version", Some(&record.version.to_string()))?;
    line("source", Some(&format!("{}, item {}", record.source, record.position)))?;
    line("checksum", record.checksum.as_deref())?;
    line("fetched", Some(&format!("{} by run {}", record.fetched_at, record.run_id)))?;
    for (kind, urn) in &record.links {
        line(kind, Some(urn))?;
    }
    for (kind, urn) in &record.linked_from {
        line(&format!("{kind} of"), Some(urn))?;
    }
    for version in &record.versions {
        line("earlier", Some(&format!("version {}, then changed: {}", version.version, version.changed)))?;
    }
    super::print(format_args!("\n{}", record.text))
}
