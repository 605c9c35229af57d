//! What the demo comes to.

use phalanx_spc::numeric;
use serde_json::{Value, json};

use super::books::{Counted, Found};

/// What the demo came to.
pub(super) struct Summary {
    pub(super) seed: u64,
    pub(super) maps: u64,
    pub(super) moved: u64,
    /// From publication to commit, in milliseconds.
    pub(super) latencies: Vec<f64>,
    pub(super) cache_hit_rate: f64,
    pub(super) counted: Counted,
}

impl Summary {
    /// Nothing lost, nothing twice, shifts found, no more false alarms than theory allows.
    pub(super) fn is_good(&self) -> bool {
        let Counted { lost, double, large_shifts, false_alarms, false_bound, .. } = &self.counted;
        *lost == 0
            && *double == 0
            && large_shifts.found * 10 >= large_shifts.injected * 9
            && false_alarms <= false_bound
    }

    fn latency(&self, share: f64) -> f64 {
        numeric::quantile(&mut self.latencies.clone(), share).unwrap_or_default()
    }

    pub(super) fn json(&self) -> Value {
        let counted = &self.counted;
        let found = |found: &Found| json!({ "injected": found.injected, "found": found.found, "runsToDetect": runs(found) });
        let mut detection = json!({ "shiftsAtLeast2Sigma": found(&counted.large_shifts) });
        for (kind, of_kind) in &counted.kinds {
            detection[*kind] = found(of_kind);
        }
        detection["falseAlarms"] = json!({
            "found": counted.false_alarms,
            "expected": counted.false_expected,
            "bound": counted.false_bound,
        });
        json!({
            "published": counted.published,
            "committed": counted.committed,
            "deadLettered": counted.dead,
            "lost": counted.lost,
            "doubleCommitted": counted.double,
            "mapVersions": self.maps,
            "moved": self.moved,
            "alarms": counted.alarms,
            "detection": detection,
            "latencyMs": { "p50": self.latency(0.5), "p99": self.latency(0.99) },
            "cacheHitRate": self.cache_hit_rate,
            "seed": self.seed,
        })
    }

    pub(super) fn text(&self) -> String {
        let counted = &self.counted;
        let mut text = format!(
            "{} runs sent, {} committed, {} lost, {} done twice, {} given up\n\
             {} new maps, {} chambers moved\n\
             from sending to commit: {:.0} ms for half of them, {:.0} ms for 99 of 100, the crash included; {:.1} % of what \
             was remembered came from the cache\n",
            counted.published,
            counted.committed,
            counted.lost,
            counted.double,
            counted.dead,
            self.maps,
            self.moved,
            self.latency(0.5),
            self.latency(0.99),
            100.0 * self.cache_hit_rate,
        );
        let large = &counted.large_shifts;
        text +=
            &format!("shifts of 2 σ and more found within 10 runs: {} of {}\n", large.found, large.injected);
        for (kind, found) in &counted.kinds {
            let runs = runs(found).map_or(String::new(), |runs| {
                let unit = if runs <= 1.0 { "run" } else { "runs" };
                format!(", in the median after {runs} {unit}")
            });
            text += &format!("  {kind}: {} of {}{runs}\n", found.found, found.injected);
        }
        text += &format!(
            "false alarms: {}; the rules give {:.1} by theory, and at most {} in 999 of 1,000 cases\n",
            counted.false_alarms, counted.false_expected, counted.false_bound
        );
        text + if self.is_good() { "everything as promised" } else { "NOT as promised: see above" }
    }
}

/// The runs it took in the middle.
fn runs(found: &Found) -> Option<f64> {
    numeric::median(&mut found.runs.iter().map(|runs| *runs as f64).collect::<Vec<_>>())
}
