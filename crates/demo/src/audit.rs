//! The audit: compares the runs that the fab sent with the store, and its faults with the alarms.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use phalanx_defender::record::{Alarm, Chamber, Flags, Outcome};
use phalanx_defender::store::ChartStore;
use phalanx_fab::theory::{Limits, poisson_bound, raises_ewma, raises_limits};
use phalanx_fab::{EWMA_LAMBDA, EWMA_SIGMAS, Fab, FaultKind, Indicator};

/// Number of runs within which a fault must be found.
const DETECTION_LIMIT_RUNS: u64 = 10;

/// A run that was sent.
#[derive(Clone, Debug)]
pub(crate) struct SentRun {
    pub(crate) number: usize,
    pub(crate) run: u64,
    pub(crate) chamber: Chamber,
    pub(crate) sequence: u64,
    pub(crate) at: Instant,
}

/// Detected faults of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DetectionStats {
    pub(crate) injected: u64,
    pub(crate) found: u64,
    /// Runs until the detection of each found fault.
    pub(crate) runs: Vec<u64>,
}

/// Result of the audit.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditResult {
    pub(crate) published: u64,
    pub(crate) committed: u64,
    pub(crate) dead: u64,
    pub(crate) lost: u64,
    pub(crate) double: u64,
    pub(crate) alarms: u64,
    pub(crate) kinds: BTreeMap<&'static str, DetectionStats>,
    pub(crate) large_shifts: DetectionStats,
    pub(crate) false_alarms: u64,
    pub(crate) false_expected: f64,
    pub(crate) false_bound: u64,
}

/// Counts the outcomes of all runs, from the sent runs and the store alone.
pub(crate) async fn audit(fab: &Fab, store: &dyn ChartStore, sent: &[SentRun]) -> Result<AuditResult> {
    let mut result = AuditResult { published: sent.len() as u64, ..AuditResult::default() };
    let mut runs = HashMap::<usize, u64>::new();
    for one in sent {
        let known = runs.entry(one.number).or_default();
        *known = (*known).max(one.run + 1);
    }
    let long_ago = Timestamp::now() - SignedDuration::from_hours(24);
    for (number, model) in fab.chambers().iter().enumerate() {
        let chamber = Chamber::new(&model.tool, &model.name)?;
        count_committed(store, &chamber, sent.iter().filter(|one| one.number == number), &mut result).await?;
        let alarms = store.alarms(Some(&chamber), long_ago, None, 10_000).await?.alarms;
        let alarms: Vec<Alarm> = alarms.into_iter().map(|(alarm, _)| alarm).collect();
        result.alarms += alarms.len() as u64;
        count_detections(fab, number, runs.get(&number).copied().unwrap_or_default(), &alarms, &mut result);
        count_expected(fab, number, store, &chamber, &mut result).await?;
    }
    result.false_bound = poisson_bound(result.false_expected);
    Ok(result)
}

async fn count_committed(
    store: &dyn ChartStore,
    chamber: &Chamber,
    sent: impl Iterator<Item = &SentRun>,
    result: &mut AuditResult,
) -> Result<()> {
    let mut found = HashMap::<Arc<str>, Vec<Outcome>>::new();
    for context in store.contexts(chamber, None, 100_000).await? {
        found.entry(context.context).or_default().push(context.outcome);
    }
    for one in sent {
        let outcomes =
            found.get(format!("run-{:06}", one.run).as_str()).map(Vec::as_slice).unwrap_or_default();
        let processed = outcomes.iter().filter(|outcome| **outcome == Outcome::Processed).count() as u64;
        let dead = u64::from(outcomes.contains(&Outcome::Dead));
        result.committed += processed.min(1);
        result.double += processed.saturating_sub(1);
        result.dead += dead;
        result.lost += u64::from(processed == 0 && dead == 0);
    }
    Ok(())
}

/// Returns the number of the run that raised an alarm.
fn run_of(alarm: &Alarm) -> Option<u64> {
    alarm.context.strip_prefix("run-")?.parse().ok()
}

/// Counts detected faults and false alarms.
fn count_detections(fab: &Fab, number: usize, runs: u64, alarms: &[Alarm], result: &mut AuditResult) {
    let fault = fab.chambers()[number].fault;
    let on = |alarm: &Alarm, indicator: Indicator| *alarm.indicator == *indicator.name();
    // A chart with a fault is wrong from there on; everything else is right.
    let is_false = |alarm: &&Alarm| {
        !fault.is_some_and(|fault| {
            on(alarm, fault.indicator) && run_of(alarm).is_some_and(|run| run >= fault.from)
        })
    };
    result.false_alarms += alarms.iter().filter(is_false).count() as u64;
    let Some(fault) = fault.filter(|fault| fault.from + DETECTION_LIMIT_RUNS <= runs) else { return };
    let first = alarms
        .iter()
        .filter(|alarm| on(alarm, fault.indicator))
        .filter_map(run_of)
        .filter(|run| *run >= fault.from)
        .min();
    let took = first.map(|run| run - fault.from + 1).filter(|took| *took <= DETECTION_LIMIT_RUNS);
    let note = |found: &mut DetectionStats| {
        found.injected += 1;
        found.found += u64::from(took.is_some());
        found.runs.extend(took);
    };
    note(result.kinds.entry(fault.kind.name()).or_default());
    if matches!(fault.kind, FaultKind::Shift(sigmas) if sigmas.abs() >= 2.0) {
        note(&mut result.large_shifts);
    }
}

/// Adds the number of false alarms that theory expects, from the truth of the fab and the limits of each point.
async fn count_expected(
    fab: &Fab,
    number: usize,
    store: &dyn ChartStore,
    chamber: &Chamber,
    result: &mut AuditResult,
) -> Result<()> {
    let model = &fab.chambers()[number];
    for indicator in Indicator::ALL {
        let wrong_from = model.fault.filter(|fault| fault.indicator == indicator).map(|fault| fault.from);
        let mut known = HashMap::<[u64; 4], f64>::new();
        let mut seen = HashSet::new();
        for (row, ..) in store.u_charts(chamber, indicator.name(), None, 100_000).await? {
            let run: Option<u64> = row.context.strip_prefix("run-").and_then(|run| run.parse().ok());
            let is_right = wrong_from.is_none_or(|from| run.is_some_and(|run| run < from));
            let Some(limits) = row.limits.filter(|_| is_right && !row.flags.has(Flags::LEARNING)) else {
                continue;
            };
            if !seen.insert(row.context.clone()) {
                continue;
            }
            let limits = Limits {
                center: limits.center,
                sigma: limits.sigma.unwrap_or_default(),
                lcl: limits.lcl,
                ucl: limits.ucl,
            };
            // Limits rarely change from point to point, so each integral is calculated once.
            let key =
                [limits.center, limits.sigma, limits.lcl.unwrap_or(f64::MIN), limits.ucl.unwrap_or(f64::MAX)];
            let truth = model.truth(indicator);
            result.false_expected += *known.entry(key.map(f64::to_bits)).or_insert_with(|| {
                raises_limits(truth, &limits) + raises_ewma(truth, &limits, EWMA_LAMBDA, EWMA_SIGMAS)
            });
        }
    }
    Ok(())
}
