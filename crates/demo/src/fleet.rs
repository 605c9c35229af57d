//! The defenders of the demo, in this process or as child processes.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::Arc;

use anyhow::Result;

use crate::child_process::{ChildCommand, ChildDefender};
use crate::environment::Environment;
use crate::in_process::InProcessDefender;
use crate::proxy::FleetProxy;

/// A defender with its pod name.
struct Member {
    name: String,
    handle: DefenderHandle,
}

enum DefenderHandle {
    InProcess(InProcessDefender),
    ChildProcess(ChildDefender),
}

/// Hits and misses of caches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheCounters {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

impl AddAssign for CacheCounters {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
    }
}

/// All defenders. Dropping it ends them without a leave record.
pub(crate) struct Fleet {
    environment: Arc<Environment>,
    /// Command of child processes, if the defenders are some.
    child_command: Option<ChildCommand>,
    members: Vec<Member>,
    proxy: FleetProxy,
    started: u32,
    /// Counters of the defenders that left.
    cache: CacheCounters,
}

impl Fleet {
    /// Creates a fleet without members; `proxy` forwards requests to its members.
    pub(crate) fn new(
        environment: Arc<Environment>,
        child_command: Option<ChildCommand>,
        proxy: FleetProxy,
    ) -> Self {
        let cache = CacheCounters::default();
        Self { environment, child_command, members: Vec::new(), proxy, started: 0, cache }
    }

    /// Returns whether the defenders are child processes.
    pub(crate) fn uses_processes(&self) -> bool {
        self.child_command.is_some()
    }

    /// Returns the pod names, the oldest first.
    pub(crate) fn names(&self) -> Vec<String> {
        self.members.iter().map(|member| member.name.clone()).collect()
    }

    /// Starts one more defender. `size` is the fleet size.
    pub(crate) async fn start(&mut self, size: u32) -> Result<String> {
        self.started += 1;
        let name = format!("pod-{}", self.started);
        self.start_as(&name, size).await?;
        Ok(name)
    }

    /// Starts a defender again under its name, as Kubernetes restarts a container: it gets its id back immediately.
    pub(crate) async fn start_as(&mut self, name: &str, size: u32) -> Result<()> {
        let environment = &*self.environment;
        let handle = match (&environment.servers, &self.child_command) {
            (Some(servers), Some(command)) => {
                let child = ChildDefender::start(command, environment, servers, name, size).await?;
                DefenderHandle::ChildProcess(child)
            }
            _ => DefenderHandle::InProcess(InProcessDefender::start(environment, name, size).await?),
        };
        self.members.push(Member { name: name.to_owned(), handle });
        self.update_proxy();
        Ok(())
    }

    /// Sets the fleet size.
    pub(crate) async fn scale(&self, size: u32) -> Result<()> {
        match self.members.first().map(|member| &member.handle) {
            Some(DefenderHandle::InProcess(defender)) => defender.scale(size).await,
            Some(DefenderHandle::ChildProcess(defender)) => defender.scale(size).await,
            None => Ok(()),
        }
    }

    /// Kills a defender, which writes no leave record.
    pub(crate) async fn crash(&mut self, name: &str) {
        drop(self.remove(name).await);
    }

    /// Shuts a defender down.
    pub(crate) async fn stop(&mut self, name: &str) -> Result<()> {
        match self.remove(name).await {
            Some(DefenderHandle::InProcess(defender)) => defender.stop().await,
            Some(DefenderHandle::ChildProcess(defender)) => defender.stop().await?,
            None => {}
        }
        Ok(())
    }

    async fn remove(&mut self, name: &str) -> Option<DefenderHandle> {
        let index = self.members.iter().position(|member| member.name == name)?;
        let member = self.members.remove(index);
        self.update_proxy();
        self.cache += match &member.handle {
            DefenderHandle::InProcess(defender) => defender.cache_counters(),
            DefenderHandle::ChildProcess(defender) => defender.cache_counters().await,
        };
        Some(member.handle)
    }

    fn update_proxy(&self) {
        let address = |member: &Member| -> SocketAddr {
            match &member.handle {
                DefenderHandle::InProcess(defender) => defender.address(),
                DefenderHandle::ChildProcess(defender) => defender.address(),
            }
        };
        self.proxy.set_targets(self.members.iter().map(address).collect());
    }

    /// Returns the cache hit rate of all defenders that have left.
    pub(crate) fn cache_hit_rate(&self) -> f64 {
        let CacheCounters { hits, misses } = self.cache;
        hits as f64 / (hits + misses).max(1) as f64
    }
}
