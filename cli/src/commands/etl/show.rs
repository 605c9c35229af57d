//! `phalanx etl show`: one record, and all that is known of it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use phalanx_etl::store::{LinkView, Reader, RecordView};
use phalanx_etl::{Urn, lookup};
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
            lookup::record(&Reader::open(&self.db)?, &urn).with_context(|| format!("reading {urn}"))?;
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
    super::print(&record.title)?;
    line("urn", Some(&record.urn))?;
    line("type", Some(&format!("{}, {}", record.provider, record.subtype)))?;
    line("status", record.status.as_deref())?;
    line("severity", record.severity.as_deref())?;
    line("published", record.published.as_deref())?;
    line("modified", record.modified.as_deref())?;
    super::print(format_args!("\n{}", record.text))?;
    links("names", &record.links)?;
    links("is named by", &record.linked_from)?;
    super::print("\nhistory")?;
    for version in &record.versions {
        let changed: Vec<_> =
            version.changed.as_array().into_iter().flatten().filter_map(|field| field.as_str()).collect();
        let run = version.run_id.as_deref().unwrap_or("unknown");
        let changed = changed.join(", ");
        super::print(format_args!(
            "  version {} by run {run}; then these changed: {changed}",
            version.version
        ))?;
    }
    super::print(format_args!("  version {} by run {}: as above", record.version, record.run_id))?;
    super::print("\nprovenance")?;
    super::print(format_args!("  {}, item {}", record.source, record.position))?;
    super::print(format_args!("  fetched {} by run {}", record.fetched_at, record.run_id))?;
    if let Some(checksum) = &record.checksum {
        super::print(format_args!("  SHA-256 {checksum}"))?;
    }
    Ok(())
}

/// Links under a heading, each with the title of the other end.
fn links(heading: &str, links: &[LinkView]) -> anyhow::Result<()> {
    if !links.is_empty() {
        super::print(format_args!("\n{heading}"))?;
    }
    for link in links {
        let title = link.title.as_deref().unwrap_or("(not loaded)");
        super::print(format_args!("  {:<14} {} {title}", link.kind.replace('_', " "), link.urn))?;
    }
    Ok(())
}
