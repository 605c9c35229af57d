//! State of the fleet, seen from outside through its buckets: it makes no difference where its defenders run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use phalanx_cluster::Fleet;
use phalanx_cluster::backend::{Stores, WatchEvent};
use phalanx_cluster::codec::{Codec, Decoded};
use phalanx_cluster::core::Cursor;
use phalanx_cluster::core::types::{Key, Value};
use phalanx_cluster::names::Bucket;
use phalanx_defender::record::{Alarm, Chamber};
use phalanx_defender::store::ChartStore;
use phalanx_fsm::State as _;
use tokio::task::JoinSet;

use crate::audit::SentRun;
use crate::environment::Environment;

/// Poll interval of alarms.
const ALARM_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Look-back for late alarms: they have the time of their run, and runs wait while their chamber has no owner.
const ALARM_LOOKBACK: SignedDuration = SignedDuration::from_secs(60);
/// Age of the last heartbeat of a silent defender; one is sent every two seconds.
const SILENT_AFTER: Duration = Duration::from_millis(2500);

/// Observer of the fleet, until it is dropped. Clones share their state.
#[derive(Clone)]
pub(crate) struct FleetWatcher {
    state: Arc<Mutex<FleetSnapshot>>,
    _tasks: Arc<JoinSet<()>>,
}

/// State of the fleet.
pub(crate) struct FleetSnapshot {
    fleet: Fleet,
    /// Committed sequences of each chamber, with the times at which they were seen.
    commits: HashMap<Chamber, Vec<(u64, Instant)>>,
    /// Alarms by the time of their runs.
    alarms: BTreeMap<(Timestamp, Arc<str>), Alarm>,
}

/// A defender, for the display.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Member {
    pub(crate) pod: String,
    /// Worker id; `-` for a standby.
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) role: &'static str,
    pub(crate) chambers: usize,
    /// Load relative to the mean.
    pub(crate) load: f64,
}

impl FleetWatcher {
    pub(crate) async fn open(environment: &Environment) -> anyhow::Result<Self> {
        let stores = Stores::open(&*environment.backend, &environment.settings).await?;
        let fleet = Fleet::follow(&stores);
        let state = FleetSnapshot { fleet, commits: HashMap::new(), alarms: BTreeMap::new() };
        let state = Arc::new(Mutex::new(state));
        let mut tasks = JoinSet::new();
        tasks.spawn(follow_cursors(stores, state.clone()));
        tasks.spawn(read_alarms(environment.store.clone(), state.clone()));
        Ok(Self { state, _tasks: Arc::new(tasks) })
    }

    /// Returns the current state.
    pub(crate) fn snapshot(&self) -> MutexGuard<'_, FleetSnapshot> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<FleetSnapshot>) -> MutexGuard<'_, FleetSnapshot> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow_cursors(stores: Stores, state: Arc<Mutex<FleetSnapshot>>) {
    let codec = Codec::new(stores.names.clone());
    loop {
        if let Ok(mut watch) = stores.cursors.watch().await {
            while let Some(event) = watch.next().await {
                let WatchEvent::Put(entry) = event else { continue };
                let Some(key) = stores.names.parse_key(Bucket::Cursors, &entry.key) else { continue };
                if let (Key::Cursor(partition), Ok(Decoded::Value(Value::Cursor(cursor)))) =
                    (&key, codec.decode(&key, &entry.value))
                {
                    lock(&state).record(partition, &cursor, Instant::now());
                }
            }
        }
        tokio::time::sleep(ALARM_POLL_INTERVAL).await;
    }
}

async fn read_alarms(store: Arc<dyn ChartStore>, state: Arc<Mutex<FleetSnapshot>>) {
    loop {
        let (since, mut page) = (Timestamp::now() - ALARM_LOOKBACK, None);
        // The next poll reads what this one could not.
        while let Ok(found) = store.alarms(None, since, page.as_deref(), 1_000).await {
            let alarms = found.alarms.into_iter().map(|(alarm, _)| alarm);
            lock(&state).alarms.extend(alarms.map(|alarm| ((alarm.raised_at, alarm.id.clone()), alarm)));
            page = found.next;
            if page.is_none() {
                break;
            }
        }
        tokio::time::sleep(ALARM_POLL_INTERVAL).await;
    }
}

impl FleetSnapshot {
    /// Records the cursor of a chamber.
    fn record(&mut self, partition: &str, cursor: &Cursor, at: Instant) {
        let Some(chamber) = Chamber::of_partition(partition) else { return };
        let commits = self.commits.entry(chamber).or_default();
        let sequence = cursor.position.sequence.0;
        // A takeover also writes the cursor.
        if commits.last().is_none_or(|(last, _)| sequence > *last) {
            commits.push((sequence, at));
        }
    }

    /// Returns the number of maps after the first one, and of partitions that moved with them.
    pub(crate) fn publications(&self) -> (u64, u64) {
        self.fleet.publications()
    }

    /// Returns the time at which a run was committed: with its own commit, or with a later one of its chamber.
    pub(crate) fn committed_at(&self, run: &SentRun) -> Option<Instant> {
        let commits = self.commits.get(&run.chamber)?;
        commits.get(commits.partition_point(|(sequence, _)| *sequence < run.sequence)).map(|(_, at)| *at)
    }

    /// Returns the number of committed runs.
    pub(crate) fn committed(&self, runs: &[SentRun]) -> usize {
        runs.iter().filter(|run| self.committed_at(run).is_some()).count()
    }

    /// Returns the alarms, the latest last.
    pub(crate) fn alarms(&self) -> impl DoubleEndedIterator<Item = &Alarm> + ExactSizeIterator {
        self.alarms.values()
    }

    /// Returns the version of the map; 0 without one.
    pub(crate) fn version(&self) -> u64 {
        self.fleet.view().map.map_or(0, |map| map.version.0)
    }

    /// Returns the pod that leads.
    pub(crate) fn leader(&self) -> Option<String> {
        self.fleet.view().leader().map(|leader| leader.pod_name.to_string())
    }

    /// Returns the number of chambers that a pod owns.
    pub(crate) fn chambers_of(&self, pod: &str) -> usize {
        let members = self.fleet.view().members;
        members.iter().filter(|member| &*member.pod_name == pod).map(|member| member.partitions).sum()
    }

    /// Returns whether the pod is a standby.
    pub(crate) fn is_standby(&self, pod: &str) -> bool {
        self.fleet.view().members.iter().any(|member| member.id.is_none() && &*member.pod_name == pod)
    }

    /// Checks that `size` of these pods own all chambers and have applied the same map. The error says what is missing.
    pub(crate) fn settled(&self, pods: &[String], size: usize, chambers: usize) -> Result<(), String> {
        let fleet = self.fleet.view();
        let Some(map) = &fleet.map else { return Err("there is no map yet".to_owned()) };
        let owners = map.assignments.values().map(|one| one.owner).collect::<BTreeSet<_>>();
        let is_there = |member: &&phalanx_cluster::Member| {
            !member.has_left
                && member.id.is_some_and(|id| owners.contains(&id))
                && member.applied_version >= map.version.0
                && pods.iter().any(|pod| **pod == *member.pod_name)
        };
        let there = fleet.members.iter().filter(is_there).count();
        if (there, owners.len(), map.assignments.len()) == (size, size, chambers) {
            return Ok(());
        }
        Err(format!(
            "map {} has {} of {chambers} chambers on {} of {size} defenders, and {there} of these have applied it",
            map.version,
            map.assignments.len(),
            owners.len()
        ))
    }

    /// Returns the range of the loads, for users.
    pub(crate) fn loads(&self) -> String {
        let statistics = self.fleet.view().statistics.unwrap_or_default();
        let (low, high) = (100.0 * statistics.min_over_mean, 100.0 * statistics.max_over_mean);
        format!("loads from {low:.0} to {high:.0} % of the mean")
    }

    /// Returns the defenders that are live, or whose chambers wait for them.
    pub(crate) fn members(&self) -> Vec<Member> {
        let fleet = self.fleet.view();
        let mean = fleet.statistics.map_or(0.0, |statistics| statistics.mean_weight).max(1.0);
        let is_silent = |member: &phalanx_cluster::Member| member.heartbeat_age > SILENT_AFTER;
        let shown = |member: &phalanx_cluster::Member| Member {
            pod: member.pod_name.to_string(),
            id: member.name.clone().unwrap_or_else(|| "-".to_owned()),
            state: match member {
                _ if member.has_left => "LEFT".to_owned(),
                _ if is_silent(member) => format!("silent {} s", member.heartbeat_age.as_secs()),
                _ => member.state.name().to_owned(),
            },
            role: match member {
                _ if member.id.is_none() => "standby",
                _ if is_silent(member) => "",
                _ if member.is_leader => "leader",
                _ => "follower",
            },
            chambers: member.partitions,
            load: member.weight as f64 / mean,
        };
        let in_map = |member: &phalanx_cluster::Member| {
            member.id.is_some_and(|id| fleet.map.as_ref().is_some_and(|map| map.workers.contains(&id)))
        };
        let matters =
            |member: &&phalanx_cluster::Member| !(member.has_left || is_silent(member)) || in_map(member);
        fleet.members.iter().filter(matters).map(shown).collect()
    }
}
