//! A whole defender in a data folder: contexts a second, where the time goes, what memory it takes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use phalanx_cluster::backend::{Backend, Embedded};
use phalanx_cluster::core::Config;
use phalanx_defender::collector::Collector;
use phalanx_defender::names::store_config;
use phalanx_defender::record::{Chamber, Metadata};
use phalanx_defender::store::{ChartStore, Sqlite};
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::traces::EncodedTraces;
use phalanx_defender::worker::{Defender, Options};

/// What is sent.
pub(crate) struct Load {
    pub(crate) what: &'static str,
    pub(crate) strategy: Strategy,
    /// Different runs, over and over.
    pub(crate) runs: Vec<EncodedTraces>,
    pub(crate) chambers: usize,
    pub(crate) warm: u64,
    pub(crate) measured: u64,
}

/// Stores the runs, then starts a defender and looks at how fast it works them off once it is warm.
pub(crate) fn measure(load: Load) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async move {
        let folder = tempfile::tempdir().expect("a folder");
        let store: Arc<dyn ChartStore> =
            Arc::new(Sqlite::open(&folder.path().join("charts.db")).expect("a store"));
        let backend: Arc<dyn Backend> = Arc::new(Embedded::open(folder.path()).expect("a backend"));
        let chambers: Vec<Chamber> = (0..load.chambers)
            .map(|number| Chamber::new("etch-01", &format!("C{number}")).expect("good names"))
            .collect();
        let listed = |chamber: &Chamber| Metadata {
            chamber: chamber.clone(),
            svid_count: 100,
            collection_freq_hz: 1.0,
            context_duration_seconds: 1200.0,
            weight: 120_000,
            last_updated: Timestamp::UNIX_EPOCH,
        };
        store.put_metadata(&chambers.iter().map(listed).collect::<Vec<_>>()).await.expect("a store");
        let log = backend.log(&store_config().log).await.expect("a log");
        let collector = Collector::new(store.clone(), log);
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
        let all = load.warm + load.measured;
        let began = Instant::now();
        for sequence in 0..all {
            let (run, number) = (sequence / load.chambers as u64, sequence as usize % load.chambers);
            let chunks = &load.runs[(run * 7 % load.runs.len() as u64) as usize];
            let at = start + SignedDuration::from_mins(run as i64);
            let context = format!("ctx_20260101_{run:06}");
            collector.submit(&chambers[number], &context, at, chunks).await.expect("it is taken in");
        }
        let taken_in = all as f64 / began.elapsed().as_secs_f64();
        let cluster = Config { fleet_size: Some(1), ..Options::default().cluster };
        let options = Options { cluster, ..Options::default() };
        let holder = Arc::new(Holder::new(load.strategy));
        let defender =
            Defender::start(backend, store, holder, Arc::new(()), options).await.expect("a defender");
        wait(&defender, load.warm).await;
        let (first, began, before) = (processed(&defender), Instant::now(), stages(&defender));
        wait(&defender, all).await;
        let took = began.elapsed();
        let done = processed(&defender) - first;
        let after = stages(&defender);
        let cache = defender.cache().statistics(Instant::now());
        println!("{}", load.what);
        println!("  {:<45} {:>12.0}", "contexts a second", done as f64 / took.as_secs_f64());
        println!("  {:<45} {taken_in:>12.0}", "taken in a second (stored and told)");
        for ((stage, before), (_, after)) in before.iter().zip(after) {
            let mean = Duration::from_secs_f64((after - before) / done as f64);
            println!("  {stage:<45} {:>12}", format!("{mean:.1?}"));
        }
        println!("  {:<45} {:>11.1}%", "cache hits", 100.0 * cache.hit_rate);
        println!("  {:<45} {:>9} kB", "cache", cache.bytes / 1000);
        println!("  {:<45} {:>9} MB", "memory of the process, now", memory("VmRSS:"));
        println!("  {:<45} {:>9} MB", "memory of the process, at most", memory("VmHWM:"));
        defender.shutdown().await;
    });
}

fn processed(defender: &Defender) -> u64 {
    defender.handle().stats().processed
}

async fn wait(defender: &Defender, count: u64) {
    let began = Instant::now();
    while processed(defender) < count {
        assert!(began.elapsed() < Duration::from_secs(300), "{} of {count}", processed(defender));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Seconds spent in each stage so far, waits for others included.
fn stages(defender: &Defender) -> Vec<(&'static str, f64)> {
    let families = defender.handle().metrics().registry().gather();
    let sum = |name: &str| {
        let family = families.iter().find(|family| family.name() == name);
        family.map_or(0.0, |family| family.get_metric()[0].get_histogram().get_sample_sum())
    };
    vec![
        ("reads from the store, each context", sum("defender_cassandra_read_duration_seconds")),
        ("decode, equations, judging, each context", sum("defender_uchart_calculation_duration_seconds")),
        ("write of the rows, shared by many, each", sum("defender_cassandra_write_duration_seconds")),
    ]
}

/// A line of what the kernel knows of this process, in MB.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1000
}
