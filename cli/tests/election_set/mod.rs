//! Several `phalanx election-agent` processes with data on disk, whose links to each other run through proxies.

#![allow(dead_code, reason = "each test file is a crate of its own and uses its share")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use phalanx_election::client::{Acquired, Candidacy, Client, Error, Held};
use phalanx_election::security::Security;
use phalanx_testkit::process::{Lifetime, Process, bound_to_parent};
use phalanx_testkit::proxy::Proxy;
use phalanx_testkit::wait::until_async;
use tempfile::TempDir;

/// The shortest term there is.
pub(crate) const TERM: Duration = Duration::from_secs(1);

/// A set of nodes.
pub(crate) struct Set {
    folder: TempDir,
    pub(crate) nodes: BTreeMap<u64, Node>,
    /// The way of the first to the second.
    pub(crate) links: BTreeMap<(u64, u64), Proxy>,
}

/// A node that runs.
pub(crate) struct Node {
    pub(crate) process: Process,
    pub(crate) grpc: SocketAddr,
    log: PathBuf,
}

impl Set {
    /// That many nodes, which have begun.
    pub(crate) async fn start(size: u64) -> Self {
        let mut set = Self::prepared(size);
        for id in 1..=size {
            set.start_node(id, &[]);
        }
        set.leader().await;
        set
    }

    /// Folders and links for that many nodes.
    pub(crate) fn prepared(size: u64) -> Self {
        let pairs = (1..=size).flat_map(|from| (1..=size).map(move |to| (from, to)));
        let links = pairs.filter(|(from, to)| from != to).map(|pair| (pair, Proxy::new().unwrap()));
        Self { folder: tempfile::tempdir().unwrap(), nodes: BTreeMap::new(), links: links.collect() }
    }

    pub(crate) fn data_dir(&self, id: u64) -> PathBuf {
        self.folder.path().join(format!("node-{id}"))
    }

    fn peers(&self, id: u64) -> String {
        let ways = self.links.iter().filter(|((from, _), _)| *from == id);
        let others = ways.map(|((_, to), proxy)| format!("{to}={}", proxy.address()));
        // Nobody reaches itself this way.
        others.chain([format!("{id}=127.0.0.1:1")]).collect::<Vec<_>>().join(",")
    }

    /// Starts a node on its folder, with what is there.
    pub(crate) fn start_node(&mut self, id: u64, more: &[&str]) {
        let mut command = agent(&self.data_dir(id));
        command.args(["--node-id", &id.to_string(), "--peers", &self.peers(id)]).args(more);
        let node = Node::start(command, &self.folder.path().join(format!("node-{id}.log")));
        for ((_, to), proxy) in &self.links {
            if *to == id {
                proxy.lead_to(node.grpc);
            }
        }
        self.nodes.insert(id, node);
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self, id: u64) {
        self.nodes.remove(&id).expect("it runs").process.kill();
    }

    /// A client of all nodes that run.
    pub(crate) fn client(&self) -> Client {
        self.client_of(&self.nodes.keys().copied().collect::<Vec<_>>())
    }

    /// A client of these nodes.
    pub(crate) fn client_of(&self, ids: &[u64]) -> Client {
        let addresses: Vec<String> = ids.iter().map(|id| self.nodes[id].grpc.to_string()).collect();
        Client::new(&addresses, &Security::default()).unwrap()
    }

    /// Who leads the replication, once all nodes that run agree on it.
    pub(crate) async fn leader(&self) -> u64 {
        let running: Vec<u64> = self.nodes.keys().copied().collect();
        self.leader_among(&running).await
    }

    /// Who leads the replication, once these agree on it.
    pub(crate) async fn leader_among(&self, ids: &[u64]) -> u64 {
        let client = self.client_of(ids);
        until_async("a leader that all nodes know", async || {
            let known: Vec<u64> = client
                .status()
                .await
                .into_iter()
                .map(|(_, now)| now.map_or(0, |now| now.leader_id))
                .collect();
            known.iter().all(|leader| *leader == known[0] && ids.contains(leader)).then(|| known[0])
        })
        .await
    }

    /// Cuts a node off from all others, both ways.
    pub(crate) fn isolate(&self, id: u64) {
        for ((from, to), link) in &self.links {
            if *from == id || *to == id {
                link.cut_both();
            }
        }
    }

    /// Mends every link.
    pub(crate) fn mend(&self) {
        self.links.values().for_each(Proxy::mend);
    }
}

impl Node {
    /// Starts a process and waits until it listens.
    pub(crate) fn start(command: Command, log: &Path) -> Self {
        let read = || std::fs::read_to_string(log).unwrap_or_default();
        // A restart writes on in the same file.
        let before = read().matches("listening on ").count();
        let process = Process::start(command, Lifetime::WithUs, log).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        let line = |text: &str, prefix: &str| {
            text.lines().filter_map(|line| line.strip_prefix(prefix)).nth(before).map(str::to_owned)
        };
        loop {
            let text = read();
            if let (Some(grpc), Some(_)) =
                (line(&text, "granting leaderships on "), line(&text, "listening on "))
            {
                let grpc = grpc.split_once(": ").expect("an address").0.parse().unwrap();
                return Self { process, grpc, log: log.to_owned() };
            }
            assert!(Instant::now() < deadline, "the agent does not listen: {text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What it has said.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// `phalanx election-agent` on a folder, on free ports.
pub(crate) fn agent(data_dir: &Path) -> Command {
    let mut command = bound_to_parent(Path::new(env!("CARGO_BIN_EXE_phalanx")));
    command.args([
        "election-agent",
        "--grpc-addr",
        "127.0.0.1:0",
        "--http-addr",
        "127.0.0.1:0",
        "--data-dir",
    ]);
    command.arg(data_dir);
    command
}

/// Takes a leadership that is free, whatever befalls the answers.
pub(crate) async fn take(client: &Client, election: &str, candidate: &str, ttl: Duration) -> Held {
    let candidacy = Candidacy::new(election, candidate, ttl);
    until_async("a leadership", async || match client.acquire(&candidacy).await {
        Ok(Acquired::Leads(held)) => Some(held),
        Ok(Acquired::Other(other)) => panic!("{} leads {election}", other.leader),
        Err(Error::NotDone(_) | Error::Unknown(_)) => None,
        Err(error) => panic!("{error}"),
    })
    .await
}
