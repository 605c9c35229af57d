//! A node: one member of the set that keeps the leases, as everything around it sees it.

pub(crate) mod asking;
mod forming;
mod keeping;
mod proposer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use openraft::{ServerState, SnapshotPolicy};
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::metrics::Metrics;
use crate::raft::disk::{self, Disk};
use crate::raft::log::Log as RaftLog;
use crate::raft::machine::{Applied, Machine};
use crate::raft::network::Peers;
use crate::raft::{self, Raft};
use crate::security::{self, Security};
use forming::{MEMORY, Memory};
use proposer::Proposer;

/// Where lines for people go; those that need somebody begin with `warning: ` or `error: `.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// How often the leader says that it is there. A message to another node may take as long.
const HEARTBEAT_MS: u64 = 150;
/// A leader is believed for `…_MAX` after its last word; then a candidate comes forward after a random time within these. So
/// another leads 1.0 to 1.3 s after one has died.
const CANDIDACY_MS_MIN: u64 = 350;
const CANDIDACY_MS_MAX: u64 = 650;
/// A snapshot for so many entries, and so many are kept behind it for those that were away for a moment.
const SNAPSHOT_ENTRIES: u64 = 2000;
const KEPT_ENTRIES: u64 = 500;
/// A follower that has heard nothing for so long does not know how things are.
const OUT_OF_TOUCH: Duration = Duration::from_millis(2000);

/// What a node is told.
#[derive(Clone)]
pub struct Config {
    /// Its number in the set; above 0.
    pub id: u64,
    /// Where it remembers.
    pub data_dir: PathBuf,
    /// How it reaches the others. With an empty folder: the set that begins together.
    pub peers: BTreeMap<u64, String>,
    /// With an empty folder: who is asked to let it in.
    pub join: Vec<String>,
    /// How others reach it.
    pub advertise: String,
    /// What protects its connections.
    pub security: Security,
    /// Where lines for people go.
    pub log: Log,
}

/// Why a node does not start, or has ended.
#[derive(Debug, Error)]
pub enum Error {
    /// Its folder cannot be used.
    #[error(transparent)]
    Disk(#[from] disk::Error),
    /// Its settings cannot be used.
    #[error(transparent)]
    Security(#[from] security::Error),
    /// The folder is another node's.
    #[error("the data folder {} belongs to node {found}, not to node {wanted}: name another with --data-dir, or say --node-id {found}", .folder.display())]
    AnotherNode {
        /// Which folder.
        folder: PathBuf,
        /// Who it was made by.
        found: u64,
        /// Who wants it.
        wanted: u64,
    },
    /// It cannot go on.
    #[error("{0}")]
    Ended(String),
}

/// A running node. Clones are the same node.
#[derive(Clone)]
pub struct Node(Arc<Inside>);

struct Inside {
    config: Config,
    disk: Disk,
    log: RaftLog,
    raft: Raft,
    peers: Peers,
    applied: Arc<Applied>,
    proposer: Proposer,
    measured: Arc<Metrics>,
    is_open: AtomicBool,
    /// What it waits for before it takes part as a member.
    waits_for: Mutex<Option<String>>,
    failed: watch::Sender<Option<String>>,
    heard: Mutex<Option<Instant>>,
    changing: tokio::sync::Mutex<()>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Node {
    /// Opens the folder and begins to take part as soon as that is possible.
    pub(crate) async fn start(config: Config, measured: Arc<Metrics>) -> Result<Self, Error> {
        for address in config.peers.values().chain(&config.join) {
            config.security.endpoint(address)?;
        }
        let routes = config.peers.iter().filter(|(id, _)| **id != config.id);
        let peers = Peers::new(config.security.clone(), routes.map(|(id, at)| (*id, at.clone())).collect())?;
        let (disk, found) = Disk::open(&config.data_dir)?;
        match found.fact::<u64>("node")? {
            Some(other) if other != config.id => {
                let (folder, wanted) = (config.data_dir, config.id);
                return Err(Error::AnotherNode { folder, found: other, wanted });
            }
            Some(_) => {}
            None => {
                disk.remember("node", &config.id).await.map_err(|error| Error::Ended(error.to_string()))?
            }
        }
        let memory: Option<Memory> = found.fact(MEMORY)?;
        let log = RaftLog::open(disk.clone(), &found)?;
        let counting = measured.clone();
        let on_reply = Box::new(move |command: &_, reply: &_| counting.applied(command, reply));
        let machine = Machine::open(disk.clone(), &found, on_reply)?;
        drop(found);
        let applied = machine.applied();
        let raft = Raft::new(config.id, Arc::new(raft_config()), peers.clone(), log.clone(), machine).await;
        let raft = raft.map_err(|error| Error::Ended(error.to_string()))?;
        let node = Self(Arc::new(Inside {
            proposer: Proposer::start(raft.clone()),
            config,
            disk,
            log,
            raft,
            peers,
            applied,
            measured,
            is_open: AtomicBool::new(memory.is_some()),
            waits_for: Mutex::new(Some("the others".to_owned())),
            failed: watch::Sender::new(None),
            heard: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            tasks: Mutex::default(),
        }));
        if memory == Some(Memory::Member) {
            node.settled();
        }
        let tasks = vec![
            tokio::spawn(node.clone().form(memory)),
            tokio::spawn(node.clone().end_terms()),
            tokio::spawn(node.clone().make_room()),
            tokio::spawn(node.clone().tell_changes()),
        ];
        *node.0.tasks.lock().unwrap_or_else(PoisonError::into_inner) = tasks;
        Ok(node)
    }

    /// Stops taking part. What was acknowledged is on the disk.
    pub(crate) async fn stop(&self) {
        for task in self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
        let _ = self.0.raft.shutdown().await;
    }

    /// Waits until the node cannot go on, and says why.
    pub(crate) async fn ended(&self) -> Error {
        let mut metrics = self.0.raft.metrics();
        let mut failed = self.0.failed.subscribe();
        loop {
            if let Err(fatal) = &metrics.borrow_and_update().running_state {
                return Error::Ended(format!(
                    "the node cannot go on: {fatal}; what was acknowledged is kept, restart it when that is mended"
                ));
            }
            if let Some(reason) = &*failed.borrow_and_update() {
                return Error::Ended(reason.clone());
            }
            tokio::select! {
                changed = metrics.changed() => if changed.is_err() {
                    return Error::Ended("the node has stopped".to_owned());
                },
                _ = failed.changed() => {}
            }
        }
    }

    /// Its number in the set.
    pub fn id(&self) -> u64 {
        self.0.config.id
    }

    /// Who leads the set, or why nobody is known to.
    pub(crate) fn leader(&self) -> Result<u64, String> {
        if !self.is_open() {
            return Err(format!("node {} waits for {}", self.id(), self.waits_for().unwrap_or_default()));
        }
        let metrics = self.metrics();
        metrics.current_leader.ok_or_else(|| format!("no leader is known to node {}", self.id()))
    }

    /// Whether this node knows how things are, or why not.
    pub(crate) fn in_touch(&self) -> Result<(), String> {
        let leader = self.leader()?;
        if leader == self.id() {
            return self.heard_by_a_majority();
        }
        match self.silence() {
            Some(silence) if silence < OUT_OF_TOUCH => Ok(()),
            Some(silence) => Err(format!(
                "node {} has heard nothing of the leader for {} ms",
                self.id(),
                silence.as_millis()
            )),
            None => Err(format!("node {} has heard nothing of the leader yet", self.id())),
        }
    }

    /// Where a member is reached from here.
    pub(crate) fn address_of(&self, id: u64) -> Option<String> {
        let metrics = self.metrics();
        let advertised = metrics.membership_config.membership().get_node(&id).map(|node| node.addr.as_str());
        let route = self.0.peers.route(id, advertised.unwrap_or_default());
        (!route.is_empty()).then(|| route.to_owned())
    }

    /// What it waits for before it is a member.
    pub(crate) fn waits_for(&self) -> Option<String> {
        self.0.waits_for.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it takes part in Raft.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_open.load(Ordering::Acquire)
    }

    /// Whether it belongs to a set that has begun to work: more is in the log than who belongs to it.
    pub(crate) fn has_begun(&self) -> bool {
        self.0.log.last_index().is_some_and(|last| last >= 1)
    }

    /// The leader was heard.
    pub(crate) fn note_word(&self) {
        *self.0.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How it and the set are, as it sees it.
    pub(crate) fn metrics(&self) -> raft::Metrics {
        self.0.raft.metrics().borrow().clone()
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.config
    }

    pub(crate) fn raft(&self) -> &Raft {
        &self.0.raft
    }

    pub(crate) fn applied(&self) -> &Applied {
        &self.0.applied
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.0.peers
    }

    pub(crate) fn measured(&self) -> &Metrics {
        &self.0.measured
    }

    fn proposer(&self) -> &Proposer {
        &self.0.proposer
    }

    fn disk(&self) -> &Disk {
        &self.0.disk
    }

    fn changing(&self) -> &tokio::sync::Mutex<()> {
        &self.0.changing
    }

    fn others(&self) -> BTreeMap<u64, String> {
        let peers = self.config().peers.iter().filter(|(id, _)| **id != self.id());
        peers.map(|(id, address)| (*id, address.clone())).collect()
    }

    /// Everybody that this node was told of.
    fn known(&self) -> Vec<String> {
        self.config().join.iter().cloned().chain(self.others().into_values()).collect()
    }

    fn silence(&self) -> Option<Duration> {
        let heard = *self.0.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.map(|heard| heard.elapsed())
    }

    fn open(&self) {
        self.0.is_open.store(true, Ordering::Release);
    }

    fn settled(&self) {
        *self.0.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn wait_for(&self, what: String) {
        let mut waits_for = self.0.waits_for.lock().unwrap_or_else(PoisonError::into_inner);
        if waits_for.as_ref() != Some(&what) {
            self.say(&format!("waiting for {what}"));
            *waits_for = Some(what);
        }
    }

    fn fail(&self, reason: String) {
        self.0.failed.send_replace(Some(reason));
    }

    fn say(&self, line: &str) {
        (self.0.config.log)(line);
    }

    /// Says whenever another node leads, and counts it. Runs for ever.
    async fn tell_changes(self) {
        let mut metrics = self.0.raft.metrics();
        let mut known = None;
        loop {
            let now = {
                let metrics = metrics.borrow_and_update();
                metrics.current_leader.map(|leader| (leader, metrics.current_term))
            };
            if let Some((leader, term)) = now
                && now != known
            {
                known = now;
                self.measured().leader_changed();
                let who = if leader == self.id() { "this node".to_owned() } else { format!("node {leader}") };
                self.say(&format!("{who} leads in term {term}"));
            }
            if metrics.changed().await.is_err() {
                return;
            }
        }
    }
}

/// What a node does at present, in a word.
pub(crate) fn role(node: &Node, metrics: &raft::Metrics) -> &'static str {
    if !node.is_open() {
        return "joining";
    }
    match metrics.state {
        ServerState::Leader => "leader",
        ServerState::Follower => "follower",
        ServerState::Candidate => "candidate",
        ServerState::Learner => "learner",
        ServerState::Shutdown => "stopped",
    }
}

fn raft_config() -> openraft::Config {
    openraft::Config {
        cluster_name: "election".to_owned(),
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: CANDIDACY_MS_MIN,
        election_timeout_max: CANDIDACY_MS_MAX,
        install_snapshot_timeout: 5000,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(SNAPSHOT_ENTRIES),
        max_in_snapshot_log_to_keep: KEPT_ENTRIES,
        snapshot_max_chunk_size: 1 << 20,
        ..openraft::Config::default()
    }
}
