//! `phalanx etl search`: records by their words.

use std::process::ExitCode;

use clap::Args;
use phalanx_etl::store::{Query, Reader, parse_since};
use serde_json::json;

use super::{Common, print};
use crate::commands::table::Table;

/// Finds records by their words, best first.
///
/// All words must be there; "several words" in quotes stand next to each other, inject* is a beginning.
#[derive(Args)]
pub(super) struct Search {
    /// Words.
    #[arg(required = true)]
    text: Vec<String>,

    /// Only of this kind: cve, cwe, capec, attack, ssg, asvs, cce. May be given several times.
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,

    /// Only of this sort within its kind, such as weakness or technique.
    #[arg(long)]
    subtype: Option<String>,

    /// Only so severe, as the source says it: low, medium, high, critical, L1, …
    #[arg(long)]
    severity: Option<String>,

    /// Only what was published or changed since: a year, a month or a day, such as 2024 or 2024-05-01.
    #[arg(long, value_name = "DATE", value_parser = parse_since)]
    since: Option<String>,

    /// How many at most.
    #[arg(long, default_value_t = 20)]
    limit: usize,

    #[command(flatten)]
    common: Common,
}

impl Search {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let known: Vec<_> = phalanx_etl::providers::all().iter().map(|one| one.id()).collect();
        if let Some(unknown) = self.types.iter().find(|one| !known.contains(&one.as_str())) {
            super::run::wrong_use(&format!("--type {unknown}: there are: {}", known.join(", ")));
        }
        let query = Query {
            text: self.text.join(" "),
            types: self.types,
            subtype: self.subtype,
            severity: self.severity,
            since: self.since,
            limit: self.limit,
        };
        let hits = Reader::open(&self.common.db)?.search(&query)?;
        if self.common.json {
            print(json!({ "hits": hits }))?;
            return Ok(ExitCode::SUCCESS);
        }
        if hits.is_empty() {
            eprintln!("nothing fits");
        }
        let mut table = Table::new(&["urn", "severity", "changed", "title", "where"]);
        for hit in hits {
            let day = hit.modified.or(hit.published).unwrap_or_default();
            let day = day.get(..10).unwrap_or(&day).to_owned();
            let excerpt = hit.excerpt.split_whitespace().collect::<Vec<_>>().join(" ");
            table.row([hit.urn, hit.severity.unwrap_or_default(), day, hit.title, excerpt]);
        }
        print(table)?;
        Ok(ExitCode::SUCCESS)
    }
}
