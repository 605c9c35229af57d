//! Sees the fleet from outside, by what it writes where it meets: it makes no difference where its defenders run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use phalanx_cluster::backend::{Kv, WatchEvent};
use phalanx_cluster::codec::{Bucket, Codec, Decoded, parse_key};
use phalanx_cluster::core::types::{AssignmentMap, Heartbeat, Key, Value, WorkerId};
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
#[derive(Default)]
pub(super) struct Seen {
    workers: BTreeMap<WorkerId, Heard>,
    /// Who waits for an id, by the uid of its pod.
    standbys: BTreeMap<Arc<str>, Heard>,
    map: Option<Arc<AssignmentMap>>,
    /// How many maps there were after the first, and what moved with them.
    pub(super) maps: u64,
    pub(super) moved: u64,
    /// Up to which message each chamber was committed, and when that was seen.
    commits: HashMap<Chamber, Vec<(u64, Instant)>>,
    /// By the time of their runs.
    alarms: BTreeMap<(Timestamp, Arc<str>), Alarm>,
}

struct Heard {
    beat: Arc<Heartbeat>,
    at: Instant,
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
        let seen = Arc::<Mutex<Seen>>::default();
        let mut looking = JoinSet::new();
        for (which, config) in [
            (Bucket::Heartbeats, &ground.settings.heartbeats),
            (Bucket::Assignments, &ground.settings.assignments),
            (Bucket::Cursors, &ground.settings.cursors),
        ] {
            let bucket = ground.backend.bucket(config).await?;
            looking.spawn(follow(bucket, which, seen.clone()));
        }
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

async fn follow(bucket: Arc<dyn Kv>, which: Bucket, seen: Arc<Mutex<Seen>>) {
    let codec = Codec::default();
    loop {
        if let Ok(mut watch) = bucket.watch().await {
            while let Some(event) = watch.next().await {
                match event {
                    WatchEvent::Put(entry) => {
                        let Some(key) = parse_key(which, &entry.key) else { continue };
                        if let Ok(Decoded::Value(value)) = codec.decode(&key, &entry.value) {
                            lock(&seen).note(key, value, Instant::now());
                        }
                    }
                    WatchEvent::Delete { key, .. } => {
                        if let Some(Key::StandbyHeartbeat(uid)) = parse_key(which, &key) {
                            lock(&seen).standbys.remove(&uid);
                        }
                    }
                    WatchEvent::Current | WatchEvent::Resumed { .. } => {}
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
    fn note(&mut self, key: Key, value: Value, at: Instant) {
        match (key, value) {
            (Key::Heartbeat(id), Value::Heartbeat(beat)) => {
                // It waits no more.
                self.standbys.remove(&beat.pod.uid);
                self.workers.insert(id, Heard { beat, at });
            }
            (Key::StandbyHeartbeat(uid), Value::Heartbeat(beat)) => {
                if beat.left {
                    self.standbys.remove(&uid);
                } else {
                    self.standbys.insert(uid, Heard { beat, at });
                }
            }
            (Key::Map, Value::Map(map)) => {
                let newest = self.map.as_ref().map(|map| map.version);
                // A new leader writes the map again as it was.
                if newest.is_some_and(|newest| map.version > newest) {
                    self.maps += 1;
                    self.moved += map.moved as u64;
                }
                self.map = Some(map);
            }
            (Key::Cursor(partition), Value::Cursor(cursor)) => {
                let Some(chamber) = Chamber::of_partition(&partition) else { return };
                let commits = self.commits.entry(chamber).or_default();
                let sequence = cursor.position.sequence.0;
                // A cursor is also written when it is taken.
                if commits.last().is_none_or(|(last, _)| sequence > *last) {
                    commits.push((sequence, at));
                }
            }
            _ => {}
        }
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
        self.map.as_ref().map_or(0, |map| map.version.0)
    }

    /// The pod that leads.
    pub(super) fn leader(&self) -> Option<&str> {
        self.workers.values().find(|one| one.beat.is_leader && !one.beat.left).map(|one| &*one.beat.pod.name)
    }

    /// How many chambers a pod owns.
    pub(super) fn chambers_of(&self, pod: &str) -> usize {
        let ids: Vec<WorkerId> =
            self.workers.iter().filter(|(_, one)| &*one.beat.pod.name == pod).map(|(id, _)| *id).collect();
        let assignments = self.map.iter().flat_map(|map| map.assignments.values());
        assignments.filter(|assignment| ids.contains(&assignment.owner)).count()
    }

    pub(super) fn stands_by(&self, pod: &str) -> bool {
        self.standbys.values().any(|one| &*one.beat.pod.name == pod)
    }

    /// Whether so many of these pods have all chambers between them and have applied the same map, or what is amiss.
    pub(super) fn settled(&self, pods: &[String], size: usize, chambers: usize) -> Result<(), String> {
        let Some(map) = &self.map else { return Err("there is no map yet".to_owned()) };
        let owners: BTreeSet<WorkerId> = map.assignments.values().map(|one| one.owner).collect();
        let is_there = |id: &&WorkerId| {
            self.workers.get(id).is_some_and(|Heard { beat, .. }| {
                !beat.left
                    && beat.applied_version >= map.version
                    && pods.iter().any(|pod| **pod == *beat.pod.name)
            })
        };
        let there = owners.iter().filter(is_there).count();
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

    /// What each worker has to do.
    fn weights(&self) -> BTreeMap<WorkerId, u64> {
        let Some(map) = &self.map else { return BTreeMap::new() };
        let mut weights: BTreeMap<WorkerId, u64> = map.workers.iter().map(|id| (*id, 0)).collect();
        for assignment in map.assignments.values() {
            *weights.entry(assignment.owner).or_default() += assignment.weight.0;
        }
        weights
    }

    /// How evenly the weight is spread.
    pub(super) fn loads(&self) -> String {
        let weights = self.weights();
        let mean = mean(&weights);
        let part = |weight: Option<&u64>| weight.map_or(0.0, |weight| 100.0 * *weight as f64 / mean);
        let (low, high) = (part(weights.values().min()), part(weights.values().max()));
        format!("loads from {low:.0} to {high:.0} % of the mean")
    }

    /// Everybody who is there, or whose chambers wait for it.
    pub(super) fn members(&self, now: Instant) -> Vec<Member> {
        let weights = self.weights();
        let mean = mean(&weights);
        let silence =
            |heard: &Heard| Some(now.saturating_duration_since(heard.at)).filter(|silence| *silence > SILENT);
        let state = |heard: &Heard| match silence(heard) {
            _ if heard.beat.left => "LEFT".to_owned(),
            Some(silence) => format!("silent {} s", silence.as_secs()),
            None => heard.beat.state.name().to_owned(),
        };
        let owned = |id: &WorkerId| {
            self.map.iter().flat_map(|map| map.assignments.values()).filter(|one| one.owner == *id).count()
        };
        let worker = |(id, heard): (&WorkerId, &Heard)| Member {
            pod: heard.beat.pod.name.to_string(),
            id: id.to_string(),
            state: state(heard),
            role: match (silence(heard), heard.beat.is_leader) {
                (Some(_), _) => "",
                (None, true) => "leader",
                (None, false) => "follower",
            },
            chambers: owned(id),
            load: weights.get(id).map_or(0.0, |weight| *weight as f64 / mean),
        };
        let standby = |heard: &Heard| Member {
            pod: heard.beat.pod.name.to_string(),
            id: "-".to_owned(),
            state: state(heard),
            role: "standby",
            ..Member::default()
        };
        let matters = |(id, heard): &(&WorkerId, &Heard)| {
            let gone = heard.beat.left || silence(heard).is_some();
            !gone || weights.contains_key(id)
        };
        let waits = |heard: &&Heard| silence(heard).is_none();
        let workers = self.workers.iter().filter(matters).map(worker);
        workers.chain(self.standbys.values().filter(waits).map(standby)).collect()
    }
}

/// Never nothing, so that one can divide by it.
fn mean(weights: &BTreeMap<WorkerId, u64>) -> f64 {
    (weights.values().sum::<u64>() as f64 / weights.len().max(1) as f64).max(1.0)
}
