//! A test run that is killed leaves no server behind.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use phalanx_testkit::nats::Server;
use phalanx_testkit::process::has_setpriv;

/// Set in the run that is to be killed: it starts a server, says where, and waits for its end.
const VICTIM: &str = "PHALANX_ORPHAN_TEST_VICTIM";

#[test]
fn a_killed_test_run_leaves_no_server_behind() {
    if std::env::var_os(VICTIM).is_some() {
        let server = Server::start().unwrap();
        println!("server {}", server.id());
        loop {
            std::thread::park();
        }
    }
    if !has_setpriv() {
        println!("skipped: no setpriv here, so the kernel is not asked to end servers with their run");
        return;
    }
    let mut run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "orphans::a_killed_test_run_leaves_no_server_behind"])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let server: u32 = lines
        .map_while(Result::ok)
        .find_map(|line| line.rsplit_once("server ").and_then(|(_, pid)| pid.trim().parse().ok()))
        .expect("the run names its server");
    let process = format!("/proc/{server}");
    assert!(Path::new(&process).exists(), "the server runs");

    let killed = Instant::now();
    run.kill().unwrap();
    run.wait().unwrap();
    while Path::new(&process).exists() {
        assert!(killed.elapsed() < Duration::from_secs(5), "the server outlived its run");
        std::thread::yield_now();
    }
    println!("measured: server gone {} ms after kill -9 of its run", killed.elapsed().as_millis());
}
