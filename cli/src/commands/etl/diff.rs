//! `phalanx etl diff`: what is new or changed.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use phalanx_etl::store::Reader;
use serde_json::json;

use super::{Common, print};
use crate::commands::table::Table;

/// Shows what is new or changed, and which fields.
#[derive(Args)]
pub(super) struct Diff {
    /// A run, such as cve-7: what it and later ones brought. Or a date, such as 2024-05-01, or 2024-05-01T12:00:00Z.
    #[arg(long, value_name = "RUN|DATE")]
    since: String,

    #[command(flatten)]
    common: Common,
}

impl Diff {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let reader = Reader::open(&self.common.db)?;
        let from_ms = match (reader.run_began(&self.since)?, moment(&self.since)) {
            (Some(began), _) => began,
            (None, Some(date)) => date,
            (None, None) => bail!(
                "`{}` is neither a run in {} (`phalanx etl events` shows runs) nor a date such as 2024-05-01",
                self.since,
                self.common.db.display()
            ),
        };
        let changes = reader.changes(from_ms)?;
        if self.common.json {
            print(json!({ "changes": changes }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let new = changes.iter().filter(|one| one.change == "new").count();
        let mut table = Table::new(&["change", "urn", "fields", "run", "title"]);
        for one in &changes {
            table.row([
                one.change.to_owned(),
                one.urn.clone(),
                one.fields.join(", "),
                one.run.clone(),
                one.title.clone(),
            ]);
        }
        print(table)?;
        eprintln!("{new} new, {} changed", changes.len() - new);
        Ok(ExitCode::SUCCESS)
    }
}

fn moment(text: &str) -> Option<i64> {
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Some(moment.as_millisecond());
    }
    let day: jiff::civil::Date = text.parse().ok()?;
    Some(day.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond())
}
