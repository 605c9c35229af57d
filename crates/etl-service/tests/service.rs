//! The service end to end: a mirror of all seven feeds over our own fixtures, asked over HTTP.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

mod util;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::time::Duration;

use phalanx_etl_service::METRICS;
use phalanx_testkit::wait::until;
use serde_json::{Value, json};
use util::{Running, Setup};

const ORDER: [&str; 7] = ["asvs", "cce", "cwe", "capec", "attack", "cve", "ssg"];

fn states(tree: &Value) -> BTreeSet<&str> {
    tree["providers"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect()
}

/// Waits until every provider has completed a run.
fn all_done(running: &Running) -> Value {
    until("all seven have completed", || {
        let tree = running.get("/api/v1/etl/tree").1;
        let done = |one: &Value| {
            one["state"] == "TERMINATED"
                && one["last_outcome"].as_str().is_some_and(|o| o.starts_with("completed"))
        };
        tree["providers"].as_array()?.iter().all(done).then_some(tree)
    })
}

#[test]
fn start_all_follows_the_dependencies_and_everything_can_be_asked_afterwards() {
    let setup = Setup::new();
    let running = setup.start();
    let tree = running.get("/api/v1/etl/tree").1;
    assert_eq!((states(&tree), &tree["macro"]["state"]), (BTreeSet::from(["IDLE"]), &json!("BOOTSTRAPPING")));

    let (status, done) = running.post("/api/v1/etl/providers/all/start");
    assert_eq!(status, 200, "{done}");
    let accepted: Vec<&str> =
        done["accepted"].as_array().unwrap().iter().map(|one| one["provider"].as_str().unwrap()).collect();
    assert_eq!(accepted, ORDER);
    let tree = all_done(&running);
    assert_eq!(tree["macro"]["provider_states"], json!({ "TERMINATED": 7 }));
    until("it stabilizes", || {
        (running.get("/api/v1/etl/tree").1["macro"]["state"] == "STABILIZING").then_some(())
    });

    // Whoever depends on another began after that one had completed.
    let events = running.get("/api/v1/etl/events?limit=10000").1;
    let at = |provider: &str, kind: &str| {
        let of = |event: &&Value| event["provider"] == provider && event["kind"] == kind;
        events["events"].as_array().unwrap().iter().find(of).unwrap()["seq"].as_i64().unwrap()
    };
    for (dependent, needed) in [("capec", "cwe"), ("cve", "cwe"), ("attack", "capec")] {
        assert!(
            at(needed, "PROVIDER_COMPLETED") < at(dependent, "PROVIDER_STARTED"),
            "{dependent} after {needed}"
        );
    }

    // One provider, its checkpoints, its records, words, paths.
    let (_, cwe) = running.get("/api/v1/etl/providers/cwe");
    assert_eq!((&cwe["dependencies"], cwe["runs"].as_array().unwrap().len()), (&json!([]), 1));
    assert_eq!(running.get("/api/v1/etl/providers/cve").1["dependencies"], json!(["cwe"]));
    let checkpoints = running.get("/api/v1/etl/checkpoints").1;
    let checkpoint = checkpoints["checkpoints"][0].as_object().unwrap();
    let fields: BTreeSet<&str> = checkpoint.keys().map(String::as_str).collect();
    assert_eq!(fields, BTreeSet::from(["URN", "ProviderID", "ProcessedAt", "Success"]));
    let (_, hits) = running.get("/api/v1/etl/search?q=door&type=cwe,capec&limit=3");
    let urn = hits["hits"][0]["urn"].as_str().unwrap();
    assert_eq!(running.get(&format!("/api/v1/etl/records/{urn}")).1["urn"], urn);
    let (status, paths) = running.get("/api/v1/etl/path?from=CVE-2024-1000&to=attack");
    assert_eq!(status, 200, "{paths}");
    assert_eq!(paths["tree"]["urn"], "v2e::nvd::cve::CVE-2024-1000");
    assert!(paths["count"].as_i64().unwrap() > 0, "{paths}");

    for (path, status) in [
        ("/api/v1/etl/providers/nope", 404),
        ("/api/v1/etl/records/v2e::nvd::cve::CVE-1999-0001", 404),
        ("/api/v1/etl/records/nonsense", 400),
        ("/api/v1/etl/search?q=door&since=yesterday", 400),
        ("/api/v1/etl/search?q=door&type=nope", 400),
        ("/api/v1/etl/search", 400),
        ("/api/v1/etl/path?from=CVE-2024-1000&to=ssg", 400),
        ("/api/v1/etl/checkpoints?limit=0", 400),
    ] {
        assert_eq!(running.get(path).0, status, "{path}");
    }
    running.stop();
}

#[test]
fn statistics_have_the_names_of_the_design() {
    let setup = Setup::new();
    let running = setup.start();
    let tree = running.get("/api/v1/etl/tree").1;
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let list: toml::Table = phalanx_testkit::requirements().parse().unwrap();
    let designed = |owner: &str| -> BTreeSet<String> {
        let of = |entry: &&toml::Value| entry["owner"].as_str() == Some(owner);
        let all = list["statistic"].as_array().unwrap().iter();
        all.filter(of).map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&tree["macro"]), designed("macro"));
    assert_eq!(designed("provider").len(), 9);
    for provider in tree["providers"].as_array().unwrap() {
        let missing: Vec<_> = designed("provider").difference(&names(provider)).cloned().collect();
        assert_eq!(missing, Vec::<String>::new(), "{provider}");
    }
    running.stop();
}

#[test]
fn a_run_is_paused_resumed_and_stopped_and_what_makes_no_sense_is_refused() {
    let setup = Setup::new().with_slow_cve();
    let running = setup.start();
    assert_eq!(running.post("/api/v1/etl/providers/cve/pause").0, 409);
    let (status, done) = running.post("/api/v1/etl/providers/cve/start");
    let cwe = json!([{ "provider": "cwe", "needed_by": "cve" }, { "provider": "cve" }]);
    assert_eq!((status, &done["accepted"]), (200, &cwe), "{done}");
    let state = |wanted: &str| {
        until(wanted, || {
            let cve = running.get("/api/v1/etl/providers/cve").1;
            (cve["state"] == wanted && (wanted != "RUNNING" || cve["processed_count"].as_i64()? > 0))
                .then_some(cve)
        })
    };
    state("RUNNING");
    let (status, refused) = running.post("/api/v1/etl/providers/cve/start");
    assert_eq!((status, refused["error"].as_str()), (409, Some("conflict")));
    assert!(
        refused["message"].as_str().unwrap().contains("cve: `start` is refused: the provider is"),
        "{refused}"
    );
    assert_eq!(running.post("/api/v1/etl/providers/cve/pause").0, 200);
    let paused = state("PAUSED");
    assert_eq!(running.get("/api/v1/etl/tree").1["macro"]["state"], "ORCHESTRATING");
    assert_eq!(running.post("/api/v1/etl/providers/cve/resume").0, 200);
    until("it reads on", || {
        let cve = running.get("/api/v1/etl/providers/cve").1;
        (cve["processed_count"].as_i64() > paused["processed_count"].as_i64()).then_some(())
    });
    let (status, done) = running.post("/api/v1/etl/providers/all/stop");
    assert_eq!((status, done["accepted"][0]["provider"].as_str()), (200, Some("cve")), "{done}");
    assert_eq!(done["refused"].as_array().unwrap().len(), 6);
    assert_eq!(state("TERMINATED")["last_outcome"], "stopped");
    assert_eq!(running.post("/api/v1/etl/providers/nope/start").0, 404);
    running.stop();
}

#[test]
fn steering_needs_the_token_and_reading_does_not() {
    let setup = Setup::new();
    let running = setup.start();
    for action in ["start", "pause", "resume", "stop"] {
        for id in ["cve", "all"] {
            let path = format!("/api/v1/etl/providers/{id}/{action}");
            assert_eq!(running.ask("POST", &path, None).0, 401, "{path}");
            assert_eq!(running.ask("POST", &path, Some("wrong")).0, 401, "{path}");
        }
    }
    assert_eq!(states(&running.get("/api/v1/etl/tree").1), BTreeSet::from(["IDLE"]));
    running.stop();
}

#[test]
fn events_are_streamed_as_they_come() {
    let setup = Setup::new();
    let running = setup.start();
    let url = format!("{}/api/v1/etl/events", running.url);
    let response = ureq::get(&url).header("accept", "text/event-stream").call().unwrap();
    assert_eq!(running.post("/api/v1/etl/providers/cwe/start").0, 200);
    let mut kinds = Vec::new();
    for line in BufReader::new(response.into_body().into_reader()).lines() {
        if let Some(kind) = line.unwrap().strip_prefix("event: ") {
            kinds.push(kind.to_owned());
            if kind == "PROVIDER_COMPLETED" {
                break;
            }
        }
    }
    assert_eq!(kinds.first().map(String::as_str), Some("PROVIDER_STARTED"));
    assert!(kinds.contains(&"QUOTA_GRANTED".to_owned()), "{kinds:?}");
    running.stop();
}

#[test]
fn a_feed_is_read_when_its_schedule_says_so_and_one_that_does_not_complete_is_reported() {
    let mut setup = Setup::new();
    setup.plan("asvs", "1s", Duration::from_secs(3_600));
    setup.plan("cce", "never", Duration::from_millis(1));
    let running = setup.start();
    until("asvs has been read twice", || {
        let runs = running.get("/api/v1/etl/providers/asvs").1["runs"].as_array()?.len();
        (runs >= 2).then_some(())
    });
    let tree = running.get("/api/v1/etl/tree").1;
    let feed = |id: &str| {
        let all = tree["providers"].as_array().unwrap();
        all.iter().find(|one| one["id"] == id).unwrap()["feed"].clone()
    };
    assert_eq!((&feed("asvs")["stale"], &feed("asvs")["schedule"]), (&json!(false), &json!("1s")));
    assert_eq!((&feed("cce")["stale"], &feed("cce")["next_start"]), (&json!(true), &Value::Null));
    let metrics = running.text("/metrics");
    assert!(
        metrics.contains(r#"etl_stale{provider="cce"} 1"#)
            && metrics.contains(r#"etl_stale{provider="asvs"} 0"#)
    );
    assert!(metrics.contains(r#"etl_stale_total{provider="cce"} 1"#));
    let said = running.said();
    assert!(said.iter().any(|line| line.starts_with("error: cce is stale:")), "{said:?}");
    assert!(said.iter().any(|line| line == "scheduled: asvs"), "{said:?}");
    running.stop();
}

#[test]
fn every_metric_that_is_promised_is_there_and_no_other() {
    let setup = Setup::new();
    let running = setup.start();
    running.post("/api/v1/etl/providers/all/start");
    all_done(&running);
    // Requests are only made where a source is a URL.
    let text = until("the steps are counted", || {
        let text = running.text("/metrics");
        text.contains(r#"etl_transitions_total{from="ORCHESTRATING",machine="macro",to="STABILIZING"} 1"#)
            .then_some(text)
    });
    let served: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let promised: BTreeSet<&str> = METRICS.iter().map(|(name, _)| *name).collect();
    let missing: Vec<_> = promised.difference(&served).copied().collect();
    assert_eq!(missing, ["etl_fetches_total"], "nothing was fetched over HTTP here");
    assert_eq!(served.difference(&promised).collect::<Vec<_>>(), Vec::<&&str>::new());
    let docs = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/etl.md")).unwrap();
    for (name, _) in METRICS {
        assert!(docs.contains(&format!("| `{name}` |")), "docs/etl.md does not tell of {name}");
    }
    assert!(text.contains(r#"etl_provider_state{provider="cwe",state="TERMINATED"} 1"#));
    assert!(text.contains(r#"etl_macro_state{state="STABILIZING"} 1"#));
    assert!(text.contains(r#"etl_runs_total{outcome="completed",provider="capec"} 1"#), "{text}");
    let stored = running.get("/api/v1/etl/providers/cwe").1["runs"][0]["stored"].as_i64().unwrap();
    assert!(text.contains(&format!(r#"etl_records_total{{outcome="stored",provider="cwe"}} {stored}"#)));
    running.stop();
}

#[test]
fn requests_are_counted_by_status() {
    let setup = Setup::new().with_slow_cve();
    let running = setup.start();
    running.post("/api/v1/etl/providers/cve/start");
    until("a request is counted", || {
        running.text("/metrics").contains(r#"etl_fetches_total{provider="cve",status="200"}"#).then_some(())
    });
    assert!(!running.text("/metrics").contains(r#"etl_fetch_duration_seconds_count{provider="cve"} 0"#));
    running.stop();
}

#[test]
fn what_was_under_way_goes_on_after_a_restart_and_what_was_paused_stays_so() {
    let setup = Setup::new().with_slow_cve();
    let running = setup.start();
    running.post("/api/v1/etl/providers/cve/start");
    until("some are stored", || {
        (running.get("/api/v1/etl/providers/cve").1["processed_count"].as_i64()? > 0).then_some(())
    });
    running.stop();
    let running = setup.start();
    let metrics_or_history = || {
        let store = rusqlite::Connection::open(setup.db()).unwrap();
        let sql = "SELECT count(*) FROM history WHERE machine = 'cve' AND cause LIKE 'recovered from %'";
        store.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    until("it has recovered", || (metrics_or_history() == 1).then_some(()));
    until("it runs", || (running.get("/api/v1/etl/providers/cve").1["state"] == "RUNNING").then_some(()));
    assert_eq!(running.post("/api/v1/etl/providers/cve/pause").0, 200);
    running.stop();
    let running = setup.start();
    let cve = running.get("/api/v1/etl/providers/cve").1;
    assert_eq!((&cve["state"], cve["runs"].as_array().unwrap().len()), (&json!("PAUSED"), 1));
    assert_eq!(running.post("/api/v1/etl/providers/cve/resume").0, 200);
    running.stop();
}

#[test]
fn a_second_service_on_the_same_store_is_refused_with_the_pid_of_the_first() {
    let setup = Setup::new();
    let running = setup.start();
    let refused = setup.try_start().err().unwrap();
    assert!(refused.contains(&format!("is being written by process {}", std::process::id())), "{refused}");
    running.stop();
}

#[test]
fn probes_answer_and_every_route_is_in_the_committed_document() {
    let setup = Setup::new();
    let running = setup.start();
    assert_eq!(running.get("/health/live"), (200, json!({ "status": "ok" })));
    assert_eq!(running.get("/health/ready").0, 200);
    let (_, served) = running.get("/openapi.json");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/openapi.json");
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(file, serde_json::to_string_pretty(&served).unwrap() + "\n").unwrap();
    }
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(
        served, committed,
        "{file} is old: UPDATE_OPENAPI=1 cargo test -p phalanx-etl-service writes it anew"
    );
    let routes: Vec<(String, String)> = served["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            methods.as_object().unwrap().keys().map(move |method| (method.clone(), path.clone()))
        })
        .collect();
    let own = [
        ("get", "/api/v1/etl/checkpoints"),
        ("get", "/api/v1/etl/events"),
        ("get", "/api/v1/etl/path"),
        ("get", "/api/v1/etl/providers/{id}"),
        ("post", "/api/v1/etl/providers/{id}/pause"),
        ("post", "/api/v1/etl/providers/{id}/resume"),
        ("post", "/api/v1/etl/providers/{id}/start"),
        ("post", "/api/v1/etl/providers/{id}/stop"),
        ("get", "/api/v1/etl/records/{urn}"),
        ("get", "/api/v1/etl/search"),
        ("get", "/api/v1/etl/tree"),
        ("get", "/debug/pprof/profile"),
        ("get", "/health/live"),
        ("get", "/health/ready"),
        ("get", "/metrics"),
        ("get", "/openapi.json"),
    ];
    assert_eq!(routes, own.map(|(method, path)| (method.to_owned(), path.to_owned())));
    // Each of them is really there: nothing answers as an unknown path does.
    for (method, path) in &routes {
        let path = path.replace("{id}", "nope").replace("{urn}", "nonsense");
        let (_, answer) = running.ask(&method.to_uppercase(), &path, Some(util::TOKEN));
        let message = answer["message"].as_str().unwrap_or_default();
        assert!(!message.contains("is not here"), "{method} {path}: {message}");
    }
    running.stop();
}

#[test]
fn a_provider_that_panics_fails_its_own_run_and_nothing_else() {
    let setup = Setup::new().with_bug_in("cce");
    let running = setup.start();
    let start = |id: &str| running.post(&format!("/api/v1/etl/providers/{id}/start"));
    let failed = |runs: usize| {
        until("its run has failed", || {
            let cce = running.get("/api/v1/etl/providers/cce").1;
            let all = cce["runs"].as_array()?;
            (all.len() == runs && all.iter().all(|run| run["outcome"] == "failed")).then_some(cce)
        })
    };
    assert_eq!(start("cce").0, 200);
    let cce = failed(1);
    assert_eq!((&cce["state"], &cce["permits_held"]), (&json!("TERMINATED"), &json!(0)), "{cce}");
    let events = running.get("/api/v1/etl/events?limit=100").1.to_string();
    assert!(events.contains("the provider has panicked, which is a bug in it"), "{events}");
    // The others go on, and it can be tried again.
    assert_eq!(start("asvs").0, 200);
    until("another has completed", || {
        let asvs = running.get("/api/v1/etl/providers/asvs").1;
        asvs["last_outcome"].as_str().is_some_and(|outcome| outcome.starts_with("completed")).then_some(())
    });
    assert_eq!(start("cce").0, 200);
    failed(2);
    assert_eq!(running.get("/health/live").0, 200);
    running.stop();
}
