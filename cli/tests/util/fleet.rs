//! A real fleet: NATS, Cassandra, and `phalanx` processes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use phalanx_testkit::process::{Lifetime, Process, bound_to_parent};
use serde_json::Value;
use tempfile::TempDir;

use super::running::ask;
use phalanx_testkit::wait::until;

/// Where a fleet meets and keeps its charts.
pub(crate) struct Ground {
    pub(crate) nats: String,
    pub(crate) replicas: u32,
    pub(crate) cassandra: String,
    /// Empty for the usual one.
    pub(crate) keyspace: String,
    pub(crate) folder: TempDir,
}

impl Ground {
    /// `phalanx` that knows where everything is.
    pub(crate) fn phalanx(&self) -> Command {
        let mut command = bound_to_parent(Path::new(env!("CARGO_BIN_EXE_phalanx")));
        command
            .env("NATS_SERVERS", &self.nats)
            .env("NATS_REPLICAS", self.replicas.to_string())
            .env("CASSANDRA_HOSTS", &self.cassandra)
            .env_remove("DATA_DIR")
            .env_remove("PHALANX_URL");
        if !self.keyspace.is_empty() {
            command.env("CASSANDRA_KEYSPACE", &self.keyspace);
        }
        command
    }

    /// Starts a process and waits until it says where it listens.
    pub(crate) fn start(&self, name: &str, command: Command) -> Member {
        let log = self.folder.path().join(format!("{name}.log"));
        // A restart writes on in the same file.
        let before = read(&log).matches("listening on ").count();
        let process = Process::start(command, Lifetime::WithUs, &log).unwrap();
        let url = until("an address", || {
            let text = read(&log);
            let line = text.lines().filter_map(|line| line.strip_prefix("listening on ")).nth(before)?;
            Some(line.to_owned())
        });
        Member { name: name.to_owned(), process, url, log }
    }

    /// A defender of a fleet of that size. The name is its pod's.
    pub(crate) fn defender(
        &self,
        name: &str,
        size: u32,
        strategy: &str,
        settings: &[(&str, &str)],
    ) -> Member {
        let mut command = self.phalanx();
        command.args(["defender", "--http-addr", "127.0.0.1:0", "--strategy-file", strategy]);
        command
            .env("FLEET_SIZE", size.to_string())
            .env("POD_NAME", name)
            .env("POD_UID", format!("uid-{name}"));
        command.envs(settings.iter().copied());
        self.start(name, command)
    }
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

/// A process of the fleet.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) process: Process,
    pub(crate) url: String,
    pub(crate) log: PathBuf,
}

impl Member {
    pub(crate) fn get(&self, path: &str) -> Value {
        ask(&self.url, "GET", path, None, "text/plain", "").1
    }

    pub(crate) fn id(&self) -> Option<String> {
        self.get("/api/v1/status")["defenderId"].as_str().map(str::to_owned)
    }

    pub(crate) fn leads(&self) -> bool {
        self.get("/api/v1/status")["isLeader"] == true
    }

    pub(crate) fn is_ready(&self) -> bool {
        ask(&self.url, "GET", "/health/ready", None, "text/plain", "").0 == 200
    }

    /// What it has said.
    pub(crate) fn said(&self) -> String {
        read(&self.log)
    }

    /// SIGTERM; it must leave in good order.
    pub(crate) fn leave(&mut self) {
        let left = self.process.terminate(Duration::from_secs(30));
        assert!(left.is_some_and(|status| status.success()), "{} did not leave: {}", self.name, self.said());
    }
}

/// A failed test shows the readiness and the log of each process.
impl Drop for Member {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let ready = match self.process.is_alive() {
                true => self.get("/health/ready"),
                false => "the process has ended".into(),
            };
            println!("--- {}: {ready}\n{}", self.name, self.said());
        }
    }
}
