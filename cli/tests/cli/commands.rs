//! The commands that speak to a running defender, as people and programs use them.

use std::fs;
use std::path::Path;

use crate::util::running::{Running, csv, start};
use crate::util::{Run, phalanx, phalanx_command, run};
use phalanx_testkit::wait::until;
use serde_json::Value;

/// Runs a command against the defender of that folder.
fn at(folder: &Path, arguments: &[&str]) -> Run {
    run(phalanx_command().args(arguments).arg("--data-dir").arg(folder))
}

/// What it says to programs.
#[track_caller]
fn json(folder: &Path, arguments: &[&str]) -> Value {
    let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&at(folder, &arguments).succeeds().stdout).unwrap()
}

/// A defender with three runs, the second of which is bad.
fn with_runs(folder: &Path) -> Running {
    let running = start(folder);
    for (context, power) in [("run-1", 500), ("run-2", 560), ("run-3", 501)] {
        assert_eq!(running.send(context, &csv(power)).0, 202);
    }
    until("all are committed", || {
        let (_, chart) = running.get("/api/v1/charts/etch-01/A/rf-power");
        (chart["points"].as_array()?.len() == 3).then_some(())
    });
    running
}

#[test]
fn status_assignments_and_chambers_show_what_runs_where() {
    let folder = tempfile::tempdir().unwrap();
    let running = with_runs(folder.path());
    let text = at(folder.path(), &["status"]).succeeds().stdout;
    assert!(text.contains("defender-0") && text.contains("STABLE") && text.contains("leader"), "{text}");
    assert!(text.contains("3 messages processed"), "{text}");
    assert!(!text.contains('\x1b'), "colours are for terminals: {text}");
    let status = json(folder.path(), &["status"]);
    assert_eq!(status["worker"]["defenderId"], "defender-0");
    assert_eq!(status["cluster"]["workers"][0]["isLeader"], true);
    assert_eq!(status["ready"]["status"], "ready");

    let text = at(folder.path(), &["assignments"]).succeeds().stdout;
    assert!(text.contains("etch-01") && text.contains("1 chamber by map"), "{text}");
    assert_eq!(json(folder.path(), &["assignments", "--own"])["chambers"][0]["defenderId"], "defender-0");

    let text = at(folder.path(), &["chambers", "list"]).succeeds().stdout;
    assert!(text.contains("etch-01") && text.contains("defender-0"), "{text}");
    let text = at(folder.path(), &["chambers", "show", "etch-01", "A"]).succeeds().stdout;
    assert!(text.contains("last run: run-3") && text.contains("rf-power"), "{text}");
    let chamber = json(folder.path(), &["chambers", "show", "etch-01", "A"]);
    assert_eq!((&chamber["cursor"]["sequence"], &chamber["openAlarms"]), (&3.into(), &0.into()));
    let none = at(folder.path(), &["chambers", "show", "etch-01", "Z"]).fails_with(1);
    assert!(none.stderr.contains("there is no chamber etch-01:Z"), "{}", none.stderr);

    // The address does as well as the folder.
    let by_url = phalanx(&["status", "--url", &running.url]).succeeds();
    assert!(by_url.stdout.contains("defender-0"));
    let by_variable = run(phalanx_command().arg("status").env("PHALANX_URL", &running.url)).succeeds();
    assert!(by_variable.stdout.contains("defender-0"));
}

#[test]
fn alarms_are_listed_shown_and_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let running = with_runs(folder.path());
    let alarms = json(folder.path(), &["alarms", "list"]);
    let id = alarms["alarms"][0]["alarmId"].as_str().unwrap().to_owned();
    let text = at(folder.path(), &["alarms", "list", "--state", "cleared"]).succeeds().stdout;
    assert!(text.contains(&id) && text.contains("etch-01:A"), "{text}");
    let open = at(folder.path(), &["alarms", "list", "--state", "open"]).succeeds();
    assert_eq!(open.stdout, "no alarms\n");
    let text = at(folder.path(), &["alarms", "show", &id]).succeeds().stdout;
    assert!(text.contains("raised by run run-2 of etch-01:A"), "{text}");
    let ack = ["alarms", "ack", &id, "--by", "anna", "--comment", "the valve"];
    at(folder.path(), &ack).succeeds();
    let text = at(folder.path(), &["alarms", "show", &id]).succeeds().stdout;
    assert!(text.contains("acknowledged by anna") && text.contains("the valve"), "{text}");
    let unknown = at(folder.path(), &["alarms", "ack", &"0".repeat(32), "--by", "anna"]).fails_with(1);
    assert!(unknown.stderr.contains("there is no alarm"), "{}", unknown.stderr);
    let tokenless = run(phalanx_command().args(ack).args(["--url", &running.url]).env_remove("API_TOKEN"));
    assert!(tokenless.fails_with(1).stderr.contains("API_TOKEN"));
    let wrong = run(phalanx_command().args(ack).args(["--url", &running.url, "--token", "wrong"]));
    assert!(wrong.fails_with(1).stderr.contains("401"));
}

#[test]
fn a_chart_is_plotted_and_begins_anew_on_command() {
    let folder = tempfile::tempdir().unwrap();
    let running = with_runs(folder.path());
    let text = at(folder.path(), &["charts", "show", "etch-01", "A"]).succeeds().stdout;
    assert!(text.contains("rf-power") && text.contains("501"), "{text}");
    let text = at(folder.path(), &["charts", "show", "etch-01", "A", "rf-power"]).succeeds().stdout;
    assert!(text.contains('X'), "the bad run is marked: {text}");
    assert!(text.contains("upper") && text.contains("newest: 501"), "{text}");
    let chart = json(folder.path(), &["charts", "show", "etch-01", "A", "rf-power", "--points", "2"]);
    assert_eq!(chart["points"].as_array().unwrap().len(), 2);
    let none = at(folder.path(), &["charts", "show", "etch-01", "A", "nonsense"]).fails_with(1);
    assert!(none.stderr.contains("has no points on a chart"), "{}", none.stderr);

    let anew = ["charts", "rebaseline", "etch-01", "A", "esc-temp", "--context", "anew-1"];
    at(folder.path(), &anew).succeeds();
    assert_eq!(json(folder.path(), &anew)["duplicate"], true, "the same command takes effect once");
    until("the command is carried out", || {
        let (_, contexts) = running.get("/api/v1/contexts/etch-01/A");
        (contexts["contexts"][0]["outcome"] == "command").then_some(())
    });
}

#[test]
fn dead_letters_are_listed_shown_replayed_and_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    // Two runs whose traces vanish before they are processed cannot be had over HTTP: strangers in the log can.
    drop(running);
    poison(folder.path(), &["not JSON", "{\"toolId\":\"other\"}"]);
    let running = start(folder.path());
    let letters = until("both are dead", || {
        let (_, list) = running.get("/api/v1/dlq");
        list["deadLetters"].as_array().filter(|letters| letters.len() == 2).cloned()
    });
    let ids: Vec<&str> = letters.iter().map(|letter| letter["id"].as_str().unwrap()).collect();
    let text = at(folder.path(), &["dlq", "list"]).succeeds().stdout;
    assert!(ids.iter().all(|id| text.contains(id)), "{text}");
    let other = json(folder.path(), &["dlq", "list", "--tool", "etch-01", "--chamber", "B"]);
    assert_eq!(other["total"], 0);
    let text = at(folder.path(), &["dlq", "show", ids[1]]).succeeds().stdout;
    assert!(text.contains("not JSON"), "the message in full: {text}");

    at(folder.path(), &["dlq", "replay", ids[1]]).succeeds();
    // It dies again, as another letter.
    until("it is dead again", || {
        let (_, list) = running.get("/api/v1/dlq");
        let now: Vec<&str> =
            list["deadLetters"].as_array()?.iter().filter_map(|letter| letter["id"].as_str()).collect();
        (now.len() == 2 && !now.contains(&ids[1])).then_some(())
    });
    at(folder.path(), &["dlq", "drop", ids[0]]).succeeds();
    let gone = at(folder.path(), &["dlq", "show", ids[0]]).fails_with(1);
    assert!(gone.stderr.contains("there is no dead letter"), "{}", gone.stderr);
    assert_eq!(json(folder.path(), &["dlq", "list"])["total"], 1);
    let bad = at(folder.path(), &["dlq", "show", "nonsense"]).fails_with(1);
    assert!(bad.stderr.contains("names no dead letter"), "{}", bad.stderr);
}

/// Puts messages into the log of etch-01:A that no collector would, while nobody has the folder.
fn poison(folder: &Path, messages: &[&'static str]) {
    use phalanx_cluster::backend::{AppendCondition, Embedded, Stores};
    use phalanx_defender::names::store_config;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let backend = Embedded::open(folder).unwrap();
        let stores = Stores::open(&backend, &store_config()).await.unwrap();
        for message in messages {
            let subject = "dc.etch-01.A.completed";
            stores.log.append(subject, (*message).into(), AppendCondition::None).await.unwrap();
        }
        backend.close().await;
    });
    let list =
        "tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds\netch-01,A,5,1,60\n";
    let file = folder.join("chambers.csv");
    fs::write(&file, list).unwrap();
    at(folder, &["chambers", "import", &file.display().to_string()]).succeeds();
}

#[test]
fn the_size_of_the_fleet_is_set_and_left() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    assert!(at(folder.path(), &["scale", "2"]).succeeds().stdout.contains("2 defenders"));
    assert_eq!(running.get("/api/v1/cluster").1["scaledTo"], 2);
    at(folder.path(), &["scale", "--unset"]).succeeds();
    assert!(running.get("/api/v1/cluster").1["scaledTo"].is_null());
    let wrong = at(folder.path(), &["scale", "1000"]).fails_with(1);
    assert!(wrong.stderr.contains("1 to 100"), "{}", wrong.stderr);
    at(folder.path(), &["scale"]).fails_with(2);
}

#[test]
fn ingest_and_import_go_through_the_defender_that_has_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path());
    let list =
        "tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds\netch-02,B,5,1,60\n";
    let files = tempfile::tempdir().unwrap();
    let (chambers, good, bad) =
        (files.path().join("chambers.csv"), files.path().join("good.csv"), files.path().join("bad.csv"));
    fs::write(&chambers, list).unwrap();
    fs::write(&good, csv(500)).unwrap();
    fs::write(&bad, csv(560)).unwrap();
    let imported = at(folder.path(), &["chambers", "import", &chambers.display().to_string()]).succeeds();
    assert!(imported.stdout.contains("1 chamber imported"), "{}", imported.stdout);
    until("it is served", || {
        let (_, map) = running.get("/api/v1/assignments?all=true");
        map["chambers"].as_array()?.iter().any(|chamber| chamber["toolId"] == "etch-02").then_some(())
    });
    let ingest = |file: &Path, context: &str| {
        let file = file.display().to_string();
        at(folder.path(), &["ingest", &file, "--tool", "etch-02", "--chamber", "B", "--context", context])
    };
    let text = ingest(&good, "run-1").succeeds().stdout;
    assert!(text.contains("etch-02:B run-1: processed") && text.contains("rf-power"), "{text}");
    let text = ingest(&bad, "run-2").succeeds().stdout;
    assert!(text.contains("violation") && text.contains("raised: "), "{text}");
    let text = ingest(&bad, "run-2").succeeds().stdout;
    assert!(text.contains("violation"), "sent again it says what it came to: {text}");
    assert_eq!(running.get("/api/v1/status").1["messagesProcessed"], 2);
}

#[test]
fn a_defender_that_does_not_answer_gets_an_error_that_says_what_to_try() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for command in [&["status"][..], &["alarms", "list"], &["dlq", "list"], &["scale", "3"]] {
        let arguments: Vec<&str> = command.to_vec();
        let url = format!("http://{free}");
        let failed = run(phalanx_command().args(&arguments).args(["--url", &url])).fails_with(1);
        assert!(failed.stderr.contains(&url) && failed.stderr.contains("PHALANX_URL"), "{}", failed.stderr);
        assert!(failed.stderr.contains("phalanx defender"), "{}", failed.stderr);
    }
    let folder = tempfile::tempdir().unwrap();
    let nobody = at(folder.path(), &["status"]).fails_with(1);
    assert!(nobody.stderr.contains("no defender runs on"), "{}", nobody.stderr);
    let no_address = phalanx(&["status", "--url", "localhost"]).fails_with(1);
    assert!(no_address.stderr.contains("no address like"), "{}", no_address.stderr);
}

#[test]
fn completions_and_manual_pages_come_from_the_same_definitions() {
    for shell in ["bash", "zsh", "fish"] {
        let text = phalanx(&["completions", shell]).succeeds().stdout;
        assert!(text.contains("rebaseline") && text.contains("heartbeat-interval-seconds"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    phalanx(&["man", &folder.path().display().to_string()]).succeeds();
    for page in ["phalanx.1", "phalanx-alarms-ack.1", "phalanx-defender.1"] {
        let text = fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
}
