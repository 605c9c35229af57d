//! Result of the demo, as text and as JSON.

use phalanx_spc::numeric;
use serde_json::{Value, json};

use crate::audit::{AuditResult, DetectionStats};

/// Result of the demo.
pub struct Summary {
    pub(crate) seed: u64,
    pub(crate) maps: u64,
    pub(crate) moved: u64,
    /// Times from publication to commit, in milliseconds.
    pub(crate) latencies: Vec<f64>,
    pub(crate) cache_hit_rate: f64,
    pub(crate) audit: AuditResult,
}

impl Summary {
    /// Returns whether nothing was lost or done twice, shifts were found, and there were no more false alarms than theory
    /// allows.
    pub fn is_good(&self) -> bool {
        let AuditResult { lost, double, large_shifts, false_alarms, false_bound, .. } = &self.audit;
        *lost == 0
            && *double == 0
            && large_shifts.found * 10 >= large_shifts.injected * 9
            && false_alarms <= false_bound
    }

    fn latency(&self, share: f64) -> f64 {
        numeric::quantile(&mut self.latencies.clone(), share).unwrap_or_default()
    }

    /// Returns the result as JSON.
    pub fn json(&self) -> Value {
        let audit = &self.audit;
        let found = |found: &DetectionStats| json!({ "injected": found.injected, "found": found.found, "runsToDetect": runs(found) });
        let mut detection = json!({ "shiftsAtLeast2Sigma": found(&audit.large_shifts) });
        for (kind, of_kind) in &audit.kinds {
            detection[*kind] = found(of_kind);
        }
        detection["falseAlarms"] = json!({
            "found": audit.false_alarms,
            "expected": audit.false_expected,
            "bound": audit.false_bound,
        });
        json!({
            "published": audit.published,
            "committed": audit.committed,
            "deadLettered": audit.dead,
            "lost": audit.lost,
            "doubleCommitted": audit.double,
            "mapVersions": self.maps,
            "moved": self.moved,
            "alarms": audit.alarms,
            "detection": detection,
            "latencyMs": { "p50": self.latency(0.5), "p99": self.latency(0.99) },
            "cacheHitRate": self.cache_hit_rate,
            "seed": self.seed,
        })
    }

    /// Returns the result as text for users.
    pub fn text(&self) -> String {
        let audit = &self.audit;
        let mut text = format!(
            "{} runs sent, {} committed, {} lost, {} done twice, {} given up\n\
             {} new maps, {} chambers moved\n\
             from sending to commit: {:.0} ms for half of them, {:.0} ms for 99 of 100, the crash included; {:.1} % of what \
             was remembered came from the cache\n",
            audit.published,
            audit.committed,
            audit.lost,
            audit.double,
            audit.dead,
            self.maps,
            self.moved,
            self.latency(0.5),
            self.latency(0.99),
            100.0 * self.cache_hit_rate,
        );
        let large = &audit.large_shifts;
        text +=
            &format!("shifts of 2 σ and more found within 10 runs: {} of {}\n", large.found, large.injected);
        for (kind, found) in &audit.kinds {
            let runs = runs(found).map_or(String::new(), |runs| {
                let unit = if runs <= 1.0 { "run" } else { "runs" };
                format!(", in the median after {runs} {unit}")
            });
            text += &format!("  {kind}: {} of {}{runs}\n", found.found, found.injected);
        }
        text += &format!(
            "false alarms: {}; the rules give {:.1} by theory, and at most {} in 999 of 1,000 cases\n",
            audit.false_alarms, audit.false_expected, audit.false_bound
        );
        text + if self.is_good() { "everything as promised" } else { "NOT as promised: see above" }
    }
}

/// Returns the median number of runs until detection.
fn runs(found: &DetectionStats) -> Option<f64> {
    numeric::median(&mut found.runs.iter().map(|runs| *runs as f64).collect::<Vec<_>>())
}
