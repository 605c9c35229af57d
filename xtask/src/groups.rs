//! Which tests there are, and what each group of them needs.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use serde_json::Value;

use crate::workspace::{cargo, output};

/// A group of tests, by the name of their file: `tests/nats_kv.rs` is in the group `nats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Group {
    /// Needs nothing: unit, property and doc tests.
    Unit,
    /// Runs the binary.
    Cli,
    /// Starts processes of its own and kills them.
    Process,
    /// Simulates clusters over fresh seeds for fifty cluster-hours.
    Sim,
    /// Needs real nats-servers.
    Nats,
    /// Needs a real Cassandra.
    Cassandra,
}

impl Group {
    pub(crate) const ALL: [Self; 6] =
        [Self::Unit, Self::Cli, Self::Sim, Self::Process, Self::Nats, Self::Cassandra];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Cli => "cli",
            Self::Process => "process",
            Self::Sim => "sim",
            Self::Nats => "nats",
            Self::Cassandra => "cassandra",
        }
    }

    /// Returns what the tests of this group need.
    pub(crate) fn needs(self) -> &'static str {
        match self {
            Self::Unit => "nothing",
            Self::Cli => "the binary, which it builds",
            Self::Process => "processes that it starts and kills",
            Self::Sim => "fifty cluster-hours of simulation",
            Self::Nats => "nats-server 2.11 or newer, which it fetches once (Python 3 with pip)",
            Self::Cassandra => "Apache Cassandra, which it fetches once (Java 17 and Maven), and nats-server",
        }
    }

    fn of(kind: &str, target: &str) -> Self {
        let prefix = target.split('_').next().unwrap_or_default();
        Self::ALL.into_iter().find(|group| kind == "test" && group.name() == prefix).unwrap_or(Self::Unit)
    }
}

/// A test program that cargo built.
pub(crate) struct Program {
    pub(crate) group: Group,
    /// Crate and target, such as `phalanx-etl machines`.
    pub(crate) name: String,
    pub(crate) executable: PathBuf,
    /// Where cargo would run it.
    pub(crate) dir: PathBuf,
}

/// Tests of the store on Cassandra are built where its driver is asked for, and silently left out otherwise.
const WITH_CASSANDRA: [&str; 2] = ["--features", "phalanx-defender/cassandra"];

/// The protobuf compiler has no tests, and only `check` and `fix` need it.
pub(crate) const CODEGEN: &str = "phalanx-proto-codegen";

/// Builds every test of the workspace and returns the test programs.
pub(crate) fn build() -> Result<Vec<Program>> {
    let mut command = cargo(&["test", "--workspace", "--exclude", CODEGEN, "--no-run"]);
    command.arg("--message-format=json-render-diagnostics").args(WITH_CASSANDRA);
    let messages = output(command.stderr(std::process::Stdio::inherit()))?;
    let mut programs: Vec<Program> =
        messages.lines().filter_map(|line| program(line).transpose()).collect::<Result<_>>()?;
    if programs.is_empty() {
        bail!("cargo built no test");
    }
    programs.sort_by(|a, b| (a.group, &a.name).cmp(&(b.group, &b.name)));
    Ok(programs)
}

fn program(message: &str) -> Result<Option<Program>> {
    let message: Value = serde_json::from_str(message).context("cargo printed something that is not JSON")?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let Some(executable) = message["executable"].as_str().filter(|_| is_test) else { return Ok(None) };
    let manifest = PathBuf::from(message["manifest_path"].as_str().unwrap_or_default());
    let dir = manifest.parent().context("cargo named no manifest")?.to_owned();
    let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
    let target = message["target"]["name"].as_str().unwrap_or_default();
    let package = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Some(Program {
        group: Group::of(kind, target),
        name: format!("{package} {target}"),
        executable: PathBuf::from(executable),
        dir,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_file_belongs_to_the_group_its_name_begins_with() {
        assert_eq!(Group::of("test", "nats_server"), Group::Nats);
        assert_eq!(Group::of("test", "cassandra_restart"), Group::Cassandra);
        assert_eq!(Group::of("test", "cli_fsm"), Group::Cli);
        assert_eq!(Group::of("test", "process_kill"), Group::Process);
        assert_eq!(Group::of("test", "sim_chaos"), Group::Sim);
        assert_eq!(Group::of("test", "machines"), Group::Unit);
    }

    #[test]
    fn a_crate_named_like_a_group_keeps_its_unit_tests_in_unit() {
        assert_eq!(Group::of("lib", "cli_parts"), Group::Unit);
    }
}
