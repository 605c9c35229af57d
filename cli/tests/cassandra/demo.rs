//! The demo on real servers: its defenders in one process, and each a process of its own.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use crate::util::{phalanx_command, run};
use phalanx_testkit::cassandra;
use phalanx_testkit::nats::Server;
use phalanx_testkit::wait::until;
use serde_json::Value;

/// Runs the demo to its end, and holds it to its promises.
fn plays(nats: &Server, cassandra: &str, more: &[&str]) -> Value {
    let mut command = phalanx_command();
    command.args([
        "demo",
        "--for",
        "30s",
        "--seed",
        "5",
        "--json",
        "--nats",
        &nats.url(),
        "--cassandra",
        cassandra,
    ]);
    let played = run(command.args(more)).succeeds();
    let summary: Value = serde_json::from_str(&played.stdout).unwrap();
    let number = |path: &str| summary.pointer(path).and_then(Value::as_f64).unwrap_or(-1.0);
    let first = played.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with("Phalanx demo") && first.contains("http://127.0.0.1:"), "{first}");
    assert!(number("/published") > 1_000.0, "{summary}");
    assert_eq!(number("/published"), number("/committed"), "{summary}");
    for nothing in ["/lost", "/doubleCommitted", "/deadLettered"] {
        assert_eq!(number(nothing), 0.0, "{nothing}: {summary}");
    }
    // The crash and the growth make one map each; the rolling update makes none.
    assert_eq!(number("/mapVersions"), 2.0, "{summary}\n{}", played.stderr);
    assert!(played.stderr.contains("0 new maps, nothing moved"), "{}", played.stderr);
    assert!(number("/cacheHitRate") > 0.5, "{summary}");
    assert!(!played.stderr.contains("could not be removed"), "{}", played.stderr);
    println!(
        "measured: demo {} on NATS and Cassandra: {} runs, from sending to commit p50 {:.0} ms, p99 {:.0} ms",
        more.join(" "),
        number("/published"),
        number("/latencyMs/p50"),
        number("/latencyMs/p99")
    );
    for line in played.stderr.lines().filter(|line| line.contains("after")) {
        println!("measured: {}", line.trim());
    }
    summary
}

#[test]
fn defenders_of_one_process_keep_every_promise_on_real_servers() {
    let nats = Server::start().unwrap();
    let cassandra = cassandra::Keyspace::create().unwrap();
    plays(&nats, cassandra.hosts(), &[]);
}

#[test]
fn defenders_that_are_processes_keep_every_promise_and_end_with_the_demo_however_that_ends() {
    let nats = Server::start().unwrap();
    let cassandra = cassandra::Keyspace::create().unwrap();
    let mut command = phalanx_command();
    command.args(["demo", "--processes", "--nats", &nats.url(), "--cassandra", cassandra.hosts()]);
    let mut demo = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut story = BufReader::new(demo.stdout.take().unwrap()).lines();
    assert!(story.next().unwrap().unwrap().contains("on 5 defenders, each a process of its own"));
    let defenders = children(demo.id());
    assert_eq!(defenders.len(), 5);
    demo.kill().unwrap();
    demo.wait().unwrap();
    until("its defenders are gone", || defenders.iter().all(|pid| !is_alive(*pid)).then_some(()));
    plays(&Server::start().unwrap(), cassandra.hosts(), &["--processes"]);
}

/// The processes that this one has started.
fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.filter(|pid| status(*pid, "PPid:") == Some(parent.to_string())).collect()
}

fn is_alive(pid: u32) -> bool {
    status(pid, "State:").is_some_and(|state| !state.starts_with('Z'))
}

fn status(pid: u32, field: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(field)).map(|value| value.trim().to_owned())
}
