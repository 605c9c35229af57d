//! Defenders in this process, fed by the simulated fab, and a recomputation of everything they store.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

pub(crate) mod line;
pub(crate) mod moody;
pub(crate) mod paused;
pub(crate) mod served;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use phalanx_cluster::backend::Backend;
use phalanx_cluster::core::{Config, Position};
use phalanx_defender::judge::rows::{Before, Entry};
use phalanx_defender::judge::{self, History};
use phalanx_defender::notification::{Message, Notification};
use phalanx_defender::record::{Alarm, Chamber, Mark, Outcome, Results, UChart};
use phalanx_defender::store::ChartStore;
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::traces::{EncodedTraces, Recording, Series, Traces};
use phalanx_defender::worker::{Defender, Options};
use phalanx_fab::{Fab, STRATEGY};

/// As in production, five times as fast.
pub(crate) fn options(fleet_size: u32) -> Options {
    let ms = Duration::from_millis;
    let cluster = Config {
        heartbeat_interval: ms(400),
        lease_term: ms(2000),
        lease_renewal: ms(1000),
        claim_expiry: ms(6000),
        cold_start_window: ms(6000),
        scale_window: ms(1000),
        replacement_grace_period: ms(9000),
        poll_interval: ms(2000),
        fleet_size: Some(fleet_size),
        ..Options::default().cluster
    };
    Options { cluster, ..Options::default() }
}

pub(crate) fn strategy() -> Arc<Holder> {
    Arc::new(Holder::new(Strategy::parse(STRATEGY).unwrap()))
}

pub(crate) async fn start(
    backend: &Arc<dyn Backend>,
    store: &Arc<dyn ChartStore>,
    options: Options,
) -> Defender {
    Defender::start(backend.clone(), store.clone(), strategy(), Arc::new(()), options).await.unwrap()
}

pub(crate) fn chamber(fab: &Fab, number: usize) -> Chamber {
    let chamber = &fab.chambers()[number];
    Chamber::new(&chamber.tool, &chamber.name).unwrap()
}

/// The traces of a run of the fab, as they are stored.
pub(crate) fn chunks(fab: &Fab, number: usize, run: u64) -> (String, EncodedTraces) {
    let run = fab.run(number, run);
    let series = run.traces.into_iter().map(|trace| Series {
        svid: trace.svid,
        timestamps: run.times_us.clone(),
        values: trace.values,
    });
    (run.context, Recording::from_series(series).unwrap().to_chunks().unwrap())
}

/// When a run of the fab ended.
pub(crate) fn time(run: u64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start + SignedDuration::from_mins(run as i64)
}

pub(crate) async fn submit(defender: &Defender, fab: &Fab, number: usize, run: u64) {
    let (context, chunks) = chunks(fab, number, run);
    defender.collector().submit(&chamber(fab, number), &context, time(run), &chunks).await.unwrap();
}

/// What a chamber's rows must be, from its T-charts and the strategy alone.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Recomputed {
    pub(crate) charts: BTreeMap<(Arc<str>, Arc<str>), UChart>,
    pub(crate) alarms: BTreeMap<Arc<str>, Alarm>,
    pub(crate) state: Vec<u8>,
}

/// Judges the runs of a chamber one after the other, in one process, without store, cache or cursor. Where their
/// notifications stand in the log is given: what the charts remember names it.
pub(crate) fn recompute(
    fab: &Fab,
    number: usize,
    runs: impl IntoIterator<Item = (u64, Position)>,
) -> Recomputed {
    let strategy = Strategy::parse(STRATEGY).unwrap();
    let chamber = chamber(fab, number);
    let charts = strategy.charts_for(&chamber);
    let mut recomputed = Recomputed::default();
    let mut last: Option<Results> = None;
    let mut rows: Vec<(UChart, Position, u64)> = Vec::new();
    for (run, position) in runs {
        let (context, chunks) = chunks(fab, number, run);
        let notification = Notification::new(chamber.clone(), &context, time(run)).unwrap();
        let message = Message::parse(&notification.to_json(), &chamber).unwrap();
        let values = Traces::decode(&chunks, charts.svids()).unwrap().evaluate(&charts);
        let entry = Entry {
            chamber: chamber.clone(),
            mark: Mark { position, take: 1, stamp: position.sequence.0 },
            predecessor: last.as_ref().map(|last| last.mark.position),
            stream: 1,
            context: message.context().clone(),
            timestamp: message.timestamp(),
            strategy: strategy.version().clone(),
        };
        let before = Before::decode(last.as_ref().map(|last| &last.state)).unwrap();
        let history = History::assemble(rows.iter().cloned(), &before.history);
        let run = judge::Run {
            chamber: &chamber,
            context: &entry.context,
            timestamp: entry.timestamp,
            position,
            strategy: &entry.strategy,
            values: &values,
        };
        let results = entry.results(&before, judge::judge(run, &charts, &before.state, &history));
        for row in &results.charts {
            rows.push((row.clone(), position, 1));
            recomputed.charts.insert((row.indicator.clone(), row.context.clone()), row.clone());
        }
        for alarm in &results.alarms {
            recomputed.alarms.insert(alarm.id.clone(), alarm.clone());
        }
        last = Some(results);
    }
    recomputed.state = last.map(|last| last.state.state).unwrap_or_default();
    recomputed
}

/// What the store shows of a chamber, as a reader sees it: rows of attempts that do not count are left out.
pub(crate) async fn stored(store: &dyn ChartStore, chamber: &Chamber) -> (Recomputed, Vec<Outcome>) {
    let contexts = store.contexts(chamber, None, 10_000).await.unwrap();
    let counts: HashMap<(Position, Arc<str>), u64> =
        contexts.iter().map(|one| ((one.position, one.context.clone()), one.take)).collect();
    let mut recomputed = Recomputed::default();
    for indicator in store.indicators(chamber).await.unwrap() {
        for (row, position, take) in store.u_charts(chamber, &indicator, None, 10_000).await.unwrap() {
            if counts.get(&(position, row.context.clone())) == Some(&take) {
                recomputed.charts.insert((row.indicator.clone(), row.context.clone()), row);
            }
        }
    }
    let since = "2020-01-01T00:00:00Z".parse().unwrap();
    let page = store.alarms(Some(chamber), since, None, 10_000).await.unwrap();
    recomputed.alarms = page.alarms.into_iter().map(|(alarm, _)| (alarm.id.clone(), alarm)).collect();
    let newest = contexts.first().map(|one| one.position);
    if let Some(newest) = newest {
        recomputed.state = store.state_at(chamber, newest).await.unwrap().unwrap().state;
    }
    (recomputed, contexts.iter().map(|one| one.outcome).collect())
}

/// Where the notification of each run stands that was processed.
async fn positions(store: &dyn ChartStore, chamber: &Chamber) -> HashMap<Arc<str>, Position> {
    let contexts = store.contexts(chamber, None, 10_000).await.unwrap();
    let processed = contexts.into_iter().filter(|one| one.outcome == Outcome::Processed);
    processed.map(|one| (one.context, one.position)).collect()
}

/// Every run was processed, once and in order: none is lost, none is double, none is dead.
pub(crate) async fn assert_each_once(store: &dyn ChartStore, fab: &Fab, number: usize, runs: u64) {
    let chamber = chamber(fab, number);
    let mut contexts = store.contexts(&chamber, None, 10_000).await.unwrap();
    contexts.reverse();
    let found: Vec<(&str, Outcome)> = contexts.iter().map(|one| (&*one.context, one.outcome)).collect();
    let names: Vec<String> = (0..runs).map(|run| fab.run(number, run).context).collect();
    let expected: Vec<(&str, Outcome)> = names.iter().map(|name| (&**name, Outcome::Processed)).collect();
    assert_eq!(found, expected, "the runs of {chamber}");
}

/// Everything stored of a chamber is what its T-charts and the strategy give. Says how many alarms that are.
pub(crate) async fn assert_as_recomputed(
    store: &dyn ChartStore,
    fab: &Fab,
    number: usize,
    runs: u64,
) -> usize {
    let chamber = chamber(fab, number);
    let (stored, _) = stored(store, &chamber).await;
    let positions = positions(store, &chamber).await;
    let runs = (0..runs).map(|run| (run, positions[&*fab.run(number, run).context]));
    let expected = recompute(fab, number, runs);
    // Not the whole of it in a message: the first difference says enough.
    assert_eq!(stored.charts.len(), expected.charts.len(), "points of {chamber}");
    for (key, row) in &expected.charts {
        assert_eq!(stored.charts.get(key), Some(row), "{chamber} {key:?}");
    }
    assert_eq!(stored.alarms, expected.alarms, "alarms of {chamber}");
    assert!(stored.state == expected.state, "the chart state of {chamber}");
    expected.alarms.len()
}
