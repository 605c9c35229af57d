//! A defender of the demo as a process of its own.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::fleet::Asked;
use super::ground::{Ground, OnServers};
use crate::client::{Client, ServiceArgs};
use crate::random;

/// How long a process may take to listen, and to leave.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether it does.
const LOOK: Duration = Duration::from_millis(10);
/// How many of its last lines are shown when it fails.
const LINES: usize = 20;

/// Dropped, it is killed with -9.
pub(super) struct Apart {
    name: String,
    child: Child,
    said: Arc<Mutex<VecDeque<String>>>,
    address: SocketAddr,
    token: String,
}

impl Apart {
    pub(super) async fn start(ground: &Ground, servers: &OnServers, name: &str, size: u32) -> Result<Self> {
        let token = random::hex();
        let program = std::env::current_exe().context("this program does not know where it lies")?;
        let mut command = Command::new(program);
        command
            // It ends with us, however we end: then its standard input does.
            .args(["defender", "--until-stdin-ends"])
            .env_clear()
            .envs(variables(ground))
            .env("NATS_SERVERS", &servers.urls)
            .env("CASSANDRA_HOSTS", &servers.cassandra.hosts)
            .env("CASSANDRA_KEYSPACE", &servers.cassandra.keyspace)
            .env("STRATEGY_FILE", ground.strategy_file())
            .env("HTTP_ADDR", "127.0.0.1:0")
            .env("API_TOKEN", &token)
            .env("FLEET_SIZE", size.to_string())
            .env("SCALE_WINDOW_SECONDS", "1")
            .env("POD_NAME", name)
            .env("POD_UID", format!("uid-{name}"))
            // Ctrl-C is for the demo alone: what becomes of its defenders it says itself.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        let said = Arc::<Mutex<VecDeque<String>>>::default();
        if let Some(errors) = child.stderr.take() {
            listen(errors, said.clone());
        }
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut apart = Self { name: name.to_owned(), child, said, address: nowhere, token };
        apart.address = apart.listens().await?;
        Ok(apart)
    }

    /// Waits until it says where it listens.
    async fn listens(&mut self) -> Result<SocketAddr> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let url =
                self.said().lines().find_map(|line| line.strip_prefix("listening on http://")?.parse().ok());
            if let Some(address) = url {
                return Ok(address);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                bail!("{} ended with {status}:\n{}", self.name, self.said());
            }
            if Instant::now() > deadline {
                bail!("{} does not listen after {} s:\n{}", self.name, PATIENCE.as_secs(), self.said());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What its cache could answer, and what not.
    pub(super) async fn asked(&self) -> Asked {
        let answer = self.ask(|client| client.get("/api/v1/cache/stats")).await.unwrap_or_default();
        let number = |name: &str| answer[name].as_u64().unwrap_or_default();
        Asked { hits: number("hits"), misses: number("misses") }
    }

    pub(super) async fn scale(&self, size: u32) -> Result<()> {
        let body = json!({ "fleetSize": size });
        self.ask(move |client| client.post("/api/v1/scale", &body)).await.map(drop)
    }

    async fn ask(&self, ask: impl FnOnce(&Client) -> Result<Value> + Send + 'static) -> Result<Value> {
        let url = Some(format!("http://{}", self.address));
        let client = ServiceArgs { url, data_dir: None, token: Some(self.token.clone()) }.client()?;
        tokio::task::spawn_blocking(move || ask(&client)).await?
    }

    /// SIGTERM, and waits until it has left in good order.
    pub(super) async fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .with_context(|| format!("{} cannot be told to leave", self.name))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("{} left with {status}:\n{}", self.name, self.said()),
                None if Instant::now() > deadline => {
                    bail!("{} has not left after {} s:\n{}", self.name, PATIENCE.as_secs(), self.said())
                }
                None => tokio::time::sleep(LOOK).await,
            }
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The names of its buckets and streams.
fn variables(ground: &Ground) -> [(&'static str, &str); 8] {
    let settings = &ground.settings;
    [
        ("NATS_KV_STABLE_IDS", &settings.stable_ids.name),
        ("NATS_KV_HEARTBEATS", &settings.heartbeats.name),
        ("NATS_KV_ASSIGNMENTS", &settings.assignments.name),
        ("NATS_KV_ELECTION", &settings.election.name),
        ("NATS_KV_CURSORS", &settings.cursors.name),
        ("NATS_STREAM_NAME", &settings.log.name),
        ("NATS_STREAM_DEAD_LETTERS", &settings.dead_letters.name),
        ("NATS_STREAM_ALARMS", &ground.alarms.name),
    ]
}

/// Reads what it says until it ends, so that it never waits for a reader.
fn listen(errors: ChildStderr, said: Arc<Mutex<VecDeque<String>>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            said.push_back(line);
            if said.len() > LINES {
                said.pop_front();
            }
        }
    });
}
