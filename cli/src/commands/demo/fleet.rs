//! The defenders of the demo, in this process or each in one of its own.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::Arc;

use anyhow::Result;

use super::apart::Apart;
use super::door::Door;
use super::ground::Ground;
use super::here::Here;

/// A defender, and what people call it.
struct Member {
    name: String,
    body: Body,
}

enum Body {
    Here(Here),
    Apart(Apart),
}

/// What caches could answer, and what not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) hits: u64,
    pub(super) misses: u64,
}

impl AddAssign for Asked {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
    }
}

/// All of them. Dropped, none says farewell.
pub(super) struct Fleet {
    ground: Arc<Ground>,
    /// Whether each is a process.
    processes: bool,
    members: Vec<Member>,
    door: Door,
    started: u32,
    /// What the caches of those that left were asked.
    asked: Asked,
}

impl Fleet {
    /// Creates a fleet without members; `door` forwards requests to its members.
    pub(super) fn new(ground: Arc<Ground>, processes: bool, door: Door) -> Self {
        Self { ground, processes, members: Vec::new(), door, started: 0, asked: Asked::default() }
    }

    /// What they are called, the oldest first.
    pub(super) fn names(&self) -> Vec<String> {
        self.members.iter().map(|member| member.name.clone()).collect()
    }

    /// Starts one more. `size` is how many there should be.
    pub(super) async fn start(&mut self, size: u32) -> Result<String> {
        self.started += 1;
        let name = format!("pod-{}", self.started);
        self.start_as(&name, size).await?;
        Ok(name)
    }

    /// Starts one that was there before, as Kubernetes restarts a container: it gets its id back at once.
    pub(super) async fn start_as(&mut self, name: &str, size: u32) -> Result<()> {
        let body = match &self.ground.servers {
            Some(servers) if self.processes => {
                Body::Apart(Apart::start(&self.ground, servers, name, size).await?)
            }
            _ => Body::Here(Here::start(&self.ground, name, size).await?),
        };
        self.members.push(Member { name: name.to_owned(), body });
        self.open_door();
        Ok(())
    }

    /// Says how many there should be.
    pub(super) async fn scale(&self, size: u32) -> Result<()> {
        match self.members.first().map(|member| &member.body) {
            Some(Body::Here(here)) => here.scale(size).await,
            Some(Body::Apart(apart)) => apart.scale(size).await,
            None => Ok(()),
        }
    }

    /// kill -9: no farewell.
    pub(super) async fn crash(&mut self, name: &str) {
        drop(self.take(name).await);
    }

    /// Ends one in good order.
    pub(super) async fn stop(&mut self, name: &str) -> Result<()> {
        match self.take(name).await {
            Some(Body::Here(here)) => here.stop().await,
            Some(Body::Apart(apart)) => apart.stop().await?,
            None => {}
        }
        Ok(())
    }

    async fn take(&mut self, name: &str) -> Option<Body> {
        let place = self.members.iter().position(|member| member.name == name)?;
        let member = self.members.remove(place);
        self.open_door();
        self.asked += match &member.body {
            Body::Here(here) => here.asked(),
            Body::Apart(apart) => apart.asked().await,
        };
        Some(member.body)
    }

    fn open_door(&self) {
        let address = |member: &Member| -> SocketAddr {
            match &member.body {
                Body::Here(here) => here.address(),
                Body::Apart(apart) => apart.address(),
            }
        };
        self.door.leads_to(self.members.iter().map(address).collect());
    }

    /// The share of questions that the caches of all that have left could answer.
    pub(super) fn cache_hit_rate(&self) -> f64 {
        let Asked { hits, misses } = self.asked;
        hits as f64 / (hits + misses).max(1) as f64
    }
}
