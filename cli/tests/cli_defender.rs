//! `phalanx defender` alone in a folder, asked over HTTP.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

mod util;

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use util::{phalanx, phalanx_command};

/// A defender that is killed when the test ends.
struct Running {
    child: Child,
    url: String,
    token: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks until there is an answer, for half a minute.
#[track_caller]
fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn start(folder: &Path) -> Running {
    let strategy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/strategies/etch.toml");
    // One that was killed has left its address behind.
    let _ = std::fs::remove_file(folder.join("api-address"));
    let mut child = phalanx_command()
        .args(["defender", "--http-addr", "127.0.0.1:0", "--data-dir"])
        .arg(folder)
        .arg("--strategy-file")
        .arg(strategy)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok().filter(|text| !text.is_empty());
    let url = until("an address", || {
        assert!(child.try_wait().unwrap().is_none(), "the defender ended");
        read("api-address")
    });
    let token = read("api-token").unwrap();
    let running = Running { child, url, token };
    until("it is ready", || (running.get("/health/ready").0 == 200).then_some(()));
    running
}

impl Running {
    fn ask(&self, method: &str, path: &str, token: Option<&str>, kind: &str, body: &str) -> (u16, Value) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(20)))
            .build()
            .into();
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.header("content-type", kind).body(body.to_owned()).unwrap();
        let Ok(mut response) = agent.run(request) else { return (0, Value::Null) };
        let text = response.body_mut().read_to_string().unwrap_or_default();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, None, "text/plain", "")
    }

    fn send(&self, context: &str, csv: &str) -> (u16, Value) {
        let path = format!("/api/v1/contexts?tool=etch-01&chamber=A&context={context}");
        self.ask("POST", &path, Some(&self.token), "text/csv", csv)
    }
}

/// A minute of a run at that power.
fn csv(power: u32) -> String {
    let lines = (0..60)
        .map(|s| format!("{},{},3,60.{},40,{}\n", s * 1_000_000, power, s % 7, if s < 10 { 1 } else { 3 }));
    std::iter::once("time,RF_POWER,RF_REFLECTED,ESC_TEMP,PRESSURE,STEP\n".to_owned()).chain(lines).collect()
}

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
fn every_route_that_changes_something_needs_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    let (_, openapi) = running.get("/openapi.json");
    let mut tried = 0;
    for (path, methods) in openapi["paths"].as_object().unwrap() {
        let path = path.replace("{tool}", "etch-01").replace("{chamber}", "A").replace("{indicator}", "x");
        let path = path.replace("{id}", "0123456789abcdef0123456789abcdef");
        for method in methods.as_object().unwrap().keys().filter(|method| *method != "get") {
            let method = method.to_uppercase();
            assert_eq!(running.ask(&method, &path, None, "application/json", "{}").0, 401, "{method} {path}");
            assert_eq!(
                running.ask(&method, &path, Some("wrong"), "application/json", "{}").0,
                401,
                "{method} {path}"
            );
            tried += 1;
        }
    }
    assert!(tried >= 4, "{tried}");
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
}

#[test]
fn a_second_defender_on_one_folder_and_a_bad_strategy_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let _running = start(folder.path());
    let strategy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/strategies/etch.toml");
    let (data, strategy) = (folder.path().display().to_string(), strategy.display().to_string());
    let address = ["--http-addr", "127.0.0.1:0"];
    let second =
        phalanx(&["defender", "--data-dir", &data, "--strategy-file", &strategy, address[0], address[1]])
            .fails_with(1);
    assert!(second.stderr.contains("lock") || second.stderr.contains("in use"), "{}", second.stderr);
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
