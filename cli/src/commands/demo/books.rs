//! The books: what the fab sent against what is read back from the store, and what it knows against what was found.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use phalanx_defender::record::{Alarm, Chamber, Flags, Outcome};
use phalanx_defender::store::ChartStore;
use phalanx_fab::theory::{Limits, poisson_bound, raises_ewma, raises_limits};
use phalanx_fab::{EWMA_LAMBDA, EWMA_SIGMAS, Fab, FaultKind, Indicator};

/// A fault counts as found within this many runs.
const IN_TIME: u64 = 10;

/// A run that was sent.
#[derive(Clone, Debug)]
pub(super) struct Published {
    pub(super) number: usize,
    pub(super) run: u64,
    pub(super) chamber: Chamber,
    pub(super) sequence: u64,
    pub(super) at: Instant,
}

/// Faults of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) injected: u64,
    pub(super) found: u64,
    /// Of those that were found: how many runs it took.
    pub(super) runs: Vec<u64>,
}

/// What there is to say of all of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pub(super) published: u64,
    pub(super) committed: u64,
    pub(super) dead: u64,
    pub(super) lost: u64,
    pub(super) double: u64,
    pub(super) alarms: u64,
    pub(super) kinds: BTreeMap<&'static str, Found>,
    pub(super) large_shifts: Found,
    pub(super) false_alarms: u64,
    pub(super) false_expected: f64,
    pub(super) false_bound: u64,
}

/// Counts everything, from the store alone and from what was sent.
pub(super) async fn count(fab: &Fab, store: &dyn ChartStore, sent: &[Published]) -> Result<Counted> {
    let mut counted = Counted { published: sent.len() as u64, ..Counted::default() };
    let mut runs = HashMap::<usize, u64>::new();
    for one in sent {
        let known = runs.entry(one.number).or_default();
        *known = (*known).max(one.run + 1);
    }
    let long_ago = Timestamp::now() - SignedDuration::from_hours(24);
    for (number, model) in fab.chambers().iter().enumerate() {
        let chamber = Chamber::new(&model.tool, &model.name)?;
        committed(store, &chamber, sent.iter().filter(|one| one.number == number), &mut counted).await?;
        let alarms = store.alarms(Some(&chamber), long_ago, None, 10_000).await?.alarms;
        let alarms: Vec<Alarm> = alarms.into_iter().map(|(alarm, _)| alarm).collect();
        counted.alarms += alarms.len() as u64;
        detected(fab, number, runs.get(&number).copied().unwrap_or_default(), &alarms, &mut counted);
        expected(fab, number, store, &chamber, &mut counted).await?;
    }
    counted.false_bound = poisson_bound(counted.false_expected);
    Ok(counted)
}

async fn committed(
    store: &dyn ChartStore,
    chamber: &Chamber,
    sent: impl Iterator<Item = &Published>,
    counted: &mut Counted,
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
        counted.committed += processed.min(1);
        counted.double += processed.saturating_sub(1);
        counted.dead += dead;
        counted.lost += u64::from(processed == 0 && dead == 0);
    }
    Ok(())
}

/// The number of a run, by its context.
fn run_of(alarm: &Alarm) -> Option<u64> {
    alarm.context.strip_prefix("run-")?.parse().ok()
}

/// Which faults were found, and which alarms were false.
fn detected(fab: &Fab, number: usize, runs: u64, alarms: &[Alarm], counted: &mut Counted) {
    let fault = fab.chambers()[number].fault;
    let on = |alarm: &Alarm, indicator: Indicator| *alarm.indicator == *indicator.name();
    // A chart with a fault is wrong from there on; everything else is right.
    let is_false = |alarm: &&Alarm| {
        !fault.is_some_and(|fault| {
            on(alarm, fault.indicator) && run_of(alarm).is_some_and(|run| run >= fault.from)
        })
    };
    counted.false_alarms += alarms.iter().filter(is_false).count() as u64;
    let Some(fault) = fault.filter(|fault| fault.from + IN_TIME <= runs) else { return };
    let first = alarms
        .iter()
        .filter(|alarm| on(alarm, fault.indicator))
        .filter_map(run_of)
        .filter(|run| *run >= fault.from)
        .min();
    let took = first.map(|run| run - fault.from + 1).filter(|took| *took <= IN_TIME);
    let note = |found: &mut Found| {
        found.injected += 1;
        found.found += u64::from(took.is_some());
        found.runs.extend(took);
    };
    note(counted.kinds.entry(fault.kind.name()).or_default());
    if matches!(fault.kind, FaultKind::Shift(sigmas) if sigmas.abs() >= 2.0) {
        note(&mut counted.large_shifts);
    }
}

/// How many false alarms the rules give by theory: from the truth of the fab and the limits in force at each point.
async fn expected(
    fab: &Fab,
    number: usize,
    store: &dyn ChartStore,
    chamber: &Chamber,
    counted: &mut Counted,
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
            // Limits are the same from point to point: the integral is made once.
            let key =
                [limits.center, limits.sigma, limits.lcl.unwrap_or(f64::MIN), limits.ucl.unwrap_or(f64::MAX)];
            let truth = model.truth(indicator);
            counted.false_expected += *known.entry(key.map(f64::to_bits)).or_insert_with(|| {
                raises_limits(truth, &limits) + raises_ewma(truth, &limits, EWMA_LAMBDA, EWMA_SIGMAS)
            });
        }
    }
    Ok(())
}
