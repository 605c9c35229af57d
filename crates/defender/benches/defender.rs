//! The defender on one core: its pure part stage by stage, then a whole one in a data folder: `cargo xtask bench defender`.

mod embedded;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;
use phalanx_defender::judge::rows::{Before, Entry};
use phalanx_defender::judge::{History, Run, judge};
use phalanx_defender::record::{Chamber, HISTORY, Mark, Results, UChart};
use phalanx_defender::strategy::Strategy;
use phalanx_defender::traces::{EncodedTraces, Recording, Traces};
use phalanx_testkit::measure::median;

/// Traces of a context as a CSV file: S0 is the step, the others are noise around a level.
fn csv(svids: usize, points: usize, hertz: usize, seed: u64) -> Vec<u8> {
    let mut text = String::from("time");
    (0..svids).for_each(|svid| write!(text, ",S{svid}").expect("a string takes all"));
    for i in 0..points {
        write!(text, "\n{}", i * 1_000_000 / hertz).expect("a string takes all");
        for svid in 0..svids {
            // Noise from the bits of a product: no two neighbours alike, the same in every run of the bench.
            let mixed = (i as u64 + 1 + (seed << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ svid as u64);
            let noise = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
            let value = match svid {
                0 => (i * 8 / points) as f64,
                // Two decimals, as sensors give them.
                _ => ((100.0 + svid as f64 + noise as f64 / (1u64 << 24) as f64) * 100.0).round() / 100.0,
            };
            write!(text, ",{value}").expect("a string takes all");
        }
    }
    text.into_bytes()
}

/// Twenty indicators as a strategy has them: every function, windows, conditions; each on another SVID.
fn strategy(apart: usize) -> Strategy {
    let shapes = [
        "mean(X)",
        "std(X)",
        "max(X) - min(X)",
        "range(X)",
        "mean(X[10s..300s])",
        "slope(X where S0 == 3)",
        "median(X)",
        "quantile(X, 0.95)",
        "area(X)",
        "rms(X)",
        "first(X)",
        "last(X)",
        "mean(X where S0 == 2)",
        "max(X where S0 >= 4)",
        "var(X[20s..])",
        "mean(X where S0 == 1) - mean(X where S0 == 6)",
        "slope(X)",
        "std(X) / mean(X)",
        "max(X[..600s])",
        "mean(X[30s..500s] where S0 == 2)",
    ];
    let mut text = String::from("[[group]]\ntools = [\"*\"]\n");
    for (i, shape) in shapes.iter().enumerate() {
        let equation = shape.replace('X', &format!("S{}", 1 + i * apart));
        let limits = if i % 2 == 0 { "{ baseline = 30 }" } else { "{ baseline = 30, subgroup = 5 }" };
        write!(
            text,
            "[[group.chart]]\nname = \"c{i}\"\nequation = \"{equation}\"\nlimits = {limits}\nrules = [\
             {{ rule = \"limits\", severity = \"critical\" }}, {{ rule = \"nelson\", severity = \"warning\" }}, \
             {{ rule = \"ewma\", severity = \"warning\" }}, {{ rule = \"cusum\", severity = \"warning\" }}]\n"
        )
        .expect("a string takes all");
    }
    Strategy::parse(&text).expect("a good strategy")
}

/// A chamber after many runs.
struct Bench {
    strategy: Strategy,
    chamber: Chamber,
    chunks: EncodedTraces,
    rows: Vec<(UChart, Position, u64)>,
    last: Option<Results>,
    sequence: u64,
}

impl Bench {
    fn new(svids: usize, points: usize, hertz: usize, apart: usize, runs: u64) -> Self {
        // A few different runs, over and over.
        let different: Vec<EncodedTraces> = (0..11)
            .map(|seed| {
                let recording = Recording::from_csv(&csv(svids, points, hertz, seed)).expect("good traces");
                recording.to_chunks().expect("good traces")
            })
            .collect();
        let mut bench = Self {
            strategy: strategy(apart),
            chamber: Chamber::new("etch-01", "A").expect("good names"),
            chunks: different[0].clone(),
            rows: Vec::new(),
            last: None,
            sequence: 0,
        };
        for run in 0..runs {
            bench.chunks.clone_from(&different[(run * 7 % 11) as usize]);
            let results = bench.run();
            let mark = results.mark;
            bench.rows.extend(results.charts.iter().map(|row| (row.clone(), mark.position, mark.take)));
            let surplus = bench.rows.len().saturating_sub(HISTORY * 20);
            bench.rows.drain(..surplus);
            bench.last = Some(results);
            bench.sequence += 1;
        }
        bench
    }

    fn entry(&self) -> Entry {
        let position = Position { generation: 1, sequence: Sequence(self.sequence + 1) };
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        Entry {
            chamber: self.chamber.clone(),
            mark: Mark { position, take: 1, stamp: self.sequence + 1 },
            predecessor: None,
            stream: 1,
            context: format!("ctx_20260101_{:06}", self.sequence).into(),
            timestamp: start + SignedDuration::from_mins(self.sequence as i64),
            strategy: self.strategy.version().clone(),
        }
    }

    fn before(&self) -> Before {
        Before::decode(self.last.as_ref().map(|results| &results.state)).expect("a good state")
    }

    fn traces(&self) -> Traces {
        let charts = self.strategy.charts_for(&self.chamber);
        Traces::decode(&self.chunks, charts.svids()).expect("good chunks")
    }

    /// One message from stored bytes to rows.
    fn run(&self) -> Results {
        let (entry, before, traces) = (self.entry(), self.before(), self.traces());
        let charts = self.strategy.charts_for(&self.chamber);
        let values = traces.evaluate(&charts);
        let history = History::assemble(self.rows.iter().cloned(), &before.history);
        let verdict = judge(run_of(&entry, &values), &charts, &before.state, &history);
        entry.results(&before, verdict)
    }

    fn stages(&self, rounds: usize) -> Vec<(&'static str, Duration)> {
        let charts: Arc<_> = self.strategy.charts_for(&self.chamber);
        let (entry, before, traces) = (self.entry(), self.before(), self.traces());
        let values = traces.evaluate(&charts);
        let history = History::assemble(self.rows.iter().cloned(), &before.history);
        let verdict = judge(run_of(&entry, &values), &charts, &before.state, &history);
        vec![
            ("decode the columns in use", median(rounds, || self.traces())),
            ("20 equations", median(rounds, || traces.evaluate(&charts))),
            ("read the chart state", median(rounds, || self.before())),
            (
                "put the history together (20 × 100 rows)",
                median(rounds, || History::assemble(self.rows.iter().cloned(), &before.history)),
            ),
            (
                "judge (limits, Nelson 1–8, EWMA, CUSUM)",
                median(rounds, || judge(run_of(&entry, &values), &charts, &before.state, &history)),
            ),
            ("make the rows", median(rounds, || entry.results(&before, verdict.clone()))),
            ("all of it", median(rounds, || self.run())),
        ]
    }
}

fn run_of<'a>(entry: &'a Entry, values: &'a [phalanx_spc::equation::Outcome]) -> Run<'a> {
    Run {
        chamber: &entry.chamber,
        context: &entry.context,
        timestamp: entry.timestamp,
        position: entry.mark.position,
        strategy: &entry.strategy,
        values,
    }
}

/// Runs this program again on one core, where there is a way to.
fn on_one_core() -> bool {
    const MARK: &str = "PHALANX_BENCH_ON_ONE_CORE";
    if std::env::var_os(MARK).is_some() {
        return false;
    }
    let Ok(program) = std::env::current_exe() else { return false };
    let status = std::process::Command::new("taskset").args(["-c", "0"]).arg(program).env(MARK, "1").status();
    if status.is_err() {
        println!("no taskset here: the figures are of all cores");
    }
    status.is_ok()
}

/// Different runs of a chamber, as they are stored.
fn runs(svids: usize, points: usize, hertz: usize, count: u64) -> Vec<EncodedTraces> {
    let run = |seed| Recording::from_csv(&csv(svids, points, hertz, seed)).expect("good traces");
    (0..count).map(|seed| run(seed).to_chunks().expect("good traces")).collect()
}

fn main() {
    if on_one_core() {
        return;
    }
    for (what, bench, rounds) in [
        (
            "medium: 100 SVIDs × 1,200 points, 20 indicators (target < 3 ms)",
            Bench::new(100, 1_200, 1, 5, 1_100),
            301,
        ),
        (
            "heavy: 200 SVIDs × 18,000 points, 20 indicators on 20 of them (target < 20 ms)",
            Bench::new(200, 18_000, 10, 9, 40),
            21,
        ),
    ] {
        let stored: usize = bench.chunks.iter().map(Bytes::len).sum();
        println!("{what}");
        println!(
            "  {} chunks, {stored} bytes; chart state {} bytes; {} alarms",
            bench.chunks.len(),
            bench.run().state.state.len(),
            bench.run().alarms.len()
        );
        for (stage, took) in bench.stages(rounds) {
            println!("  {stage:<45} {:>12}", format!("{took:.1?}"));
        }
    }
    let text = csv(100, 1_200, 1, 1);
    let took = median(21, || Recording::from_csv(&text).and_then(|recording| recording.to_chunks()));
    println!("CSV of a medium context to chunks ({} bytes)        {took:.1?}", text.len());
    embedded::measure(embedded::Load {
        what: "\nembedded, medium: 100 SVIDs × 1,200 points, 20 indicators, 10 chambers (target ≥ 300 a second)",
        strategy: strategy(5),
        runs: runs(100, 1_200, 1, 11),
        chambers: 10,
        warm: 500,
        measured: 500,
    });
    embedded::measure(embedded::Load {
        what: "\nembedded, heavy: 200 SVIDs × 18,000 points, 20 indicators on 20 of them, 4 chambers",
        strategy: strategy(9),
        runs: runs(200, 18_000, 10, 3),
        chambers: 4,
        warm: 8,
        measured: 16,
    });
}
