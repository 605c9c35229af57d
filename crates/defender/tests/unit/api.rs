//! The HTTP API: its document, its token, its probes.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::fleet::line::{at, traces};
use crate::fleet::moody::Mood;
use crate::fleet::options;
use crate::fleet::served::{Site, TOKEN};
use jiff::Timestamp;
use phalanx_defender::api::{Api, CollectorApi};
use phalanx_defender::record::Alarm;
use phalanx_defender::{Metrics, Observer};
use phalanx_service::{App, Token};
use phalanx_testkit::wait::until_async;
use serde_json::{Value, json};

/// Every route of a defender, written down a second time: one that comes or goes is seen here.
const ROUTES: [(&str, &str); 27] = [
    ("get", "/api/v1/alarms"),
    ("get", "/api/v1/alarms/{id}"),
    ("post", "/api/v1/alarms/{id}/ack"),
    ("get", "/api/v1/assignments"),
    ("get", "/api/v1/cache/stats"),
    ("get", "/api/v1/chambers"),
    ("post", "/api/v1/chambers"),
    ("get", "/api/v1/chambers/{tool}/{chamber}"),
    ("get", "/api/v1/charts/{tool}/{chamber}"),
    ("post", "/api/v1/charts/{tool}/{chamber}/rebaseline"),
    ("get", "/api/v1/charts/{tool}/{chamber}/{indicator}"),
    ("get", "/api/v1/cluster"),
    ("post", "/api/v1/contexts"),
    ("get", "/api/v1/contexts/{tool}/{chamber}"),
    ("get", "/api/v1/contexts/{tool}/{chamber}/{context}"),
    ("get", "/api/v1/dlq"),
    ("delete", "/api/v1/dlq/{letter}"),
    ("get", "/api/v1/dlq/{letter}"),
    ("post", "/api/v1/dlq/{letter}/replay"),
    ("get", "/api/v1/events"),
    ("post", "/api/v1/scale"),
    ("get", "/api/v1/status"),
    ("get", "/debug/pprof/profile"),
    ("get", "/health/live"),
    ("get", "/health/ready"),
    ("get", "/metrics"),
    ("get", "/openapi.json"),
];

fn routes(app: &App) -> BTreeSet<(String, String)> {
    let document = serde_json::to_value(&app.openapi).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let of_path = |(path, methods): (&String, &Value)| {
        let methods: Vec<String> = methods.as_object().unwrap().keys().cloned().collect();
        methods.into_iter().map(|method| (method, path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of_path).collect()
}

/// Compares with the committed file, or writes it where `UPDATE_OPENAPI` is set.
fn assert_fresh(app: &App, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    let fresh = format!("{:#}\n", serde_json::to_value(&app.openapi).unwrap());
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == fresh,
        "docs/{file} is not what the service says of itself; UPDATE_OPENAPI=1 cargo test -p phalanx-defender --test api writes it"
    );
}

#[test]
fn the_documents_describe_every_route_and_the_committed_files_are_fresh() {
    let defender = Api::new("", Metrics::default()).app(Token::none());
    let known: BTreeSet<(String, String)> =
        ROUTES.iter().map(|(method, path)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(routes(&defender), known);
    assert_fresh(&defender, "openapi-defender.json");
    let collector = CollectorApi::default().app(Token::none());
    assert!(routes(&collector).is_subset(&known));
    assert!(routes(&collector).contains(&("post".to_owned(), "/api/v1/contexts".to_owned())));
    assert_fresh(&collector, "openapi-collector.json");
}

/// Names that are there, so that what stops a request is the token alone.
fn named(path: &str, alarm: &str, letter: &str) -> String {
    path.replace("{tool}", "etch-01")
        .replace("{chamber}", "A")
        .replace("{indicator}", "power")
        .replace("{context}", "run-2")
        .replace("{id}", alarm)
        .replace("{letter}", letter)
}

/// Everything that a request could have changed.
async fn everything(site: &Site) -> String {
    let store = &site.store;
    let alarms = store.alarms(None, Timestamp::UNIX_EPOCH, None, 100).await.unwrap();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?}",
        store.metadata().await.unwrap(),
        store.contexts(&site.chamber, None, 100).await.unwrap(),
        alarms.alarms,
        site.stores.log.info().await.unwrap(),
        site.stores.dead_letters.info().await.unwrap(),
        site.stores.assignments.get("fleet-size").await.unwrap(),
        site.stores.assignments.get("chambers-imported").await.unwrap(),
    )
}

/// A body that the route would take.
fn body(path: &str) -> (&'static str, String) {
    let list = "tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds\netch-09,Z,1,1,1\n";
    match path {
        "/api/v1/chambers" => ("text/csv", list.to_owned()),
        "/api/v1/contexts" => ("text/csv", "time,RF_POWER\n0,500\n".to_owned()),
        "/api/v1/scale" => ("application/json", json!({ "fleetSize": 3 }).to_string()),
        path if path.ends_with("/ack") => ("application/json", json!({ "by": "anna" }).to_string()),
        path if path.ends_with("/rebaseline") => {
            ("application/json", json!({ "contextId": "anew" }).to_string())
        }
        _ => ("application/json", String::new()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_changes_something_needs_the_token_and_nothing_changes_without() {
    let site = Site::new().await;
    let open = site.start("with", Token::new(TOKEN), options(1)).await.ready().await;
    let collector = open.defender.collector();
    collector.submit(&site.chamber, "run-1", at(1), &traces(500.0)).await.unwrap();
    collector.submit(&site.chamber, "run-2", at(2), &traces(600.0)).await.unwrap();
    let notify = phalanx_cluster::backend::AppendCondition::None;
    site.stores.log.append("dc.etch-01.A.completed", "no JSON".into(), notify).await.unwrap();
    let letter = until_async("a dead letter", async || {
        let (_, list) = open.get("/api/v1/dlq").await;
        list["deadLetters"][0]["id"].as_str().map(str::to_owned)
    })
    .await;
    let (_, alarms) = open.get("/api/v1/alarms?since=2025-01-01T00:00:00Z").await;
    let alarm = alarms["alarms"][0]["alarmId"].as_str().unwrap().to_owned();
    // The same fleet, asked through a worker without a token.
    let shut = site.start("without", Token::none(), options(1)).await;
    until_async("it stands by", async || {
        (shut.get("/health/ready").await.1["standby"] == true).then_some(())
    })
    .await;

    let before = everything(&site).await;
    let mut tried = 0;
    for (method, path) in routes(&open.api.app(Token::none())) {
        if method == "get" && path != "/debug/pprof/profile" {
            continue;
        }
        let (kind, body) = body(&path);
        let mut path = named(&path, &alarm, &letter);
        if path == "/api/v1/contexts" {
            path += "?tool=etch-01&chamber=A&context=run-9";
        }
        let method = method.to_uppercase();
        for (served, token, status) in
            [(&open, None, 401), (&open, Some("wrong"), 401), (&shut, None, 403), (&shut, Some(TOKEN), 403)]
        {
            let (answered, why) = served.ask(&method, &path, token, kind, &body).await;
            assert_eq!(answered, status, "{method} {path}: {why}");
            assert!(why["message"].as_str().unwrap().contains("API_TOKEN"), "{why}");
        }
        tried += 1;
    }
    assert_eq!(tried, 8, "seven that change something, and the profile");
    assert_eq!(everything(&site).await, before);

    // With it each does what it says.
    for (method, path) in ROUTES.iter().filter(|(method, _)| *method != "get") {
        let (kind, body) = body(path);
        let mut path = named(path, &alarm, &letter);
        if path == "/api/v1/contexts" {
            path += "?tool=etch-01&chamber=A&context=run-9";
        }
        let (status, answer) = open.ask(&method.to_uppercase(), &path, Some(TOKEN), kind, &body).await;
        // The letter is dropped before it is replayed.
        let expected = if path.ends_with("/replay") { 404..=404 } else { 200..=202 };
        assert!(expected.contains(&status), "{method} {path}: {status} {answer}");
    }
    assert_ne!(everything(&site).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_down_makes_it_unready_and_never_dead() {
    let site = Site::new().await;
    let served = site.start("one", Token::none(), options(1)).await.ready().await;
    for mood in [Mood::Away, Mood::Silent] {
        served.moody.be(mood);
        let (status, ready) = served.get("/health/ready").await;
        assert_eq!(status, 503, "{ready}");
        assert!(ready["store"].as_str().unwrap() != "ok" && ready["broker"] == "ok", "{ready}");
        assert_eq!(served.get("/health/live").await.0, 200);
        // A message that waits for it is not stuck, however long it waits.
        served.moody.be(Mood::Well);
        let submitted =
            served.defender.collector().submit(&site.chamber, "run-1", at(1), &traces(500.0)).await;
        served.moody.be(mood);
        submitted.unwrap();
        until_async("it waits", async || (served.moody.refused() > 0).then_some(())).await;
        assert_eq!(served.live_in(Duration::from_secs(8)), Ok(()));
        served.moody.be(Mood::Well);
        until_async("it is ready again", async || (served.get("/health/ready").await.0 == 200).then_some(()))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_cut_off_from_the_broker_is_degraded_unready_and_alive() {
    let site = Site::new().await;
    let served = site.start("one", Token::none(), options(1)).await.ready().await;
    served.faults.disconnect();
    let ready = until_async("it is degraded", async || {
        let (status, ready) = served.get("/health/ready").await;
        (ready["state"] == "DEGRADED").then_some((status, ready))
    })
    .await;
    assert_eq!(ready.0, 503);
    assert!(ready.1["broker"] != "ok" && ready.1["store"] == "ok", "{}", ready.1);
    assert_eq!(served.get("/health/live").await.0, 200);
    served.faults.reconnect();
    until_async("it is ready again", async || (served.get("/health/ready").await.0 == 200).then_some(()))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_is_ready_and_says_that_it_is_one() {
    let site = Site::new().await;
    let first = site.start("first", Token::none(), options(1)).await.ready().await;
    let second = site.start("second", Token::none(), options(1)).await;
    let ready = until_async("it is ready", async || {
        let (status, ready) = second.get("/health/ready").await;
        (status == 200).then_some(ready)
    })
    .await;
    assert_eq!((&ready["standby"], &ready["idClaimed"]), (&true.into(), &false.into()));
    let (_, cluster) = first.get("/api/v1/cluster").await;
    let is_second = |one: &&Value| one["standby"] == true && one["podName"] == "second";
    assert!(cluster["workers"].as_array().unwrap().iter().find(is_second).is_some(), "{cluster}");
    assert!(second.get("/api/v1/status").await.1["defenderId"].is_null());
    first.defender.shutdown().await;
    let ready = until_async("it takes over", async || {
        let (status, ready) = second.get("/health/ready").await;
        assert_eq!(status, 200, "it stays ready while it takes over: {ready}");
        (ready["standby"] == false).then_some(ready)
    })
    .await;
    assert_eq!(ready["idClaimed"], true);
}

/// Blocks the thread that tells it of an alarm, until it is let go.
struct Blocks(std::sync::Mutex<mpsc::Receiver<()>>, mpsc::Sender<()>);

impl Observer for Blocks {
    fn alarm(&self, _: &Alarm) {
        self.1.send(()).unwrap();
        let _ = self.0.lock().unwrap().recv();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stuck_task_of_the_pipeline_is_named_and_so_is_the_event_loop() {
    let site = Site::new().await;
    let ((go, wait), (entered, inside)) = (mpsc::channel(), mpsc::channel());
    let observer = Arc::new(Blocks(std::sync::Mutex::new(wait), entered));
    let served = site.start_told("one", Token::none(), options(1), |_| observer).await.ready().await;
    assert_eq!(served.live_in(Duration::from_secs(8)), Ok(()));
    served.defender.collector().submit(&site.chamber, "run-1", at(1), &traces(600.0)).await.unwrap();
    tokio::task::spawn_blocking(move || inside.recv().unwrap()).await.unwrap();
    // As it will be seen in eleven seconds, if neither goes on.
    let stuck = served.live_in(Duration::from_secs(11)).unwrap_err();
    assert!(stuck.contains("the pipeline of etch-01:A"), "{stuck}");
    assert!(stuck.contains("the event loop"), "{stuck}");
    assert_eq!(served.live_in(Duration::from_secs(8)), Ok(()));
    drop(go);
    until_async("it goes on", async || (served.defender.handle().stats().processed == 1).then_some(())).await;
    let later = served.live_in(Duration::from_secs(11)).unwrap_err();
    assert!(!later.contains("pipeline"), "{later}");
}
