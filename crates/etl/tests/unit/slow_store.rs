//! The real engine and the real store, slowed down: permits fall, work goes on with fewer, and they return.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::util::stream::Stream;
use phalanx_etl::core::EventKind;
use phalanx_etl::engine::{Engine, Options, Progress, ProviderConfig};
use phalanx_etl::store::Reader;

/// An engine whose store takes as many microseconds per record as the counter says, and looks at its load often.
fn options(db: &Path, providers: Vec<ProviderConfig>, micros: &Arc<AtomicU64>) -> Options {
    let mut options = Options::new(db.to_owned());
    options.providers = providers;
    for provider in &mut options.providers {
        provider.retry_delay = Duration::from_millis(200);
    }
    options.permits.check_every = Duration::from_millis(100);
    let micros = Arc::clone(micros);
    options.brake = Some(Arc::new(move || {
        std::thread::sleep(Duration::from_micros(micros.load(Ordering::SeqCst)));
    }));
    options
}

/// The permits a provider holds after an event, and why, as its detail says: `2 permits, 3 held: …`.
fn held(detail: &str) -> (u32, &str) {
    let (_, rest) = detail.split_once(", ").expect("permits given or taken, then permits held");
    let (held, why) = rest.split_once(" held").expect("permits held");
    (held.parse().expect("a number of permits"), why)
}

/// What somebody who watches has seen of one provider.
#[derive(Default)]
struct Seen {
    held: u32,
    read: u64,
    /// Permits held after each revocation because of slow writes.
    revoked: Vec<u32>,
}

#[derive(Debug, PartialEq)]
enum Phase {
    Healthy,
    Slow,
    Recovering,
    Recovered,
    Over,
}

#[test]
fn a_store_of_50_ms_a_record_lowers_concurrency_then_stops_everybody_and_throughput_returns() {
    const MEASURED: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    let len = Arc::new(AtomicU64::new(u64::MAX));
    let micros = Arc::new(AtomicU64::new(1_000));
    let providers = vec![Stream::config("a", &len, 1), Stream::config("b", &len, 1)];
    let engine = Engine::new(options(&db, providers, &micros)).unwrap();

    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    let mut phase = Phase::Healthy;
    let mut begin: Option<(Instant, BTreeMap<String, u64>)> = None;
    let mut rates = Vec::new();
    let mut shares = BTreeMap::new();
    let mut watch = |progress: Progress| {
        let one = seen.entry(progress.provider).or_default();
        one.read = progress.counts.read;
        for (kind, detail) in &progress.events {
            match kind {
                EventKind::QuotaGranted => one.held = held(detail).0,
                EventKind::QuotaRevoked => {
                    let (left, why) = held(detail);
                    one.held = left;
                    if phase == Phase::Slow && why.contains("writes take") {
                        one.revoked.push(left);
                    }
                }
                _ => {}
            }
        }
        let read = || seen.iter().map(|(id, one)| (id.clone(), one.read)).collect::<BTreeMap<_, _>>();
        let all_hold = |permits| seen.len() == 2 && seen.values().all(|one| one.held == permits);
        match phase {
            Phase::Healthy | Phase::Recovered => {
                let (start, before) = begin.get_or_insert_with(|| (Instant::now(), read()));
                let written: BTreeMap<_, _> = read()
                    .into_iter()
                    .map(|(id, count)| (id.clone(), count - before.get(&id).copied().unwrap_or_default()))
                    .collect();
                if written.values().sum::<u64>() >= MEASURED && seen.len() == 2 {
                    rates.push(MEASURED as f64 / start.elapsed().as_secs_f64());
                    begin = None;
                    if phase == Phase::Healthy {
                        micros.store(50_000, Ordering::SeqCst);
                        phase = Phase::Slow;
                    } else {
                        shares = written;
                        len.store(0, Ordering::SeqCst);
                        phase = Phase::Over;
                    }
                }
            }
            Phase::Slow if all_hold(0) => {
                micros.store(1_000, Ordering::SeqCst);
                phase = Phase::Recovering;
            }
            Phase::Recovering if all_hold(5) => phase = Phase::Recovered,
            Phase::Slow | Phase::Recovering | Phase::Over => {}
        }
    };
    let summary = engine.run(&["a".to_owned(), "b".to_owned()], &mut watch).unwrap();

    assert!(summary.runs.iter().all(|run| run.outcome.as_deref() == Some("completed")), "{summary:?}");
    for (id, one) in &seen {
        let fell = one.revoked.iter().position(|left| *left == 0).expect("the last permit was taken");
        let before = &one.revoked[..fell];
        assert!(before.len() >= 2 && before.is_sorted_by(|a, b| a > b), "{id} fell by {:?}", one.revoked);
    }
    let reader = Reader::open(&db).unwrap();
    for id in ["a", "b"] {
        let steps: Vec<_> = reader.history().unwrap().into_iter().filter(|step| step.machine == id).collect();
        let stopped = steps.iter().find(|step| step.to == "WAITING_QUOTA").expect("it had to wait");
        assert_eq!(
            (stopped.from.as_str(), stopped.cause.as_str()),
            ("RUNNING", "the last permit was revoked")
        );
    }
    let stats = reader.providers().unwrap();
    assert!(stats.iter().all(|one| one.permits_revoked >= 5 && one.permits_why.is_some()), "{stats:?}");
    let (least, most) = (shares.values().min().unwrap(), shares.values().max().unwrap());
    assert!(most - least <= most / 10, "the two share within a tenth: {shares:?}");
    assert!(rates[1] * 2.0 > rates[0], "throughput returned: {rates:?} records/s before and after");
}

#[test]
fn a_queue_above_four_fifths_revokes_until_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    let len = Arc::new(AtomicU64::new(u64::MAX));
    // Slow enough to fill a short queue; how slow each write is does not matter here.
    let micros = Arc::new(AtomicU64::new(20_000));
    let mut options = options(&db, vec![Stream::config("a", &len, 1)], &micros);
    options.queue_len = 4;
    options.permits.write_latency_max = Duration::MAX;
    let mut fell = Vec::new();
    Engine::new(options)
        .unwrap()
        .run(&["a".to_owned()], &mut |progress| {
            for (kind, detail) in &progress.events {
                if *kind == EventKind::QuotaRevoked && detail.contains("queue is") {
                    fell.push(held(detail).0);
                }
            }
            if fell.len() >= 3 {
                len.store(0, Ordering::SeqCst);
            }
        })
        .unwrap();
    assert_eq!(fell[..3], [8, 6, 4]);
    let history = Reader::open(&db).unwrap().history().unwrap();
    assert!(history.iter().all(|step| step.to != "WAITING_QUOTA"), "with fewer permits it goes on");
}

#[test]
fn healthy_bulk_loading_never_revokes_itself() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    let len = Arc::new(AtomicU64::new(10_000));
    let mut options = Options::new(db.clone());
    options.providers = vec![Stream::config("a", &len, 100), Stream::config("b", &len, 100)];
    options.permits.check_every = Duration::from_millis(20);
    let summary = Engine::new(options).unwrap().run(&["a".to_owned(), "b".to_owned()], &mut |_| {}).unwrap();
    assert_eq!(summary.runs.iter().map(|run| run.stored).sum::<i64>(), 20_000);
    let revoked: Vec<_> = Reader::open(&db)
        .unwrap()
        .events(usize::MAX >> 1)
        .unwrap()
        .into_iter()
        .filter(|event| event.kind == "QUOTA_REVOKED" && !event.detail.contains("waits for its share"))
        .collect();
    assert!(revoked.is_empty(), "{revoked:?}");
}

#[test]
fn the_length_of_the_event_queue_is_what_the_macro_machine_has_not_taken_yet() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    let len = Arc::new(AtomicU64::new(u64::MAX));
    let mut options = Options::new(db.clone());
    options.providers = vec![Stream::config("a", &len, 100)];
    let queue_len = || Reader::open(&db).unwrap().macro_stats().unwrap().unwrap().event_queue_len;
    let mut longest = 0;
    Engine::new(options)
        .unwrap()
        .run(&["a".to_owned()], &mut |progress| {
            if longest == 0 && progress.events.iter().any(|(kind, _)| *kind == EventKind::Checkpoint) {
                // Whoever watches holds the macro machine up, while the store takes event after event.
                while longest < 20 {
                    longest = longest.max(queue_len());
                }
                len.store(0, Ordering::SeqCst);
            }
        })
        .unwrap();
    assert!(longest >= 20, "{longest}");
    assert_eq!(queue_len(), 0, "at the end everything was taken");
}
