//! Ctrl-C: the first pauses, the second ends at once, and nothing is lost either way.

use crate::mirror;
use crate::util;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use crate::mirror::{Answer, Mirror};
use crate::util::{Run, phalanx_command};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const RECORDS: usize = 2000;

/// Opens once, for everybody who waits.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().expect("nobody panicked") = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let guard = self.0.0.lock().expect("nobody panicked");
        drop(self.0.1.wait_while(guard, |open| !*open).expect("nobody panicked"));
    }
}

/// A mirror that gives its first page, and the others once `gate` is open.
fn gated_mirror(gate: &Gate) -> Mirror {
    let all: Vec<_> = (0..RECORDS).map(mirror::cve).collect();
    let gate = gate.clone();
    Mirror::new(move |request| {
        if request.number > 0 {
            gate.wait();
        }
        Answer::Body(mirror::page(request, &all, 100))
    })
}

fn etl(dir: &Path, mirror: &Mirror, arguments: &[&str]) -> Command {
    let mut command = phalanx_command();
    command.current_dir(dir).env("NVD_API_KEY", "key").args(["etl", "run", "cve", "--json"]);
    command.arg("--source").arg(util::cwe_source());
    command.arg("--source").arg(format!("cve={}", mirror.url)).args(arguments);
    command
}

/// A process that has stored a page and waits for the next one.
fn start(dir: &Path, mirror: &Mirror) -> (Child, BufReader<ChildStderr>) {
    let mut child = etl(dir, mirror, &[])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    while mirror.requests().len() < 2 {
        std::thread::yield_now();
    }
    (child, stderr)
}

fn interrupt(child: &Child) {
    kill_process(Pid::from_child(child), Signal::INT).expect("a child of ours");
}

fn wait_for_line(stderr: &mut BufReader<ChildStderr>, part: &str) {
    let found = stderr.lines().any(|line| line.expect("text").contains(part));
    assert!(found, "the process ended without `{part}`");
}

#[track_caller]
fn assert_complete(run: &Run) {
    let runs: Value = serde_json::from_str(&run.stdout).expect("JSON on standard output");
    let mut all = runs["runs"].as_array().expect("a list of runs").iter();
    let run = all.find(|run| run["provider"] == "cve").expect("a run of cve");
    assert_eq!(
        (run["runId"].as_str(), run["outcome"].as_str()),
        (Some("cve-1"), Some("completed")),
        "{runs}"
    );
    assert_eq!((run["read"].as_i64(), run["stored"].as_i64()), (Some(2000), Some(2000)), "{runs}");
}

#[test]
fn the_first_interrupt_pauses_with_exit_code_5_and_resume_completes() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::default());
    let mirror = gated_mirror(&gate);
    let (mut child, mut stderr) = start(dir.path(), &mirror);
    interrupt(&child);
    wait_for_line(&mut stderr, "interrupted: pausing");
    gate.open();
    wait_for_line(&mut stderr, "cve is paused");
    assert_eq!(child.wait().unwrap().code(), Some(5));

    let status = util::run(phalanx_command().current_dir(dir.path()).args(["etl", "status", "--json"]));
    let status: Value = serde_json::from_str(&status.succeeds().stdout).unwrap();
    let mut providers = status["providers"].as_array().unwrap().iter();
    let cve = providers.find(|one| one["id"] == "cve").unwrap();
    assert_eq!((cve["id"].as_str(), cve["state"].as_str()), (Some("cve"), Some("PAUSED")), "{status}");
    assert_eq!(status["macro"]["state"], "ORCHESTRATING");

    let still = util::run(&mut etl(dir.path(), &mirror, &[])).fails_with(5);
    assert!(still.stderr.contains("`phalanx etl run cve --resume` lets it go on"), "{still:?}");
    assert_complete(&util::run(&mut etl(dir.path(), &mirror, &["--resume"])).succeeds());
}

#[test]
fn the_second_interrupt_ends_at_once_and_the_next_run_goes_on_by_itself() {
    let (dir, gate) = (tempfile::tempdir().unwrap(), Gate::default());
    let mirror = gated_mirror(&gate);
    let (mut child, mut stderr) = start(dir.path(), &mirror);
    interrupt(&child);
    wait_for_line(&mut stderr, "interrupted: pausing");
    interrupt(&child);
    // The mirror still holds the page back: nothing but the second interrupt can end the process.
    assert_eq!(child.wait().unwrap().code(), Some(130));
    gate.open();
    assert_complete(&util::run(&mut etl(dir.path(), &mirror, &[])).succeeds());
}
