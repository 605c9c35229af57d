//! What the stores and the cache cost. Medians of several rounds; `cargo bench -p phalanx-defender --bench store`.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;
use phalanx_defender::cache::{Cache, SIZE_MB};
use phalanx_defender::record::{
    Chamber, Context, Flags, HISTORY, Limits, Mark, Outcome, Past, Results, StateRow, UChart,
};
use phalanx_defender::store::{ChartStore, Sqlite};
use phalanx_testkit::measure::median;

const INDICATORS: usize = 20;
const STATE_BYTES: usize = 32_000;
const CHAMBERS: usize = 10;
const ROUNDS: usize = 5;
const GENERATION: u64 = 1_700_000_000_000_000;

fn results(chamber: &Chamber, sequence: u64) -> Results {
    let position = |sequence| Position::new(GENERATION, Sequence(sequence));
    let mark = Mark { position: position(sequence), take: 1, stamp: 1_800_000_000_000_000 + sequence };
    let timestamp =
        Timestamp::from_millisecond(1_800_000_000_000 + sequence.cast_signed()).unwrap_or_default();
    let context: Arc<str> = format!("ctx_20261116_{sequence:08}").into();
    let strategy: Arc<str> = "a2f1c09e55d0b7aa".into();
    let past = |sequence| Past {
        context: format!("ctx_20261116_{sequence:08}").into(),
        generation: GENERATION,
        sequence,
        take: 1,
    };
    let point = |i: usize| UChart {
        indicator: format!("indicator_{i:02}").into(),
        timestamp,
        context: context.clone(),
        value: Some(sequence as f64 / (i + 1) as f64),
        limits: Some(Limits { center: 1.0, lcl: Some(0.5), ucl: Some(1.5), sigma: Some(0.1) }),
        n: 25,
        flags: Flags::default(),
        strategy: strategy.clone(),
    };
    Results {
        chamber: chamber.clone(),
        mark,
        charts: (0..INDICATORS).map(point).collect(),
        alarms: Vec::new(),
        context: Context {
            position: mark.position,
            take: 1,
            context: context.clone(),
            timestamp,
            strategy: strategy.clone(),
            outcome: Outcome::Processed,
        },
        state: StateRow {
            mark,
            predecessor: (sequence > 1).then(|| position(sequence - 1)),
            context: context.clone(),
            stream: 1,
            history: (1..=sequence).rev().take(HISTORY).map(past).collect(),
            state: vec![7; STATE_BYTES],
        },
    }
}

fn chambers() -> Vec<Chamber> {
    (0..CHAMBERS).filter_map(|n| Chamber::new("etch-01", &format!("c{n}")).ok()).collect()
}

/// Contexts a second, with so many chambers writing side by side, each in order.
fn writes(runtime: &tokio::runtime::Runtime, at_once: usize) -> f64 {
    const CONTEXTS: u64 = 100;
    let folder = tempfile::tempdir().expect("a folder");
    let store = Sqlite::open(&folder.path().join("charts.db")).expect("a store");
    let mut done = 0;
    let round = async |first: u64| {
        let tasks = chambers().into_iter().take(at_once).map(|chamber| {
            let store = store.clone();
            tokio::spawn(async move {
                for i in 1..=CONTEXTS {
                    store.write(&results(&chamber, first + i)).await.expect("written");
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("it ends");
        }
    };
    let took = median(ROUNDS, || {
        runtime.block_on(round(done));
        done += CONTEXTS;
    });
    at_once as f64 * CONTEXTS as f64 / took.as_secs_f64()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!("{INDICATORS} indicators, {HISTORY} runs of history, {STATE_BYTES} bytes of chart state");
    for at_once in [1, CHAMBERS] {
        let rate = writes(&runtime, at_once);
        println!("SQLite file, {at_once:2} chambers at once: {rate:8.0} contexts/s");
    }
    let (now, chambers) = (Instant::now(), chambers());
    let cache = Cache::new(now, SIZE_MB).expect("a cache");
    let position = |sequence| Position::new(GENERATION, Sequence(sequence));
    let ready: Vec<Vec<Results>> = (1..=2 * HISTORY as u64)
        .map(|sequence| chambers.iter().map(|chamber| results(chamber, sequence)).collect())
        .collect();
    let mut sequence = 0;
    let mut commit = || {
        for results in &ready[sequence] {
            cache.stage(results);
            cache.commit(&results.chamber, results.mark.position);
        }
        sequence += 1;
    };
    (0..HISTORY).for_each(|_| commit());
    let each = CHAMBERS as u32;
    println!("cache, stage and commit: {:?}", median(50, commit) / each);
    let hit = median(50, || {
        for chamber in &chambers {
            black_box(cache.get(now, chamber, position(sequence as u64)).expect("a hit"));
        }
    });
    println!("cache, a hit: {:?}", hit / each);
    let cached = cache.get(now, &chambers[0], position(sequence as u64)).expect("a hit");
    let points = median(50, || cached.points("indicator_07"));
    println!("cache, {HISTORY} points of a chart unpacked: {points:?}");
    println!("cache: {:?}", cache.statistics(now));
}
