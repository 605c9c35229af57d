//! The fleet as its stored state shows it: workers, standbys, map, window and fleet size.
//!
//! [`FleetView::read`] reads the state once. [`Fleet`] follows it and answers from memory. Neither needs a worker.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use tokio::task::JoinSet;

use crate::backend::{Entry, Error, Kv, Stores, WatchEvent};
use crate::codec::{self, Codec, DecodeError, Decoded, Load, MapStatistics, PartManifest};
use crate::core::WorkerState;
use crate::core::types::{AssignmentMap, ClusterState, Heartbeat, Key, Value, WindowKind, WorkerId};
use crate::names::{Bucket, Names};

/// A standby that was not heard for this long is gone: three heartbeat intervals.
const STANDBY_EXPIRY: Duration = Duration::from_secs(6);
/// Delay before a watch that ended is opened again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A worker or a standby of a fleet.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Member {
    /// The worker id; none for a standby.
    pub id: Option<WorkerId>,
    /// The name of the worker id, such as `invoices-3`; none for a standby.
    pub name: Option<String>,
    /// The name of the pod.
    pub pod_name: Arc<str>,
    /// The state that the last heartbeat shows.
    pub state: WorkerState,
    /// Whether it has left: its last heartbeat is a leave record.
    pub has_left: bool,
    /// Whether it leads.
    pub is_leader: bool,
    /// Partitions that the map gives it.
    pub partitions: usize,
    /// The weight of these partitions.
    pub weight: u64,
    /// Messages that it has committed.
    pub processed: u64,
    /// The newest map version for which it has released what the map took away.
    pub applied_version: u64,
    /// Time since its last heartbeat.
    pub heartbeat_age: Duration,
}

/// An open stabilization window.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Window {
    /// The reason for the window.
    pub kind: WindowKind,
    /// Time until the leader plans.
    pub remaining: Duration,
}

impl Window {
    /// Returns the stored name of the window, such as `planned_scale`.
    pub fn name(&self) -> &'static str {
        codec::window_name(self.kind)
    }
}

/// The fleet at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FleetView {
    /// Workers by id, then standbys by pod.
    pub members: Vec<Member>,
    /// The newest map.
    pub map: Option<Arc<AssignmentMap>>,
    /// Statistics of that map.
    pub statistics: Option<MapStatistics>,
    /// The cluster state that the leader shows.
    pub state: Option<WorkerState>,
    /// The open window.
    pub window: Option<Window>,
    /// The commanded fleet size, which takes precedence over the configuration of the workers.
    pub scaled_to: Option<u32>,
}

impl FleetView {
    /// Reads the stored state of a fleet once.
    pub fn read(stores: &Stores) -> BoxFuture<'_, Result<Self, Error>> {
        Box::pin(async move {
            let mut state = FleetState::new(stores.names.clone());
            for (bucket, kv) in watched(stores) {
                for entry in kv.entries().await?.values() {
                    // A value that cannot be read is left out: the rest of the fleet is still worth showing.
                    if let Ok(Some(parts)) = state.apply(bucket, entry, entry.stored_at) {
                        let map = read_map(&state.codec, &*kv, &parts).await?;
                        state.set_map(map);
                    }
                }
            }
            Ok(state.view(wall_us()))
        })
    }

    /// Returns the leader.
    pub fn leader(&self) -> Option<&Member> {
        self.members.iter().find(|member| member.is_leader && !member.has_left)
    }
}

/// A fleet that is followed through its buckets. Clones follow together; dropping the last one ends it.
#[derive(Clone)]
pub struct Fleet {
    state: Arc<Mutex<FleetState>>,
    _tasks: Arc<JoinSet<()>>,
}

impl Fleet {
    /// Follows a fleet.
    pub fn follow(stores: &Stores) -> Self {
        let state = Arc::new(Mutex::new(FleetState::new(stores.names.clone())));
        let mut tasks = JoinSet::new();
        for (bucket, kv) in watched(stores) {
            tasks.spawn(follow(kv, bucket, state.clone()));
        }
        Self { state, _tasks: Arc::new(tasks) }
    }

    /// Returns the fleet as it was last heard.
    pub fn view(&self) -> FleetView {
        lock(&self.state).view(wall_us())
    }

    /// Returns the number of maps that were published since the first one seen, and of partitions that they moved.
    pub fn publications(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.publications, state.moved)
    }
}

fn watched(stores: &Stores) -> [(Bucket, Arc<dyn Kv>); 2] {
    [(Bucket::Heartbeats, stores.heartbeats.clone()), (Bucket::Assignments, stores.assignments.clone())]
}

async fn follow(kv: Arc<dyn Kv>, bucket: Bucket, state: Arc<Mutex<FleetState>>) {
    loop {
        if let Ok(mut watch) = kv.watch().await {
            let mut retained = true;
            while let Some(event) = watch.next().await {
                match event {
                    WatchEvent::Put(entry) => {
                        // Live values are timed by their receipt, so that the clock of the broker does not matter.
                        let at = if retained { entry.stored_at } else { wall_us() };
                        let applied = lock(&state).apply(bucket, &entry, at);
                        if let Ok(Some(parts)) = applied {
                            let codec = lock(&state).codec.clone();
                            if let Ok(map) = read_map(&codec, &*kv, &parts).await {
                                lock(&state).set_map(map);
                            }
                        }
                    }
                    WatchEvent::Delete { key, .. } => lock(&state).remove(bucket, &key),
                    WatchEvent::Current => retained = false,
                    WatchEvent::Resumed { .. } => retained = true,
                }
            }
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// The values that make up a view.
struct FleetState {
    codec: Arc<Codec>,
    /// Heartbeats by key, with the time at which they were heard, in microseconds since 1970.
    heartbeats: BTreeMap<Key, (Arc<Heartbeat>, u64)>,
    map: Option<Arc<AssignmentMap>>,
    calculation_ms: f64,
    cluster_state: Option<(Arc<ClusterState>, u64)>,
    scaled_to: Option<u32>,
    publications: u64,
    moved: u64,
}

/// Reads a map from its parts.
async fn read_map(codec: &Codec, kv: &dyn Kv, parts: &PartManifest) -> Result<Arc<AssignmentMap>, Error> {
    let mut values = Vec::with_capacity(parts.parts.len());
    for key in &parts.parts {
        let missing = || Error::failed("read of the map", format!("part {key} is missing"));
        values.push(kv.get(key).await?.ok_or_else(missing)?.value);
    }
    codec.assemble_map(parts, &values).map_err(|reason| Error::failed("read of the map", reason))
}

impl FleetState {
    fn new(names: Names) -> Self {
        Self {
            codec: Arc::new(Codec::new(names)),
            heartbeats: BTreeMap::new(),
            map: None,
            calculation_ms: 0.0,
            cluster_state: None,
            scaled_to: None,
            publications: 0,
            moved: 0,
        }
    }

    /// Applies a stored value that was heard at `at`. Returns the parts of a map that is too large for one value.
    fn apply(&mut self, bucket: Bucket, entry: &Entry, at: u64) -> Result<Option<PartManifest>, DecodeError> {
        let Some(key) = self.codec.names().parse_key(bucket, &entry.key) else { return Ok(None) };
        match self.codec.decode(&key, &entry.value)? {
            Decoded::Parts(parts) => return Ok(Some(parts)),
            Decoded::Value(Value::Heartbeat(beat)) => drop(self.heartbeats.insert(key, (beat, at))),
            Decoded::Value(Value::Map(map)) => self.set_map(map),
            Decoded::Value(Value::ClusterState(state)) => self.cluster_state = Some((state, at)),
            Decoded::Value(Value::FleetSize(size)) => self.scaled_to = Some(size),
            Decoded::Value(Value::Claim(_) | Value::Lease(_) | Value::Cursor(_)) => {}
        }
        Ok(None)
    }

    fn set_map(&mut self, map: Arc<AssignmentMap>) {
        // A new leader writes the map again with its epoch: that is not a publication.
        if self.map.as_ref().is_some_and(|known| map.version > known.version) {
            self.publications += 1;
            self.moved += map.moved as u64;
        }
        self.calculation_ms = self.codec.calculation_ms();
        self.map = Some(map);
    }

    fn remove(&mut self, bucket: Bucket, key: &str) {
        match self.codec.names().parse_key(bucket, key) {
            Some(Key::FleetSize) => self.scaled_to = None,
            Some(Key::ClusterState) => self.cluster_state = None,
            Some(key) => drop(self.heartbeats.remove(&key)),
            None => {}
        }
    }

    fn view(&self, now: u64) -> FleetView {
        let age = |at: u64| Duration::from_micros(now.saturating_sub(at));
        let loads = self.map.as_ref().map(|map| codec::loads(map)).unwrap_or_default();
        let names = self.codec.names();
        let member = |(key, (beat, at)): (&Key, &(Arc<Heartbeat>, u64))| {
            let id = match key {
                Key::Heartbeat(id) => Some(*id),
                _ => None,
            };
            let Load { partitions, weight } = id.and_then(|id| loads.get(&id)).copied().unwrap_or_default();
            Member {
                id,
                name: id.map(|id| names.worker(id)),
                pod_name: beat.pod.name.clone(),
                state: beat.state,
                has_left: beat.left,
                is_leader: beat.is_leader,
                partitions,
                weight: weight.0,
                processed: beat.processed,
                applied_version: beat.applied_version.0,
                heartbeat_age: age(*at),
            }
        };
        let is_present = |member: &Member| {
            member.id.is_some() || !member.has_left && member.heartbeat_age < STANDBY_EXPIRY
        };
        let mut members: Vec<Member> = self.newest().map(member).filter(is_present).collect();
        members.sort_by_key(|member| (member.id.is_none(), member.id, member.pod_name.clone()));
        let window = self.cluster_state.as_ref().and_then(|(state, at)| {
            let (kind, left) = state.window?;
            Some(Window { kind, remaining: left.saturating_sub(age(*at)) })
        });
        FleetView {
            members,
            statistics: self.map.as_ref().map(|map| MapStatistics::new(map, self.calculation_ms)),
            map: self.map.clone(),
            state: self.cluster_state.as_ref().map(|(state, _)| state.state),
            window,
            scaled_to: self.scaled_to,
        }
    }

    /// Returns the newest heartbeat of each process. Its heartbeat as a standby, or under another id, stays for a while.
    fn newest(&self) -> impl Iterator<Item = (&Key, &(Arc<Heartbeat>, u64))> {
        let mut newest = HashMap::<&str, u64>::new();
        for (beat, at) in self.heartbeats.values() {
            let known = newest.entry(&beat.pod.uid).or_default();
            *known = (*at).max(*known);
        }
        self.heartbeats.iter().filter(move |(_, (beat, at))| newest.get(&*beat.pod.uid) == Some(at))
    }
}

fn lock(state: &Mutex<FleetState>) -> MutexGuard<'_, FleetState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wall_us() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::types::{Incarnation, Pod, Revision, Version, WorkerIncarnation};

    fn heartbeat(uid: &str, id: Option<u32>) -> Heartbeat {
        Heartbeat {
            pod: Pod { name: uid.into(), uid: uid.into() },
            worker: id.map(|id| WorkerIncarnation { id: WorkerId(id), incarnation: Incarnation(1) }),
            serial: 1,
            state: WorkerState::Stable,
            left: false,
            is_leader: false,
            map_version: Version(1),
            applied_version: Version(1),
            cursor_version: Version(0),
            assigned: 0,
            processed: 0,
            fleet_size: None,
        }
    }

    fn hear(state: &mut FleetState, beat: Heartbeat, at: u64) {
        let key = match beat.worker {
            Some(worker) => Key::Heartbeat(worker.id),
            None => Key::StandbyHeartbeat(beat.pod.uid.clone()),
        };
        let stored = state.codec.encode(&key, &Value::Heartbeat(Arc::new(beat)), "");
        let key = state.codec.names().bucket_key(&key).key;
        let entry = Entry { key, value: stored, revision: Revision(1), stored_at: at };
        assert_eq!(state.apply(Bucket::Heartbeats, &entry, at), Ok(None));
    }

    fn shown(state: &FleetState, now: u64) -> Vec<String> {
        let name = |member: Member| member.name.unwrap_or_else(|| member.pod_name.to_string());
        state.view(now).members.into_iter().map(name).collect()
    }

    #[test]
    fn a_process_is_shown_once_by_its_newest_heartbeat() {
        let mut state = FleetState::new(Names::of("jobs"));
        // It was a standby, and has an id now.
        hear(&mut state, heartbeat("a", None), 1);
        hear(&mut state, heartbeat("a", Some(0)), 2);
        // It had an id, and is a standby now.
        hear(&mut state, heartbeat("b", Some(1)), 3);
        hear(&mut state, heartbeat("b", None), 4);
        hear(&mut state, heartbeat("c", None), 5);
        assert_eq!(shown(&state, 6), ["jobs-0", "b", "c"]);
    }

    #[test]
    fn a_silent_worker_is_shown_with_its_age_and_a_silent_standby_is_not() {
        let mut state = FleetState::new(Names::of("jobs"));
        hear(&mut state, heartbeat("a", Some(0)), 1_000_000);
        hear(&mut state, heartbeat("b", None), 1_000_000);
        let late = 9_000_000;
        assert_eq!(shown(&state, late), ["jobs-0"]);
        assert_eq!(state.view(late).members[0].heartbeat_age, Duration::from_secs(8));
    }

    #[test]
    fn a_value_that_cannot_be_read_is_an_error_and_changes_nothing() {
        let mut state = FleetState::new(Names::of("jobs"));
        let entry =
            Entry { key: "jobs-0".to_owned(), value: "{".into(), revision: Revision(1), stored_at: 1 };
        assert!(state.apply(Bucket::Heartbeats, &entry, 1).is_err());
        assert_eq!(state.view(2), FleetView::default());
    }
}
