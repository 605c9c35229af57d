//! Servers that stay: `setup`, `up`, `down`, `status`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use phalanx_testkit::process::{Lifetime, Process, signal};
use phalanx_testkit::provision::{self, CASSANDRA_VERSION, NATS_VERSION};
use phalanx_testkit::{cassandra, nats};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::workspace::root;

/// A server draining its data is given this long before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// One nats-server with JetStream.
    Nats,
    /// Three nats-servers that form a cluster.
    NatsCluster,
    /// One Cassandra.
    Cassandra,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Nats, Self::NatsCluster, Self::Cassandra];

    fn name(self) -> &'static str {
        match self {
            Self::Nats => "nats",
            Self::NatsCluster => "nats-cluster",
            Self::Cassandra => "cassandra",
        }
    }

    /// The variable by which programs find it.
    fn variable(self) -> &'static str {
        match self {
            Self::Nats | Self::NatsCluster => "NATS_SERVERS",
            Self::Cassandra => cassandra::HOSTS_VARIABLE,
        }
    }

    fn dir(self) -> PathBuf {
        root().join(".servers").join(self.name())
    }
}

pub(crate) fn say(line: &str) {
    eprintln!("  {line}");
}

/// Makes both servers available.
pub(crate) fn setup() -> Result<()> {
    let nats = provision::nats(&say);
    match &nats {
        Ok(path) => println!("nats-server: {}", path.display()),
        Err(error) => println!("nats-server: {error}"),
    }
    let cassandra = match cassandra::hosts_from_env() {
        Some(hosts) => {
            println!("cassandra:   {hosts} ({})", cassandra::HOSTS_VARIABLE);
            Ok(())
        }
        None => provision::cassandra(&say).map(|home| println!("cassandra:   {}", home.lib.display())),
    };
    if let Err(error) = &cassandra {
        println!("cassandra:   {error}");
    }
    match (nats, cassandra) {
        (Ok(_), Ok(())) => Ok(()),
        _ => bail!("not everything could be set up; what is missing stands above"),
    }
}

/// Starts what is asked for and not running yet.
pub(crate) fn up(kinds: &[Kind]) -> Result<()> {
    let kinds = if kinds.is_empty() { &[Kind::Nats, Kind::Cassandra] } else { kinds };
    for &kind in kinds {
        if let Some(running) = Running::find(kind) {
            println!("{} is already running: {}={}", kind.name(), kind.variable(), running.endpoint);
            continue;
        }
        let running = start(kind).with_context(|| format!("could not start {}", kind.name()))?;
        println!("{} is up: {}={}", kind.name(), kind.variable(), running.endpoint);
    }
    Ok(())
}

/// Stops what runs.
pub(crate) fn down(kinds: &[Kind]) -> Result<()> {
    let kinds = if kinds.is_empty() { &Kind::ALL[..] } else { kinds };
    for &kind in kinds {
        match Running::find(kind) {
            Some(running) => {
                running.stop(kind)?;
                println!("{} is down; its data stays in {}", kind.name(), kind.dir().display());
            }
            None => println!("{} is not running", kind.name()),
        }
    }
    Ok(())
}

/// Says what is installed and what runs.
pub(crate) fn status() {
    let installed = |found: Result<String>| found.unwrap_or_else(|error| format!("{error:#}"));
    let not_yet = |version: &str| format!("not installed yet ({version} by `cargo xtask setup`)");
    println!(
        "nats-server  {}",
        installed(
            provision::find_nats()
                .map(|found| found.map_or_else(|| not_yet(NATS_VERSION), |path| path.display().to_string()))
                .map_err(Into::into)
        )
    );
    println!(
        "cassandra    {}",
        cassandra::hosts_from_env().map_or_else(
            || installed(
                provision::find_cassandra()
                    .map(|found| found
                        .map_or_else(|| not_yet(CASSANDRA_VERSION), |home| home.lib.display().to_string()))
                    .map_err(Into::into)
            ),
            |hosts| format!("{hosts} ({})", cassandra::HOSTS_VARIABLE)
        )
    );
    println!();
    for kind in Kind::ALL {
        match Running::find(kind) {
            Some(Running { endpoint, pids }) => {
                let pids: Vec<_> = pids.iter().map(u32::to_string).collect();
                println!("{:<12} up    {}={endpoint}  pid {}", kind.name(), kind.variable(), pids.join(", "));
            }
            None => println!("{:<12} down", kind.name()),
        }
    }
}

fn start(kind: Kind) -> Result<Running> {
    let dir = kind.dir();
    fs::create_dir_all(&dir).with_context(|| format!("could not create {}", dir.display()))?;
    let (processes, endpoint): (Vec<Process>, String) = match kind {
        Kind::Nats => {
            let node = nats::Node {
                binary: provision::nats(&say)?,
                dir: dir.clone(),
                name: "dev".to_owned(),
                ports: nats::Ports::usual()?,
                routes: Vec::new(),
                extra: String::new(),
            };
            let mut process = node.launch(Lifetime::Detached)?;
            node.wait_until_ready(&mut process)?;
            (vec![process], node.url())
        }
        Kind::NatsCluster => {
            let nodes = nats::cluster_nodes(&provision::nats(&say)?, &dir, "dev", "")?;
            let urls: Vec<_> = nodes.iter().map(nats::Node::url).collect();
            (nats::launch_cluster(&nodes, Lifetime::Detached)?, urls.join(","))
        }
        Kind::Cassandra => {
            let node = cassandra::Node::new(provision::cassandra(&say)?, &dir)?.on_usual_port();
            (vec![node.launch(Lifetime::Detached)?], node.host())
        }
    };
    let running = Running { pids: processes.iter().map(Process::id).collect(), endpoint };
    running.write(kind)?;
    Ok(running)
}

/// What `up` wrote down of the servers it started.
struct Running {
    pids: Vec<u32>,
    endpoint: String,
}

impl Running {
    fn file(kind: Kind) -> PathBuf {
        kind.dir().join("up.json")
    }

    fn write(&self, kind: Kind) -> Result<()> {
        let text = json!({ "pids": self.pids, "endpoint": self.endpoint }).to_string();
        let file = Self::file(kind);
        fs::write(&file, text).with_context(|| format!("could not write {}", file.display()))
    }

    /// What runs. A file left behind by servers that are gone says nothing; of a cluster, whoever is left must go
    /// before it can start again.
    fn find(kind: Kind) -> Option<Self> {
        let value: Value = serde_json::from_str(&fs::read_to_string(Self::file(kind)).ok()?).ok()?;
        let pids: Vec<u32> =
            value["pids"].as_array()?.iter().filter_map(|pid| pid.as_u64()?.try_into().ok()).collect();
        let alive: Vec<u32> = pids.iter().copied().filter(|&pid| is_ours(pid, kind)).collect();
        if alive.len() < pids.len() {
            alive.iter().for_each(|&pid| signal(pid, Signal::KILL));
            return None;
        }
        Some(Self { pids, endpoint: value["endpoint"].as_str()?.to_owned() })
    }

    fn stop(&self, kind: Kind) -> Result<()> {
        self.pids.iter().for_each(|&pid| signal(pid, Signal::TERM));
        let deadline = Instant::now() + STOP_PATIENCE;
        while self.pids.iter().any(|&pid| is_ours(pid, kind)) {
            if Instant::now() > deadline {
                self.pids.iter().for_each(|&pid| signal(pid, Signal::KILL));
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let file = Self::file(kind);
        fs::remove_file(&file).with_context(|| format!("could not remove {}", file.display()))
    }
}

/// Whether that process is a server of ours: a process id alone may belong to anybody by now, so its command line
/// must name our folder.
fn is_ours(pid: u32, kind: Kind) -> bool {
    let command = fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&command).contains(&kind.dir().display().to_string())
}
