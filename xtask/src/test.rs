//! `cargo xtask test`: everything, with what it needs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use phalanx_testkit::process::bound_to_parent;
use phalanx_testkit::{cassandra, provision};

use crate::groups::{self, CODEGEN, Group, Program};
use crate::servers::say;
use crate::workspace::cargo;

/// A test program that runs longer hangs: it is killed and has failed.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(15 * 60);

#[derive(Args)]
pub(crate) struct Options {
    /// Fail when a group cannot run or has no test (for CI).
    #[arg(long)]
    require_all: bool,

    /// Run this group alone; may be given several times.
    #[arg(long, value_name = "GROUP")]
    only: Vec<Group>,

    /// Number of runs of each group, to find tests that fail now and then.
    #[arg(long, value_name = "RUNS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,

    /// Number of threads that keep the processor busy while the tests run.
    #[arg(long, value_name = "THREADS", default_value_t = 0)]
    busy_loops: usize,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let wanted = |group: Group| options.only.is_empty() || options.only.contains(&group);
    let start = Instant::now();
    eprintln!("building the tests");
    let programs = groups::build()?;
    eprintln!("built in {}", seconds(start.elapsed()));

    let _load = BusyLoops::start(options.busy_loops);
    let mut report = Report::default();
    for group in Group::ALL.into_iter().filter(|&group| wanted(group)) {
        eprintln!("\n{}: needs {}", group.name(), group.needs());
        let start = Instant::now();
        let servers = match Servers::of(group) {
            Ok(servers) => servers,
            Err(error) => {
                eprintln!("  skipped: {error}");
                report.skipped_groups.push(group);
                continue;
            }
        };
        let mut outcome = Outcome::default();
        for run in 1..=options.repeat {
            if options.repeat > 1 {
                eprintln!(" run {run} of {}", options.repeat);
            }
            for program in programs.iter().filter(|program| program.group == group) {
                outcome += run_program(program, &servers)?;
            }
            if group == Group::Unit {
                outcome += run_doc_tests()?;
            }
        }
        report.groups.insert(group, (outcome, start.elapsed()));
    }
    report.print(start.elapsed());
    report.verdict(options.require_all)
}

/// Threads that use all the processor time they get, until they are dropped.
struct BusyLoops {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl BusyLoops {
    fn start(count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |stop: Arc<AtomicBool>| move || while !stop.load(Ordering::Relaxed) {};
        let threads = (0..count).map(|_| thread::spawn(spin(stop.clone()))).collect();
        Self { stop, threads }
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

/// What a group's tests are given.
struct Servers {
    variables: Vec<(&'static str, String)>,
    // Lives as long as the group runs.
    _cassandra: Option<cassandra::Server>,
}

impl Servers {
    fn of(group: Group) -> Result<Self, provision::Error> {
        let mut servers = Self { variables: Vec::new(), _cassandra: None };
        match group {
            Group::Unit | Group::Cli | Group::Sim | Group::Process => {}
            Group::Nats => {
                let binary = provision::nats(&say)?;
                servers.variables.push(("NATS_SERVER_BIN", binary.display().to_string()));
            }
            Group::Cassandra => {
                if cassandra::hosts_from_env().is_none() {
                    provision::cassandra(&say)?;
                    let server = cassandra::Server::start()?;
                    servers.variables.push((cassandra::HOSTS_VARIABLE, server.host()));
                    servers._cassandra = Some(server);
                }
            }
        }
        Ok(servers)
    }
}

/// Counts of tests, and the reasons why some of them did not run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    passed: u64,
    failed: u64,
    skipped: u64,
    reasons: BTreeSet<String>,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.reasons.extend(other.reasons);
    }
}

fn run_program(program: &Program, servers: &Servers) -> Result<Outcome> {
    let mut command = bound_to_parent(&program.executable);
    command
        .arg("--show-output")
        .current_dir(&program.dir)
        .env("CARGO_MANIFEST_DIR", &program.dir)
        .envs(servers.variables.iter().map(|(name, value)| (name, value)));
    run_tests(&program.name, command)
}

fn run_doc_tests() -> Result<Outcome> {
    run_tests("doc tests", cargo(&["test", "--quiet", "--workspace", "--exclude", CODEGEN, "--doc"]))
}

/// Runs a libtest program. Prints the failures of a program that fails, and otherwise only what was measured.
fn run_tests(name: &str, mut command: Command) -> Result<Outcome> {
    let start = Instant::now();
    let mut child = command
        // A failed assertion shows expected and actual values; frames of the test harness add nothing.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not start the tests of {name}"))?;
    let (lines, inbox) = mpsc::channel();
    let readers = [
        child.stdout.take().map(|pipe| forward(pipe, lines.clone())),
        child.stderr.take().map(|pipe| forward(pipe, lines)),
    ];
    let mut output = Vec::new();
    let mut timed_out = false;
    // The channel closes when both pipes do.
    loop {
        match inbox.recv_timeout(PROGRAM_TIMEOUT.saturating_sub(start.elapsed())) {
            Ok(line) => output.push(line),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                timed_out = true;
                child.kill().ok();
                break;
            }
        }
    }
    let status = child.wait().with_context(|| format!("lost the tests of {name}"))?;
    if !timed_out {
        for reader in readers.into_iter().flatten() {
            reader.join().ok();
        }
    }
    let mut outcome = outcome(&output);
    if !status.success() {
        // A program that ends without a result line has failed all the same.
        outcome.failed = outcome.failed.max(1);
    }
    if outcome.failed > 0 {
        failures(&output).iter().for_each(|line| eprintln!("    {line}"));
        let why =
            if timed_out { format!("no end after {}", seconds(PROGRAM_TIMEOUT)) } else { status.to_string() };
        eprintln!("  {name}: {} FAILED ({why})", outcome.failed);
    } else if outcome.passed + outcome.skipped > 0 {
        eprintln!("  {name}: {} passed in {}", outcome.passed, seconds(start.elapsed()));
    }
    output.iter().filter(|line| line.starts_with("measured: ")).for_each(|line| eprintln!("    {line}"));
    Ok(outcome)
}

fn forward(pipe: impl Read + Send + 'static, lines: mpsc::Sender<String>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if lines.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                return;
            }
            line.clear();
        }
    })
}

/// Counts what a libtest program printed. A test that prints `skipped: REASON` counts as skipped.
fn outcome(output: &[String]) -> Outcome {
    let mut outcome = Outcome::default();
    output.iter().filter_map(|line| result_line(line)).for_each(|part| outcome += part);
    let mut is_counted = true;
    // The output of failed tests follows; a failed test is not a skipped one.
    for line in output.iter().take_while(|line| *line != "failures:") {
        if line.starts_with("---- ") {
            is_counted = false;
        } else if let Some(reason) = line.strip_prefix("skipped: ") {
            outcome.reasons.insert(reason.to_owned());
            if !is_counted {
                is_counted = true;
                outcome.skipped += 1;
                outcome.passed -= 1;
            }
        }
    }
    outcome
}

/// Returns the part of a program's output that shows its failures: all of it where the program named none.
fn failures(output: &[String]) -> &[String] {
    let start = output.iter().position(|line| line == "failures:").unwrap_or(0);
    &output[start..]
}

/// Reads the line that ends the output of libtest: `test result: ok. 5 passed; 0 failed; …`.
fn result_line(line: &str) -> Option<Outcome> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number =
        |what: &str| counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok());
    Some(Outcome { passed: number("passed")?, failed: number("failed")?, ..Outcome::default() })
}

#[derive(Default)]
struct Report {
    groups: BTreeMap<Group, (Outcome, Duration)>,
    skipped_groups: Vec<Group>,
}

impl Report {
    fn total(&self) -> Outcome {
        let mut total = Outcome::default();
        self.groups.values().for_each(|(outcome, _)| total += outcome.clone());
        total
    }

    fn empty_groups(&self) -> impl Iterator<Item = Group> {
        let is_empty = |outcome: &Outcome| outcome.passed + outcome.failed + outcome.skipped == 0;
        self.groups.iter().filter(move |(_, (outcome, _))| is_empty(outcome)).map(|(&group, _)| group)
    }

    fn print(&self, took: Duration) {
        println!("\n{:<12}{:>8}{:>8}{:>9}{:>10}", "group", "passed", "failed", "skipped", "time");
        for (group, (outcome, time)) in &self.groups {
            let Outcome { passed, failed, skipped, .. } = outcome;
            println!("{:<12}{passed:>8}{failed:>8}{skipped:>9}{:>10}", group.name(), seconds(*time));
        }
        self.skipped_groups.iter().for_each(|group| println!("{:<12} skipped, see above", group.name()));
        self.empty_groups().for_each(|group| println!("{:<12} has no test", group.name()));
        let total = self.total();
        total.reasons.iter().for_each(|reason| println!("skipped: {reason}"));
        println!("in {}", seconds(took));
        let skipped = total.skipped + self.skipped_groups.len() as u64;
        println!("{} passed, {} failed, {skipped} skipped", total.passed, total.failed);
    }

    fn verdict(&self, require_all: bool) -> Result<()> {
        let failed = self.total().failed;
        if failed > 0 {
            bail!("{failed} tests failed");
        }
        if require_all && (!self.skipped_groups.is_empty() || self.empty_groups().next().is_some()) {
            bail!("--require-all: not every group ran");
        }
        Ok(())
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64, skipped: u64) -> Outcome {
        Outcome { passed, failed, skipped, ..Outcome::default() }
    }

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_closing_line_of_libtest_is_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(result_line(line), Some(counts(12, 3, 0)));
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(result_line("test result of my own: 3 passed"), None);
        assert_eq!(result_line("running 3 tests"), None);
    }

    #[test]
    fn a_test_that_skips_itself_is_not_counted_as_passed() {
        let output = lines(
            "---- a stdout ----\nskipped: no setpriv\nskipped: no pip\n\n---- b stdout ----\nmeasured: 3 ms\n\
             test result: ok. 3 passed; 0 failed; 0 ignored",
        );
        let expected =
            Outcome { reasons: ["no setpriv", "no pip"].map(str::to_owned).into(), ..counts(2, 0, 1) };
        assert_eq!(outcome(&output), expected);
    }

    #[test]
    fn a_failed_test_that_skips_a_part_is_counted_as_failed() {
        let output = lines(
            "failures:\n---- a stdout ----\nskipped: no pip\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored",
        );
        assert_eq!(outcome(&output), counts(0, 1, 0));
    }

    #[test]
    fn only_failures_of_a_failed_program_are_shown() {
        let output = lines("successes:\n---- a stdout ----\nfine\nfailures:\n---- b stdout ----\nleft: 1");
        assert_eq!(failures(&output), lines("failures:\n---- b stdout ----\nleft: 1"));
        let crashed = lines("running 1 test\nSegmentation fault");
        assert_eq!(failures(&crashed), crashed);
    }

    #[test]
    fn a_program_that_dies_without_a_verdict_has_failed() {
        let mut died = Command::new("sh");
        died.args(["-c", "exit 9"]);
        assert_eq!(run_tests("a program that dies", died).unwrap(), counts(0, 1, 0));
    }

    #[test]
    fn an_empty_group_fails_only_where_all_are_required() {
        let mut report = Report::default();
        report.groups.insert(Group::Nats, (Outcome::default(), Duration::ZERO));
        assert!(report.verdict(false).is_ok());
        assert!(report.verdict(true).is_err());
    }

    #[test]
    fn a_skipped_group_fails_only_where_all_are_required() {
        let report = Report { skipped_groups: vec![Group::Nats], ..Report::default() };
        assert!(report.verdict(false).is_ok());
        assert!(report.verdict(true).is_err());
    }
}
