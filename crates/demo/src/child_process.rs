//! A defender of the demo as a child process.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use phalanx_defender::app::random_hex;
use phalanx_settings::{
    API_TOKEN, CASSANDRA_HOSTS, CASSANDRA_KEYSPACE, FLEET_SIZE, HTTP_ADDR, NATS_KV_ASSIGNMENTS,
    NATS_KV_CURSORS, NATS_KV_ELECTION, NATS_KV_HEARTBEATS, NATS_KV_STABLE_IDS, NATS_SERVERS,
    NATS_STREAM_ALARMS, NATS_STREAM_DEAD_LETTERS, NATS_STREAM_NAME, POD_NAME, POD_UID, SCALE_WINDOW_SECONDS,
    STRATEGY_FILE,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::environment::{Environment, ServerEnvironment};
use crate::fleet::CacheCounters;

/// Limit of a process's start and of its shutdown.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval of both.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Limit of a request; the service itself gives up after 30 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(35);
/// Number of output lines that are kept for an error.
const MAX_OUTPUT_LINES: usize = 20;

/// Command that runs a defender until its standard input closes.
#[derive(Clone, Debug)]
pub struct ChildCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

/// A defender in a process of its own. Dropping it kills the process.
pub(crate) struct ChildDefender {
    name: String,
    child: Child,
    /// Last lines of its output.
    last_output: Arc<Mutex<VecDeque<String>>>,
    address: SocketAddr,
    token: String,
}

impl ChildDefender {
    pub(crate) async fn start(
        command: &ChildCommand,
        environment: &Environment,
        servers: &ServerEnvironment,
        name: &str,
        size: u32,
    ) -> Result<Self> {
        let token = random_hex();
        let mut command = command.command();
        command
            .envs(store_names(environment))
            .env(NATS_SERVERS.name, &servers.urls)
            .env(CASSANDRA_HOSTS.name, &servers.cassandra.hosts)
            .env(CASSANDRA_KEYSPACE.name, &servers.cassandra.keyspace)
            .env(STRATEGY_FILE.name, environment.strategy_file())
            .env(HTTP_ADDR.name, "127.0.0.1:0")
            .env(API_TOKEN.name, &token)
            .env(FLEET_SIZE.name, size.to_string())
            .env(SCALE_WINDOW_SECONDS.name, "1")
            .env(POD_NAME.name, name)
            .env(POD_UID.name, format!("uid-{name}"));
        let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        let last_output = Arc::<Mutex<VecDeque<String>>>::default();
        if let Some(stderr) = child.stderr.take() {
            collect_output(stderr, last_output.clone());
        }
        let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut started = Self { name: name.to_owned(), child, last_output, address: unknown, token };
        started.address = started.wait_for_address().await?;
        Ok(started)
    }

    /// Waits until it prints its listen address.
    async fn wait_for_address(&mut self) -> Result<SocketAddr> {
        let deadline = Instant::now() + PROCESS_TIMEOUT;
        loop {
            let output = self.last_output();
            let url = output.lines().find_map(|line| line.strip_prefix("listening on http://")?.parse().ok());
            if let Some(address) = url {
                return Ok(address);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                bail!("{} ended with {status}:\n{}", self.name, self.last_output());
            }
            if Instant::now() > deadline {
                let limit = PROCESS_TIMEOUT.as_secs();
                bail!("{} does not listen after {limit} s:\n{output}", self.name);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn last_output(&self) -> String {
        let lines = self.last_output.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters of its cache; zeros if it does not answer.
    pub(crate) async fn cache_counters(&self) -> CacheCounters {
        let response = self.request("/api/v1/cache/stats", None).await.unwrap_or_default();
        let number = |name: &str| response[name].as_u64().unwrap_or_default();
        CacheCounters { hits: number("hits"), misses: number("misses") }
    }

    pub(crate) async fn scale(&self, size: u32) -> Result<()> {
        self.request("/api/v1/scale", Some(json!({ "fleetSize": size }))).await.map(drop)
    }

    /// Sends a request: POST with a body, GET without one.
    async fn request(&self, path: &str, body: Option<Value>) -> Result<Value> {
        let (url, token) = (format!("http://{}{path}", self.address), format!("Bearer {}", self.token));
        let send = move || -> Result<Value> {
            let agent: ureq::Agent =
                ureq::Agent::config_builder().timeout_global(Some(REQUEST_TIMEOUT)).build().into();
            let mut response = match body {
                None => agent.get(&url).header("authorization", token).call(),
                Some(body) => {
                    let post = agent.post(&url).header("authorization", token);
                    post.header("content-type", "application/json").send(body.to_string())
                }
            }
            .with_context(|| url.clone())?;
            Ok(serde_json::from_str(&response.body_mut().read_to_string()?)?)
        };
        tokio::task::spawn_blocking(send).await?
    }

    /// Sends SIGTERM and waits for the graceful shutdown.
    pub(crate) async fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .with_context(|| format!("{} cannot be told to leave", self.name))?;
        let deadline = Instant::now() + PROCESS_TIMEOUT;
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("{} left with {status}:\n{}", self.name, self.last_output()),
                None if Instant::now() > deadline => {
                    let limit = PROCESS_TIMEOUT.as_secs();
                    bail!("{} has not left after {limit} s:\n{}", self.name, self.last_output())
                }
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }
}

impl Drop for ChildDefender {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ChildCommand {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            // Only the demo handles Ctrl-C; it ends its defenders itself.
            .process_group(0)
            // The child ends when its standard input closes, however the demo ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }
}

/// Returns the settings that name its buckets and streams.
fn store_names(environment: &Environment) -> [(&'static str, &str); 8] {
    let settings = &environment.settings;
    [
        (NATS_KV_STABLE_IDS.name, &settings.stable_ids.name),
        (NATS_KV_HEARTBEATS.name, &settings.heartbeats.name),
        (NATS_KV_ASSIGNMENTS.name, &settings.assignments.name),
        (NATS_KV_ELECTION.name, &settings.election.name),
        (NATS_KV_CURSORS.name, &settings.cursors.name),
        (NATS_STREAM_NAME.name, &settings.log.name),
        (NATS_STREAM_DEAD_LETTERS.name, &settings.dead_letters.name),
        (NATS_STREAM_ALARMS.name, &environment.alarms.name),
    ]
}

/// Reads its output until it ends, so that it never blocks on a full pipe.
fn collect_output(stderr: ChildStderr, last_output: Arc<Mutex<VecDeque<String>>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let mut lines = last_output.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push_back(line);
            if lines.len() > MAX_OUTPUT_LINES {
                lines.pop_front();
            }
        }
    });
}
