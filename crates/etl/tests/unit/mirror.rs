//! The whole engine against a mirror that misbehaves on demand.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::util::{Answer, Mirror, cve, options, page, page_of, run, run_with};
use phalanx_etl::core::EventKind;
use phalanx_etl::engine::{Command, Engine, ProviderConfig, Summary};
use phalanx_etl::store::Reader;
use serde_json::{Value, json};
use tempfile::TempDir;

fn records(count: usize) -> Vec<Value> {
    (0..count).map(cve).collect()
}

fn scratch() -> (TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let db = dir.path().join("etl.db");
    (dir, db)
}

#[track_caller]
fn assert_run(summary: &Summary, outcome: &str, counts: (i64, i64, i64, i64)) {
    let run = &summary.runs[0];
    let found = (run.read, run.stored, run.unchanged, run.dead_lettered);
    assert_eq!((run.outcome.as_deref(), found), (Some(outcome), counts), "{summary:?}");
}

fn has_record(db: &std::path::Path, n: usize) -> bool {
    let urn = format!("v2e::nvd::cve::CVE-2024-{:05}", 10_000 + n);
    Reader::open(db).expect("a store was made").record(&urn).expect("the store can be read").is_some()
}

#[test]
fn a_storm_of_refusals_and_timeouts_costs_patience_and_no_record() {
    let (_dir, db) = scratch();
    // A page begins with the last record of the one before: five pages of ten hold 46.
    let all = records(46);
    let mirror = Mirror::new(move |request| match request.number % 4 {
        // Each page is refused three times in a row, always in another way.
        n @ 0..=2 => match (request.number / 4 + n) % 5 {
            0 => Answer::Status(403, None),
            1 => Answer::Status(429, Some("0")),
            2 => Answer::Status(502, None),
            3 => Answer::Status(503, None),
            _ => Answer::Hang,
        },
        _ => Answer::Body(page(request, &all, 10)),
    });
    let summary = run(options(&db, &mirror.url));
    assert_run(&summary, "completed", (46, 46, 0, 0));
    assert_eq!(mirror.requests().len(), 20);
    let events = Reader::open(&db).unwrap().events(1000).unwrap();
    let limited = events.iter().filter(|event| event.kind == "RATE_LIMITED").count();
    let expected = (0..15).filter(|n| (n / 3 + n % 3) % 5 <= 1).count();
    assert_eq!(limited, expected, "403 and 429 only");
}

#[test]
fn after_the_retries_the_run_fails_and_the_next_resumes_at_that_page() {
    let (_dir, db) = scratch();
    let all = records(30);
    let ill = Arc::new(AtomicBool::new(true));
    let is_ill = Arc::clone(&ill);
    let mirror = Mirror::new(move |request| {
        if request.start() == 9 && is_ill.load(Ordering::SeqCst) {
            Answer::Status(503, None)
        } else {
            Answer::Body(page(request, &all, 10))
        }
    });
    assert_run(&run(options(&db, &mirror.url)), "failed", (10, 10, 0, 0));
    let first = mirror.requests().len();
    assert_eq!(first, 1 + 4, "one page, then one that is tried once and three times more");
    ill.store(false, Ordering::SeqCst);
    assert_run(&run(options(&db, &mirror.url)), "completed", (20, 20, 0, 0));
    assert_eq!(mirror.requests()[first].start(), 9, "at the last record that is stored");
    let kinds: Vec<_> =
        Reader::open(&db).unwrap().events(1000).unwrap().into_iter().map(|e| e.kind).collect();
    assert!(kinds.contains(&"PROVIDER_FAILED".to_owned()));
}

#[test]
fn an_empty_page_below_the_total_never_moves_the_watermark() {
    let (_dir, db) = scratch();
    let all = records(30);
    let mirror = Mirror::new(move |request| {
        if request.start() == 18 && request.number < 4 {
            Answer::Body(page_of(18, 30, &[], 10))
        } else {
            Answer::Body(page(request, &all, 10))
        }
    });
    assert_run(&run(options(&db, &mirror.url)), "completed", (30, 30, 0, 0));
    assert_eq!(mirror.requests().len(), 6, "the empty page was asked for again, twice");
    assert!(has_record(&db, 29));
}

#[test]
fn a_body_cut_in_the_middle_is_asked_for_again() {
    let (_dir, db) = scratch();
    let all = records(20);
    let mirror = Mirror::new(move |request| {
        let body = page(request, &all, 10);
        if request.number == 1 { Answer::Cut(body) } else { Answer::Body(body) }
    });
    assert_run(&run(options(&db, &mirror.url)), "completed", (20, 20, 0, 0));
    assert_eq!(mirror.requests().len(), 4, "three pages, one of them twice");
}

#[test]
fn a_total_that_changes_between_pages_begins_the_window_anew() {
    let (_dir, db) = scratch();
    let (before, after) = (records(20), records(21));
    let mirror = Mirror::new(move |request| {
        Answer::Body(page(request, if request.number == 0 { &before } else { &after }, 10))
    });
    let summary = run(options(&db, &mirror.url));
    assert_run(&summary, "completed", (31, 21, 10, 0));
    assert!(has_record(&db, 20));
}

#[test]
fn a_record_that_moves_behind_us_while_the_total_stays_is_not_lost() {
    let (_dir, db) = scratch();
    let before = records(30);
    let mut after = before.clone();
    // From the second page to the front: whoever reads on would meet record 9 twice and never record 15.
    let moved = after.remove(15);
    after.insert(0, moved);
    let mirror = Mirror::new(move |request| {
        Answer::Body(page(request, if request.number == 0 { &before } else { &after }, 10))
    });
    let summary = run(options(&db, &mirror.url));
    assert_run(&summary, "completed", (40, 30, 10, 0));
    assert!(has_record(&db, 15));
}

#[test]
fn an_api_that_never_stops_moving_fails_the_run_and_keeps_the_watermark() {
    let (_dir, db) = scratch();
    let mut all = records(30);
    let all = Arc::new(Mutex::new(std::mem::take(&mut all)));
    let mirror = Mirror::new(move |request| {
        let mut all = all.lock().unwrap();
        all.rotate_left(1);
        Answer::Body(page(request, &all, 10))
    });
    let summary = run(options(&db, &mirror.url));
    let run = &summary.runs[0];
    assert_eq!(run.outcome.as_deref(), Some("failed"), "{run:?}");
    assert!(run.reason.as_ref().unwrap().contains("the records moved between pages, 4 times"), "{run:?}");
    let store = rusqlite::Connection::open(&db).unwrap();
    let cursor: String = store.query_row("SELECT cursor FROM cursors", [], |row| row.get(0)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&cursor).unwrap()["watermark"], Value::Null);
}

#[test]
fn one_malformed_record_among_thousands_is_one_dead_letter() {
    let (_dir, db) = scratch();
    let mut all = records(3000);
    all[1234] = json!({"cve": {"id": 1234}});
    let mirror = Mirror::new(move |request| Answer::Body(page(request, &all, 2000)));
    assert_run(&run(options(&db, &mirror.url)), "completed", (3000, 2999, 0, 1));
    let letters = Reader::open(&db).unwrap().dead_letters().unwrap();
    assert_eq!(
        (letters.len(), letters[0].position, letters[0].raw.as_str()),
        (1, 1234, r#"{"cve":{"id":1234}}"#)
    );
    let retried = phalanx_etl::engine::retry(&options(&db, &mirror.url), &[]).unwrap();
    assert_eq!((retried[0].read, retried[0].stored, retried[0].dead_lettered), (1, 0, 1));
    assert_eq!(Reader::open(&db).unwrap().dead_letters().unwrap().len(), 1);
}

#[test]
fn a_gap_of_121_days_is_walked_in_two_windows_with_both_dates() {
    let (_dir, db) = scratch();
    let all = records(3);
    let mirror = Mirror::new(move |request| Answer::Body(page(request, &all, 10)));
    assert_run(&run(options(&db, &mirror.url)), "completed", (3, 3, 0, 0));
    let store = rusqlite::Connection::open(&db).unwrap();
    let cursor: String = store.query_row("SELECT cursor FROM cursors", [], |row| row.get(0)).unwrap();
    let mut cursor: Value = serde_json::from_str(&cursor).unwrap();
    let watermark = cursor["watermark"].as_u64().unwrap();
    cursor["watermark"] = json!(watermark - 121 * 24 * 60 * 60 * 1000);
    store.execute("UPDATE cursors SET cursor = ?1", [cursor.to_string()]).unwrap();
    drop(store);
    assert_run(&run(options(&db, &mirror.url)), "completed", (6, 0, 6, 0));
    let windows: Vec<_> = mirror.requests()[1..]
        .iter()
        .map(|request| (request.query["lastModStartDate"].clone(), request.query["lastModEndDate"].clone()))
        .collect();
    assert_eq!(windows.len(), 2);
    assert!(windows[1].0 < windows[0].1, "they overlap: {windows:?}");
}

#[test]
fn a_second_run_stores_nothing_and_a_changed_record_is_one_version_more() {
    let (_dir, db) = scratch();
    let all = Arc::new(Mutex::new(records(20)));
    let served = Arc::clone(&all);
    let mirror = Mirror::new(move |request| Answer::Body(page(request, &served.lock().unwrap(), 10)));
    run(options(&db, &mirror.url));
    assert_run(&run(options(&db, &mirror.url)), "completed", (20, 0, 20, 0));
    all.lock().unwrap()[7]["cve"]["vulnStatus"] = json!("Rejected");
    assert_run(&run(options(&db, &mirror.url)), "completed", (20, 1, 19, 0));
    let view = Reader::open(&db).unwrap().record("v2e::nvd::cve::CVE-2024-10007").unwrap().unwrap();
    assert_eq!((view.version, view.status.as_deref()), (2, Some("Rejected")));
    assert_eq!(view.versions[0].changed, json!(["status", "raw"]));
}

#[test]
fn a_run_paused_while_running_stays_paused_until_somebody_resumes_it() {
    let (_dir, db) = scratch();
    let all = records(400);
    let asked = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&asked);
    let gate = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
    let opened = Arc::clone(&gate);
    let mirror = Mirror::new(move |request| {
        if seen.fetch_add(1, Ordering::SeqCst) == 1 {
            // The second page waits until the pause is on its way.
            let (open, changed) = &*opened;
            let guard = open.lock().unwrap();
            drop(changed.wait_timeout_while(guard, Duration::from_millis(250), |open| !*open).unwrap());
        }
        Answer::Body(page(request, &all, 100))
    });
    let summary = run_with(options(&db, &mirror.url), |handle, progress| {
        if progress.counts.read == 100 {
            handle.send(Some("cve"), Command::Pause);
            *gate.0.lock().unwrap() = true;
            gate.1.notify_all();
        }
    });
    assert_eq!(summary.paused, ["cve"]);
    assert!(summary.runs[0].outcome.is_none() && summary.runs[0].read < 400, "{summary:?}");
    let reader = Reader::open(&db).unwrap();
    assert_eq!(reader.macro_stats().unwrap().unwrap().state, "ORCHESTRATING");
    assert_eq!(run(options(&db, &mirror.url)).paused, ["cve"], "a restart keeps it paused");
    let mut resumed = options(&db, &mirror.url);
    resumed.resume = true;
    let summary = run(resumed);
    assert_run(&summary, "completed", (400, 400, 0, 0));
    assert_eq!(summary.runs[0].run_id, "cve-1", "it is the same run");
}

#[test]
fn a_pause_during_back_off_is_taken_when_the_back_off_ends() {
    let (_dir, db) = scratch();
    let all = records(20);
    let mirror = Mirror::new(move |request| match request.number {
        0 => Answer::Status(429, None),
        _ => Answer::Body(page(request, &all, 10)),
    });
    let mut patient = options(&db, &mirror.url);
    for provider in &mut patient.providers {
        provider.retry_delay = Duration::from_millis(300);
    }
    let summary = run_with(patient, |handle, progress| {
        if progress.events.iter().any(|(kind, _)| *kind == EventKind::RateLimited) {
            handle.send(None, Command::Pause);
        }
    });
    assert_eq!((summary.paused, mirror.requests().len()), (vec!["cve".to_owned()], 1));
    let history = Reader::open(&db).unwrap().history().unwrap();
    let last = history.iter().rfind(|step| step.machine == "cve").unwrap();
    assert_eq!((last.from.as_str(), last.cause.as_str()), ("ACQUIRING", "pause, as wished"));
}

#[test]
fn a_stop_ends_the_run_and_the_next_one_goes_on_where_it_was() {
    let (_dir, db) = scratch();
    let all = records(400);
    let (stopped, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    let mirror = Mirror::new(move |request| {
        if request.number == 1 {
            // Until the stop is on its way.
            let _ = held.lock().unwrap().recv();
        }
        Answer::Body(page(request, &all, 100))
    });
    let mut stopped = Some(stopped);
    let mut patient = options(&db, &mirror.url);
    patient.timeouts.answer = Duration::from_secs(60);
    let summary = run_with(patient, |handle, progress| {
        if progress.counts.read == 100 {
            handle.send(Some("cve"), Command::Stop);
            stopped = None;
        }
    });
    assert!(stopped.is_none());
    let first = &summary.runs[0];
    assert_eq!(first.outcome.as_deref(), Some("stopped"), "{summary:?}");
    assert!(first.read < 400, "{summary:?}");
    let rest = 400 - first.read;
    assert_run(&run(options(&db, &mirror.url)), "completed", (rest, rest, 0, 0));
}

#[test]
fn a_pause_while_acquiring_takes_effect_at_once() {
    let (_dir, db) = scratch();
    let all = records(20);
    let mirror = Mirror::new(move |request| Answer::Body(page(request, &all, 10)));
    let mut without = options(&db, &mirror.url);
    without.permits.pool = 0;
    let summary = run_with(without, |handle, progress| {
        if progress.events.iter().any(|(kind, _)| *kind == EventKind::ProviderStarted) {
            handle.send(None, Command::Pause);
        }
    });
    assert_eq!((summary.paused, mirror.requests().len()), (vec!["cve".to_owned()], 0));
}

/// Reads nothing: it panics.
struct Bug;

impl phalanx_etl::providers::Provider for Bug {
    fn id(&self) -> &'static str {
        "bug"
    }

    fn upstream(&self) -> &'static str {
        "nowhere"
    }

    fn open(
        &self,
        _: &phalanx_etl::source::Source,
        _: Option<&str>,
        _: &phalanx_etl::source::Context,
    ) -> Result<Box<dyn phalanx_etl::source::Extract>, phalanx_etl::source::Failure> {
        panic!("a bug")
    }

    fn understand(&self, _: &phalanx_etl::Item) -> Result<phalanx_etl::Verdict, phalanx_etl::Reject> {
        panic!("a bug")
    }
}

#[test]
fn a_provider_that_panics_ends_the_engine_with_its_name() {
    let (_dir, db) = scratch();
    let mut options = options(&db, "nowhere");
    options.providers = vec![ProviderConfig::of(Arc::new(Bug))];
    let engine = Engine::new(options).unwrap();
    let error = engine.run(&["bug".to_owned()], &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("provider `bug` has panicked"), "{error}");
}
