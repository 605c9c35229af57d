//! The sum of all runs, for people and for programs.

use std::io::{self, Write as _};
use std::time::Duration;

use phalanx_sim::Totals;
use serde_json::json;

pub(super) struct Report<'a> {
    pub(super) totals: &'a Totals,
    pub(super) took: Duration,
}

impl Report<'_> {
    pub(super) fn print_json(&self) -> io::Result<()> {
        let Totals { counts, .. } = self.totals;
        let report = json!({
            "seeds": self.totals.runs,
            "clusterHours": self.totals.cluster_hours(),
            "wallSeconds": self.took.as_secs_f64(),
            "published": counts.published,
            "committed": counts.committed,
            "deadLettered": counts.dead_lettered,
            "expired": counts.expired,
            "duplicates": counts.duplicates,
            "lostByBroker": counts.lost_by_broker,
            "lost": counts.lost,
            "doubleCommitted": counts.double_committed,
            "orderViolations": counts.order_violations,
            "invariantViolations": self.totals.violations,
            "faults": self.totals.faults,
            "traceHash": self.hash(),
        });
        writeln!(io::stdout(), "{report}")
    }

    pub(super) fn print_table(&self) -> io::Result<()> {
        let (totals, counts) = (self.totals, &self.totals.counts);
        let mut out = io::BufWriter::new(io::stdout().lock());
        let mut line = |name: &str, value: String| writeln!(out, "{name:<34}{value:>18}");
        let worst =
            totals.worst_recovery.map_or("–".to_owned(), |worst| format!("{:.3} s", worst.as_secs_f64()));
        line("seeds", totals.runs.to_string())?;
        line("cluster-hours simulated", format!("{:.2}", totals.cluster_hours()))?;
        line("messages published", counts.published.to_string())?;
        line("committed", counts.committed.to_string())?;
        line("dead letters", counts.dead_lettered.to_string())?;
        line("expired unread", counts.expired.to_string())?;
        line("duplicates", counts.duplicates.to_string())?;
        line("lost by the broker", counts.lost_by_broker.to_string())?;
        line("lost", counts.lost.to_string())?;
        line("committed twice", counts.double_committed.to_string())?;
        line("out of order", counts.order_violations.to_string())?;
        line("broken promises", totals.violations.to_string())?;
        line("map versions", totals.publications.to_string())?;
        line("worst recovery of a single crash", worst)?;
        line("cluster-hours a second", format!("{:.2}", self.speed()))?;
        line("trace hash", self.hash())?;
        line("faults", totals.faults.values().sum::<u64>().to_string())?;
        for (kind, count) in &totals.faults {
            line(&format!("  {kind}"), count.to_string())?;
        }
        out.flush()
    }

    fn speed(&self) -> f64 {
        self.totals.cluster_hours() / self.took.as_secs_f64().max(1e-9)
    }

    fn hash(&self) -> String {
        format!("{:016x}", self.totals.trace_hash)
    }
}

/// One line about how far it is.
pub(super) fn progress(totals: &Totals, of: u64, failed: usize, took: Duration) {
    let report = Report { totals, took };
    eprintln!(
        "{} of {of} seeds, {:.1} cluster-hours, {:.2} a second, {failed} failed",
        totals.runs,
        totals.cluster_hours(),
        report.speed()
    );
}
