//! Runs the real binary.

#![allow(dead_code, reason = "each test file is a crate of its own and uses its share")]
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

pub(crate) mod fleet;
pub(crate) mod running;

use std::path::Path;
use std::process::Command;

/// What a run of the binary came to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Exit code 0, or the whole run is shown.
    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        self.fails_with(0)
    }

    /// That exit code, or the whole run is shown.
    #[track_caller]
    pub(crate) fn fails_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }
}

/// Runs `phalanx` with these arguments.
pub(crate) fn phalanx(arguments: &[&str]) -> Run {
    run(phalanx_command().args(arguments))
}

/// Runs `phalanx` with these arguments in that folder.
pub(crate) fn phalanx_in(dir: &Path, arguments: &[&str]) -> Run {
    run(phalanx_command().current_dir(dir).args(arguments))
}

/// `phalanx`, not started yet. Servers that the run of the tests knows of are none of its business until it is told.
pub(crate) fn phalanx_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_phalanx"));
    for name in ["NATS_SERVERS", "CASSANDRA_HOSTS", "DATA_DIR", "PHALANX_URL", "API_TOKEN"] {
        command.env_remove(name);
    }
    command
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Run {
    let output = command.output().expect("the binary starts");
    Run {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// What cve needs before it runs, as small as it gets: `--source` takes it.
pub(crate) fn cwe_source() -> String {
    concat!("cwe=", env!("CARGO_MANIFEST_DIR"), "/../crates/etl/tests/fixtures/cwe-catalogue").to_owned()
}
