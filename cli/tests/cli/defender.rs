//! `phalanx defender` alone in a folder, asked over HTTP.

use crate::util::phalanx;
use crate::util::running::{Running, ask, command, csv, start, strategy};
use phalanx_testkit::wait::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[test]
fn a_run_becomes_a_point_and_a_bad_one_an_alarm_that_can_be_acknowledged_and_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    assert_eq!(running.send("run-1", &csv(500)).0, 202);
    assert_eq!(running.send("run-2", &csv(560)).0, 202);
    let alarms = until("an alarm", || {
        let (_, list) = running.get("/api/v1/alarms?tool=etch-01&chamber=A");
        list["alarms"].as_array().filter(|alarms| !alarms.is_empty()).cloned()
    });
    assert_eq!((&alarms[0]["indicator"], &alarms[0]["contextId"]), (&"rf-power".into(), &"run-2".into()));
    let (status, chart) = running.get("/api/v1/charts/etch-01/A/rf-power");
    assert_eq!(status, 200);
    let values: Vec<f64> =
        chart["points"].as_array().unwrap().iter().map(|point| point["value"].as_f64().unwrap()).collect();
    assert_eq!(values, [560.0, 500.0]);
    let path = format!("/api/v1/alarms/{}/ack", alarms[0]["alarmId"].as_str().unwrap());
    let saying = r#"{"by": "anna", "comment": "seen"}"#;
    assert_eq!(running.ask("POST", &path, Some(&running.token), "application/json", saying).0, 200);
    let (_, list) = running.get("/api/v1/alarms");
    assert_eq!(list["alarms"][0]["state"], "acknowledged");
    drop(running);

    // After kill -9 everything is there, and it goes on where it was.
    let running = start(folder.path());
    let (_, list) = running.get("/api/v1/alarms?state=acknowledged");
    assert_eq!(list["alarms"].as_array().unwrap().len(), 1);
    assert_eq!(running.send("run-3", &csv(501)).0, 202);
    until("the third point", || {
        let (_, chart) = running.get("/api/v1/charts/etch-01/A/rf-power");
        (chart["points"].as_array()?.len() == 3).then_some(())
    });
    let (_, list) = running.get("/api/v1/alarms");
    assert_eq!(list["alarms"][0]["state"], "cleared", "the condition holds no more");
}

#[test]
fn bad_runs_are_refused_with_the_reason_and_nothing_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    let post = |query: &str, kind: &str, body: &str| {
        running.ask("POST", &format!("/api/v1/contexts?{query}"), Some(&running.token), kind, body)
    };
    for (query, kind, body, part) in [
        ("tool=etch.01&chamber=A&context=r", "text/csv", "time,A\n0,1\n", "etch.01"),
        ("tool=etch-01&chamber=A&context=r", "text/csv", "no,times\nhere\n", "time"),
        ("tool=etch-01&chamber=A&context=r", "application/json", "{", "traces are"),
        ("tool=etch-01&chamber=A&context=r", "application/octet-stream", "no blob", "chunk 1"),
        ("tool=etch-01&chamber=A&context=r", "image/png", "x", "image/png"),
        ("tool=etch-01&chamber=A&context=r&timestamp=soon", "text/csv", "time,A\n0,1\n", "soon"),
        ("tool=etch-01&chamber=A", "text/csv", "time,A\n0,1\n", "context"),
    ] {
        let (status, answer) = post(query, kind, body);
        assert_eq!(status, 400, "{query}: {answer}");
        assert!(answer["message"].as_str().unwrap().contains(part), "{part} is not in {answer}");
    }
    assert_eq!(running.get("/api/v1/contexts/etch-01/A").1["contexts"], serde_json::json!([]));
}

#[test]
fn status_ready_and_cluster_have_the_fields_of_the_requirements() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let (_, status) = running.get("/api/v1/status");
    let mut fields = keys(&status);
    fields.sort();
    let mut expected = [
        "defenderId",
        "podName",
        "state",
        "isLeader",
        "assignedChambers",
        "cacheHitRate",
        "messagesProcessed",
        "uptimeSeconds",
        "assignmentVersion",
    ];
    expected.sort_unstable();
    assert_eq!(fields, expected);
    assert_eq!((&status["defenderId"], &status["state"]), (&"defender-0".into(), &"STABLE".into()));
    let (_, ready) = running.get("/health/ready");
    assert_eq!(ready["standby"], false);
    let (_, cluster) = running.get("/api/v1/cluster");
    assert_eq!(cluster["workers"][0]["defenderId"], "defender-0");
    assert!(cluster["workers"][0]["heartbeatAgeSeconds"].as_f64().unwrap() < 10.0);
    let (_, metrics) = running.get("/metrics");
    for name in ["defender_state", "defender_cache_hit_rate", "defender_uchart_calculation_duration_seconds"]
    {
        assert!(metrics.as_str().unwrap().contains(name), "{name}");
    }
}

#[test]
fn sigterm_ends_it_in_good_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = start(folder.path());
    kill_process(Pid::from_child(&running.child), Signal::TERM).unwrap();
    let ended = until("the end", || running.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
    assert!(!folder.path().join("api-address").exists());
    assert!(folder.path().join("charts.db").exists());
    assert!(!folder.path().join("charts.db-wal").exists(), "the store was not closed");
}

#[test]
fn a_second_defender_on_one_folder_and_a_bad_strategy_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    let (data, strategy) = (folder.path().display().to_string(), strategy());
    let address = ["--http-addr", "127.0.0.1:0"];
    let second =
        phalanx(&["defender", "--data-dir", &data, "--strategy-file", &strategy, address[0], address[1]])
            .fails_with(1);
    assert!(second.stderr.contains("lock") || second.stderr.contains("in use"), "{}", second.stderr);
    let noted = std::fs::read_to_string(folder.path().join("api-address")).unwrap();
    assert_eq!(noted, running.url, "the address in the folder is that of whoever has it");
    let bad = folder.path().join("bad.toml");
    std::fs::write(&bad, "[[group]]\ntools = [\"etch.*\"]\n").unwrap();
    let refused = phalanx(&["defender", "--data-dir", &data, "--strategy-file", &bad.display().to_string()])
        .fails_with(1);
    assert!(refused.stderr.contains("bad.toml"), "{}", refused.stderr);
    let wrong =
        phalanx(&["defender", "--max-defenders", "none", "--heartbeat-interval-seconds", "x"]).fails_with(2);
    assert!(
        wrong.stderr.contains("MAX_DEFENDERS") && wrong.stderr.contains("HEARTBEAT_INTERVAL"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn while_the_store_is_away_at_the_start_it_waits_says_so_counts_it_and_can_be_ended() {
    let folder = tempfile::tempdir().unwrap();
    let child = command(folder.path()).args(["--cassandra-hosts", "127.0.0.1:1"]).spawn().unwrap();
    // Killed when the test ends, however it does.
    let mut running = Running { child, url: String::new(), token: String::new() };
    let url = until("an address", || {
        std::fs::read_to_string(folder.path().join("api-address")).ok().filter(|url| !url.is_empty())
    });
    let get = |path: &str| ask(&url, "GET", path, None, "text/plain", "");
    let (status, ready) = get("/health/ready");
    assert_eq!((status, &ready["state"]), (503, &"INITIALIZATION".into()), "{ready}");
    assert!(ready["waitsFor"].as_str().unwrap().contains("127.0.0.1:1"), "{ready}");
    assert_eq!(get("/health/live").0, 200, "it is no use to restart it");
    let (_, metrics) = get("/metrics");
    let failures = metrics
        .as_str()
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("defender_initialization_failures_total "))
        .unwrap();
    assert!(failures.parse::<f64>().unwrap() >= 1.0);
    let shown = phalanx(&["status", "--url", &url]).succeeds().stdout;
    assert!(shown.contains("INITIALIZATION") && shown.contains("not ready"), "{shown}");
    kill_process(Pid::from_child(&running.child), Signal::TERM).unwrap();
    assert_eq!(until("the end", || running.child.try_wait().unwrap()).code(), Some(0));
}
