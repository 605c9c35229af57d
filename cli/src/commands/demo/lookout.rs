//! Sees the fleet from outside, by what it writes where it meets: it makes no difference where its defenders run.

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

use super::books::Published;
use super::ground::Ground;

/// How often alarms are read.
const LOOK: Duration = Duration::from_secs(1);
/// Alarms come with the time of their run, and runs may wait while their chamber has no owner.
const BACK: SignedDuration = SignedDuration::from_secs(60);
/// A defender that was not heard for longer is silent: it speaks every two seconds.
const SILENT: Duration = Duration::from_millis(2500);

/// Looks until it is dropped. Clones look together.
#[derive(Clone)]
pub(super) struct Lookout {
    seen: Arc<Mutex<Seen>>,
    _looking: Arc<JoinSet<()>>,
}

/// What was seen.
pub(super) struct Seen {
    fleet: Fleet,
    /// Up to which message each chamber was committed, and when that was seen.
    commits: HashMap<Chamber, Vec<(u64, Instant)>>,
    /// By the time of their runs.
    alarms: BTreeMap<(Timestamp, Arc<str>), Alarm>,
}

/// A defender, as it is shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Member {
    pub(super) pod: String,
    /// `-` for one that waits for an id.
    pub(super) id: String,
    pub(super) state: String,
    pub(super) role: &'static str,
    pub(super) chambers: usize,
    /// Its load over the mean.
    pub(super) load: f64,
}

impl Lookout {
    pub(super) async fn open(ground: &Ground) -> anyhow::Result<Self> {
        let stores = Stores::open(&*ground.backend, &ground.settings).await?;
        let fleet = Fleet::follow(&stores);
        let seen = Seen { fleet, commits: HashMap::new(), alarms: BTreeMap::new() };
        let seen = Arc::new(Mutex::new(seen));
        let mut looking = JoinSet::new();
        looking.spawn(follow_cursors(stores, seen.clone()));
        looking.spawn(read_alarms(ground.store.clone(), seen.clone()));
        Ok(Self { seen, _looking: Arc::new(looking) })
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        lock(&self.seen)
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn follow_cursors(stores: Stores, seen: Arc<Mutex<Seen>>) {
    let codec = Codec::new(stores.names.clone());
    loop {
        if let Ok(mut watch) = stores.cursors.watch().await {
            while let Some(event) = watch.next().await {
                let WatchEvent::Put(entry) = event else { continue };
                let Some(key) = stores.names.parse_key(Bucket::Cursors, &entry.key) else { continue };
                if let (Key::Cursor(partition), Ok(Decoded::Value(Value::Cursor(cursor)))) =
                    (&key, codec.decode(&key, &entry.value))
                {
                    lock(&seen).note(partition, &cursor, Instant::now());
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn read_alarms(store: Arc<dyn ChartStore>, seen: Arc<Mutex<Seen>>) {
    loop {
        let (since, mut page) = (Timestamp::now() - BACK, None);
        // What is not read now is read with the next look.
        while let Ok(found) = store.alarms(None, since, page.as_deref(), 1_000).await {
            let alarms = found.alarms.into_iter().map(|(alarm, _)| alarm);
            lock(&seen).alarms.extend(alarms.map(|alarm| ((alarm.raised_at, alarm.id.clone()), alarm)));
            page = found.next;
            if page.is_none() {
                break;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl Seen {
    fn note(&mut self, partition: &str, cursor: &Cursor, at: Instant) {
        let Some(chamber) = Chamber::of_partition(partition) else { return };
        let commits = self.commits.entry(chamber).or_default();
        let sequence = cursor.position.sequence.0;
        // A takeover also writes the cursor.
        if commits.last().is_none_or(|(last, _)| sequence > *last) {
            commits.push((sequence, at));
        }
    }

    /// Returns the number of maps after the first one, and of partitions that moved with them.
    pub(super) fn publications(&self) -> (u64, u64) {
        self.fleet.publications()
    }

    /// When a run was committed, if it is: with it, or with a later one of its chamber.
    pub(super) fn committed_at(&self, run: &Published) -> Option<Instant> {
        let commits = self.commits.get(&run.chamber)?;
        commits.get(commits.partition_point(|(sequence, _)| *sequence < run.sequence)).map(|(_, at)| *at)
    }

    /// How many of these are committed.
    pub(super) fn committed(&self, runs: &[Published]) -> usize {
        runs.iter().filter(|run| self.committed_at(run).is_some()).count()
    }

    /// The alarms, the latest last.
    pub(super) fn alarms(&self) -> impl DoubleEndedIterator<Item = &Alarm> + ExactSizeIterator {
        self.alarms.values()
    }

    pub(super) fn version(&self) -> u64 {
        self.fleet.view().map.map_or(0, |map| map.version.0)
    }

    /// Returns the pod that leads.
    pub(super) fn leader(&self) -> Option<String> {
        self.fleet.view().leader().map(|leader| leader.pod_name.to_string())
    }

    /// Returns the number of chambers that a pod owns.
    pub(super) fn chambers_of(&self, pod: &str) -> usize {
        let members = self.fleet.view().members;
        members.iter().filter(|member| &*member.pod_name == pod).map(|member| member.partitions).sum()
    }

    pub(super) fn stands_by(&self, pod: &str) -> bool {
        self.fleet.view().members.iter().any(|member| member.id.is_none() && &*member.pod_name == pod)
    }

    /// Whether so many of these pods have all chambers between them and have applied the same map, or what is amiss.
    pub(super) fn settled(&self, pods: &[String], size: usize, chambers: usize) -> Result<(), String> {
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

    /// How evenly the weight is spread.
    pub(super) fn loads(&self) -> String {
        let statistics = self.fleet.view().statistics.unwrap_or_default();
        let (low, high) = (100.0 * statistics.min_over_mean, 100.0 * statistics.max_over_mean);
        format!("loads from {low:.0} to {high:.0} % of the mean")
    }

    /// Everybody who is there, or whose chambers wait for it.
    pub(super) fn members(&self) -> Vec<Member> {
        let fleet = self.fleet.view();
        let mean = fleet.statistics.map_or(0.0, |statistics| statistics.mean_weight).max(1.0);
        let is_silent = |member: &phalanx_cluster::Member| member.heartbeat_age > SILENT;
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
