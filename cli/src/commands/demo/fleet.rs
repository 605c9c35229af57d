//! The defenders of the demo: all in this process, each a worker of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use phalanx_cluster::Handle;
use phalanx_cluster::core::types::AssignmentMap;
use phalanx_cluster::core::{Config, Position};
use phalanx_defender::Metrics;
use phalanx_defender::api::Api;
use phalanx_defender::record::{Alarm, Chamber};
use phalanx_defender::store::ChartStore;
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::worker::{Defender, Observer, Options};
use phalanx_fab::STRATEGY;
use phalanx_service::{Server, Token};

use super::ground::Ground;
use super::view::Roster;

/// When what happened: published and committed, by chamber and sequence.
#[derive(Default)]
pub(super) struct Log {
    pub(super) committed: Mutex<HashMap<(Chamber, u64), Instant>>,
    pub(super) alarms: Mutex<Vec<Alarm>>,
}

impl Observer for Log {
    fn committed(&self, chamber: &Chamber, position: Position) {
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        committed.entry((chamber.clone(), position.sequence)).or_insert_with(Instant::now);
    }

    fn alarm(&self, alarm: &Alarm) {
        if alarm.cleared.is_none() {
            self.alarms.lock().unwrap_or_else(PoisonError::into_inner).push(alarm.clone());
        }
    }
}

/// A defender and what shows it.
pub(super) struct Member {
    pub(super) name: String,
    pub(super) defender: Arc<Defender>,
    api: Api,
    _server: Server,
}

/// All of them, and what they share.
pub(super) struct Fleet {
    ground: Ground,
    strategy: Arc<Holder>,
    pub(super) log: Arc<Log>,
    pub(super) members: Vec<Member>,
    /// The same, for whoever draws them.
    pub(super) roster: Roster,
    started: u32,
    /// What the caches of those that left could answer, and what not.
    asked: (u64, u64),
}

impl Fleet {
    pub(super) fn new(ground: Ground) -> Result<Self> {
        Ok(Self {
            ground,
            strategy: Arc::new(Holder::new(Strategy::parse(STRATEGY)?)),
            log: Arc::default(),
            members: Vec::new(),
            roster: Roster::default(),
            started: 0,
            asked: (0, 0),
        })
    }

    /// Starts one more. `size` is how many there should be.
    pub(super) async fn start(&mut self, size: u32) -> Result<String> {
        self.started += 1;
        self.start_as(format!("pod-{}", self.started), size).await
    }

    /// Starts one that was there before, as Kubernetes restarts a container: it gets its id back at once.
    pub(super) async fn start_as(&mut self, name: String, size: u32) -> Result<String> {
        let metrics = Metrics::default();
        let api = Api::new(&name, metrics.clone());
        let server = Server::bind("127.0.0.1:0", api.app(Token::none()).router).await?;
        let usual = Options::default();
        let cluster =
            Config { fleet_size: Some(size), scale_window: Duration::from_secs(1), ..usual.cluster };
        let pod = Some((name.clone(), format!("uid-{name}")));
        let settings = self.ground.settings.clone();
        let options = Options { cluster, pod, metrics, settings: settings.clone(), ..usual };
        let observer = Arc::new(Both(self.log.clone(), api.clone()));
        let defender = Defender::start(
            self.ground.backend.clone(),
            self.ground.store.clone(),
            self.strategy.clone(),
            observer,
            options,
        );
        let defender = Arc::new(defender.await?);
        api.attach(defender.clone(), &*self.ground.backend, &settings, false).await?;
        let url = server.url();
        self.roster().push((name.clone(), defender.handle().clone()));
        self.members.push(Member { name, defender, api, _server: server });
        Ok(url)
    }

    /// As kill -9 would: no farewell.
    pub(super) fn crash(&mut self, place: usize) -> String {
        let member = self.members.remove(place);
        self.leaves(&member);
        self.count_cache(&member);
        member.api.detach();
        member.name
    }

    /// Ends one in good order.
    pub(super) async fn stop(&mut self, place: usize) -> String {
        let member = self.members.remove(place);
        member.defender.shutdown().await;
        self.leaves(&member);
        self.count_cache(&member);
        member.api.detach();
        member.name
    }

    /// Where charts are kept.
    pub(super) fn store(&self) -> &Arc<dyn ChartStore> {
        &self.ground.store
    }

    /// Removes what the demo made, once all have left.
    pub(super) async fn clear(&self) -> Result<()> {
        self.ground.clear().await
    }

    fn roster(&self) -> MutexGuard<'_, Vec<(String, Handle)>> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaves(&self, member: &Member) {
        self.roster().retain(|(name, _)| *name != member.name);
    }

    fn count_cache(&mut self, member: &Member) {
        let statistics = member.defender.cache().statistics(Instant::now());
        self.asked = (self.asked.0 + statistics.hits, self.asked.1 + statistics.misses);
    }

    /// The share of questions that the caches of all that have left could answer.
    pub(super) fn cache_hit_rate(&self) -> f64 {
        let (hits, misses) = self.asked;
        hits as f64 / (hits + misses).max(1) as f64
    }

    /// The newest map that any of them knows.
    pub(super) fn map(&self) -> Option<Arc<AssignmentMap>> {
        let maps = self.members.iter().filter_map(|member| member.defender.handle().status().map);
        maps.max_by_key(|map| map.version)
    }

    /// How many messages were committed.
    pub(super) fn committed(&self) -> usize {
        self.log.committed.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Tells two.
struct Both(Arc<Log>, Api);

impl Observer for Both {
    fn committed(&self, chamber: &Chamber, position: Position) {
        self.0.committed(chamber, position);
    }

    fn alarm(&self, alarm: &Alarm) {
        self.0.alarm(alarm);
        Observer::alarm(&self.1, alarm);
    }

    fn assignment(&self, added: &[Arc<str>], removed: &[Arc<str>]) {
        Observer::assignment(&self.1, added, removed);
    }

    fn state(&self, from: phalanx_cluster::core::WorkerState, to: phalanx_cluster::core::WorkerState) {
        Observer::state(&self.1, from, to);
    }
}
