//! `cargo xtask test`: everything, with what it needs.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use phalanx_testkit::process::bound_to_parent;
use phalanx_testkit::{cassandra, provision};

use crate::groups::{self, Group, Program};
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
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let wanted = |group: Group| options.only.is_empty() || options.only.contains(&group);
    let start = Instant::now();
    eprintln!("building the tests");
    let programs = groups::build()?;
    eprintln!("built in {}", seconds(start.elapsed()));

    let mut report = Report::default();
    for group in Group::ALL.into_iter().filter(|&group| wanted(group)) {
        eprintln!("\n{}", group.name());
        let start = Instant::now();
        match Servers::of(group) {
            Ok(servers) => {
                let mine: Vec<&Program> = programs.iter().filter(|program| program.group == group).collect();
                let mut count = Count::default();
                for program in mine {
                    count += run_program(program, &servers)?;
                }
                if group == Group::Unit {
                    count += run_doc_tests()?;
                }
                report.groups.insert(group, (count, start.elapsed()));
            }
            Err(error) => report.skipped.push(format!("skipped: {}: {error}", group.name())),
        }
    }
    report.print(start.elapsed());
    report.verdict(options.require_all)
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

fn run_program(program: &Program, servers: &Servers) -> Result<Count> {
    let mut command = bound_to_parent(&program.executable);
    command
        .arg("--show-output")
        .current_dir(&program.dir)
        .env("CARGO_MANIFEST_DIR", &program.dir)
        .envs(servers.variables.iter().map(|(name, value)| (name, value)));
    run_tests(&program.name, command)
}

fn run_doc_tests() -> Result<Count> {
    run_tests("doc tests", cargo(&["test", "--quiet", "--workspace", "--doc"]))
}

/// Runs a libtest program. What it prints is shown when it fails; otherwise only lines that say what was measured or
/// skipped.
fn run_tests(name: &str, mut command: Command) -> Result<Count> {
    let start = Instant::now();
    let mut child = command
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
    let mut count = Count::default();
    output.iter().filter_map(|line| result_line(line)).for_each(|part| count += part);
    if !status.success() {
        // A program that died without a verdict has failed all the same.
        count.failed = count.failed.max(1);
    }
    if count.failed > 0 {
        output.iter().for_each(|line| eprintln!("    {line}"));
        let why =
            if timed_out { format!("no end after {}", seconds(PROGRAM_TIMEOUT)) } else { status.to_string() };
        eprintln!("  {name}: {} FAILED ({why})", count.failed);
    } else {
        eprintln!("  {name}: {} passed in {}", count.passed, seconds(start.elapsed()));
        output.iter().filter(|line| is_worth_showing(line)).for_each(|line| eprintln!("    {line}"));
    }
    Ok(count)
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

fn is_worth_showing(line: &str) -> bool {
    line.starts_with("skipped: ") || line.starts_with("measured: ")
}

/// `test result: ok. 5 passed; 0 failed; …`, as libtest ends.
fn result_line(line: &str) -> Option<Count> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number =
        |what: &str| counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok());
    Some(Count { passed: number("passed")?, failed: number("failed")? })
}

#[derive(Default)]
struct Report {
    groups: BTreeMap<Group, (Count, Duration)>,
    skipped: Vec<String>,
}

impl Report {
    fn total(&self) -> Count {
        let mut total = Count::default();
        self.groups.values().for_each(|&(count, _)| total += count);
        total
    }

    fn empty_groups(&self) -> impl Iterator<Item = &'static str> {
        self.groups.iter().filter(|(_, (count, _))| *count == Count::default()).map(|(group, _)| group.name())
    }

    fn print(&self, took: Duration) {
        println!("\n{:<12}{:>8}{:>8}{:>10}", "group", "passed", "failed", "time");
        for (group, &(count, time)) in &self.groups {
            println!("{:<12}{:>8}{:>8}{:>10}", group.name(), count.passed, count.failed, seconds(time));
        }
        self.skipped.iter().for_each(|line| println!("{line}"));
        self.empty_groups().for_each(|name| println!("no test: {name}"));
        println!("in {}", seconds(took));
        let total = self.total();
        println!("{} passed, {} failed, {} skipped", total.passed, total.failed, self.skipped.len());
    }

    fn verdict(&self, require_all: bool) -> Result<()> {
        let failed = self.total().failed;
        if failed > 0 {
            bail!("{failed} tests failed");
        }
        if require_all && (!self.skipped.is_empty() || self.empty_groups().next().is_some()) {
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

    #[test]
    fn the_closing_line_of_libtest_is_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(result_line(line), Some(Count { passed: 12, failed: 3 }));
    }

    #[test]
    fn other_lines_count_nothing() {
        assert_eq!(result_line("test result of my own: 3 passed"), None);
        assert_eq!(result_line("running 3 tests"), None);
    }

    #[test]
    fn a_program_that_dies_without_a_verdict_has_failed() {
        let mut died = Command::new("sh");
        died.args(["-c", "exit 9"]);
        assert_eq!(run_tests("a program that dies", died).unwrap(), Count { passed: 0, failed: 1 });
    }

    #[test]
    fn an_empty_group_fails_only_where_all_are_required() {
        let mut report = Report::default();
        report.groups.insert(Group::Nats, (Count::default(), Duration::ZERO));
        assert!(report.verdict(false).is_ok());
        assert!(report.verdict(true).is_err());
    }

    #[test]
    fn a_skipped_group_fails_only_where_all_are_required() {
        let report = Report { skipped: vec!["skipped: nats: gone".to_owned()], ..Report::default() };
        assert!(report.verdict(false).is_ok());
        assert!(report.verdict(true).is_err());
    }
}
