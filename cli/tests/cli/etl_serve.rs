//! `phalanx etl serve` and the commands that talk to it, as real processes.

use crate::mirror;
use crate::util;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::mirror::{Answer, Mirror};
use crate::util::{Run, phalanx_command};
use phalanx_testkit::wait::until;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

const TOKEN: &str = "secret";
const FEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/etl/tests/fixtures/feeds");

/// A service that is killed when the test ends.
struct Serving {
    child: Child,
    url: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(dir: &Path, arguments: &[&str]) -> Serving {
    let mut child = phalanx_command()
        .current_dir(dir)
        .args(["etl", "serve", "--db", "x.db", "--http-addr", "127.0.0.1:0", "--mirror", FEEDS])
        .args(arguments)
        .env("API_TOKEN", TOKEN)
        .env("NVD_API_KEY", "key")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let url =
        lines.find_map(|line| line.strip_prefix("listening on ").map(str::to_owned)).expect("it listens");
    // Nobody else reads what it says; a full pipe would stop it.
    std::thread::spawn(move || lines.for_each(drop));
    Serving { child, url }
}

impl Serving {
    fn etl(&self, arguments: &[&str]) -> Run {
        let mut command = phalanx_command();
        util::run(command.arg("etl").args(arguments).env("PHALANX_URL", &self.url).env("API_TOKEN", TOKEN))
    }
}

/// Nothing is read by itself.
fn unscheduled() -> Vec<String> {
    let ids = ["asvs", "attack", "capec", "cce", "cve", "cwe", "ssg"];
    ids.iter().flat_map(|id| ["--schedule".to_owned(), format!("{id}=never")]).collect()
}

fn one<T: rusqlite::types::FromSql>(dir: &Path, sql: &str) -> Option<T> {
    let store = Connection::open_with_flags(dir.join("x.db"), OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
    store.query_row(sql, [], |row| row.get(0)).ok()
}

/// A made-up NVD of that many records, in pages of fifty that take a while; the pace allows fifty of them at once.
fn slow_nvd(records: usize) -> Mirror {
    let records: Vec<Value> = (0..records).map(mirror::cve).collect();
    Mirror::new(move |request| {
        std::thread::sleep(Duration::from_millis(100));
        Answer::Body(mirror::page(request, &records, 50))
    })
}

#[test]
fn commands_steer_a_service_and_its_status_can_be_watched() {
    let dir = tempfile::tempdir().unwrap();
    let nvd = slow_nvd(20_000);
    let cve = format!("cve={}", nvd.url);
    let mut arguments = unscheduled();
    arguments.extend(["--source".to_owned(), cve]);
    let serving = serve(dir.path(), &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let started = serving.etl(&["start", "cve"]).succeeds();
    assert_eq!(started.stdout, "start cwe, which cve needs\nstart cve\n");
    until("some are stored", || {
        one::<i64>(dir.path(), "SELECT read FROM runs WHERE provider = 'cve' AND read > 0")
    });
    assert_eq!(serving.etl(&["pause", "cve"]).succeeds().stdout, "pause cve\n");
    let refused = serving.etl(&["pause", "cve"]).fails_with(1);
    assert!(refused.stderr.contains("cve: `pause` is refused: the provider is PAUSED"), "{}", refused.stderr);

    let mut watching = phalanx_command()
        .args(["etl", "status", "--watch", "--json", "--url", &serving.url])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut trees = BufReader::new(watching.stdout.take().unwrap())
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let state = |tree: &Value| {
        let all = tree["providers"].as_array().unwrap();
        all.iter().find(|one| one["id"] == "cve").unwrap()["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(&trees.next().unwrap()), "PAUSED");
    assert_eq!(serving.etl(&["resume", "cve"]).succeeds().stdout, "resume cve\n");
    trees.find(|tree| state(tree) == "RUNNING").expect("it is seen to run");
    let stopped = serving.etl(&["stop", "--all"]).succeeds();
    assert_eq!(stopped.stdout, "stop cve\n");
    trees.find(|tree| state(tree) == "TERMINATED").expect("it is seen to end");
    watching.kill().unwrap();
    watching.wait().unwrap();
    assert!(serving.etl(&["start", "nope"]).fails_with(1).stderr.contains("there is no provider `nope`"));
}

#[test]
fn a_service_killed_under_way_goes_on_by_itself_and_nothing_is_lost_or_doubled() {
    let dir = tempfile::tempdir().unwrap();
    let nvd = slow_nvd(2_000);
    let cve = format!("cve={}", nvd.url);
    let mut arguments = unscheduled();
    arguments.extend(["--source".to_owned(), cve]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let read = "SELECT read FROM runs WHERE provider = 'cve' ORDER BY seq LIMIT 1";
    let mut serving = serve(dir.path(), &arguments);
    serving.etl(&["start", "--all"]).succeeds();
    for kill_at in [100, 700, 1_300] {
        until("so many are read", || one::<i64>(dir.path(), read).filter(|read| *read >= kill_at));
        serving.child.kill().unwrap();
        serving.child.wait().unwrap();
        serving = serve(dir.path(), &arguments);
    }
    until("all have completed", || {
        let sql = "SELECT count(*) FROM runs WHERE outcome LIKE 'completed%'";
        one::<i64>(dir.path(), sql).filter(|done| *done == 7)
    });
    assert_eq!(one::<i64>(dir.path(), "SELECT count(*) FROM runs"), Some(7), "the same runs went on");
    assert_eq!(one::<i64>(dir.path(), read), Some(2_000));
    assert_eq!(one::<i64>(dir.path(), "SELECT count(*) FROM records WHERE provider = 'cve'"), Some(2_000));
    let recovered = "SELECT count(*) FROM history WHERE cause LIKE 'recovered from %'";
    assert!(one::<i64>(dir.path(), recovered) >= Some(3));
}

#[test]
fn where_no_service_answers_the_error_says_what_to_try() {
    let run = util::run(phalanx_command().args(["etl", "pause", "--all", "--url", "http://127.0.0.1:9"]));
    let said = run.fails_with(1).stderr;
    for hint in ["http://127.0.0.1:9", "phalanx etl serve", "--url", "PHALANX_URL"] {
        assert!(said.contains(hint), "{hint}: {said}");
    }
    let dir = tempfile::tempdir().unwrap();
    let arguments = unscheduled();
    let serving = serve(dir.path(), &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let wrong = phalanx_command()
        .args(["etl", "start", "cwe", "--token", "wrong", "--url", &serving.url])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("API_TOKEN"));
}

#[test]
fn schedules_that_make_no_sense_are_wrong_use() {
    for arguments in [
        ["--schedule", "cve"],
        ["--schedule", "cve=61 * * * *"],
        ["--schedule", "nope=1h"],
        ["--fresh-within", "cve=soon"],
        ["--jitter", "some"],
    ] {
        let run = util::run(phalanx_command().args(["etl", "serve"]).args(arguments));
        run.fails_with(2);
    }
}
