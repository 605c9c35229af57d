//! The roster of workers: every heartbeat, timed by its arrival at this process.
//!
//! Every worker keeps a roster, so a new leader already knows which workers are silent. A value that was stored before the
//! watch began does not prove that its writer lives, and neither does one of an earlier incarnation.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::sync::Arc;
use std::time::Duration;

use super::WorkerState;
use super::health::{HealthyClock, HealthyInstant};
use super::types::{Heartbeat, Incarnation, Time, Version, WorkerId, WorkerIncarnation};

/// What is known of one worker.
#[derive(Clone, Debug)]
pub(super) struct WorkerRecord {
    pub(super) incarnation: Incarnation,
    pub(super) serial: u64,
    pub(super) state: WorkerState,
    pub(super) left: bool,
    pub(super) applied_version: Version,
    pub(super) map_version: Version,
    pub(super) cursor_version: Version,
    pub(super) fleet_size: Option<u32>,
    /// When it was last heard alive by us; none if only an old value was seen.
    last_heartbeat: Option<HealthyInstant>,
    /// The arrival of its leave record.
    pub(super) left_at: Option<Time>,
    degraded: Option<HealthyInstant>,
}

impl WorkerRecord {
    /// How long it has been silent on the healthy clock; none if this process has never heard it. DEGRADED is silence:
    /// such a worker does no work.
    fn time_since_heartbeat(&self, clock: &HealthyClock) -> Option<Duration> {
        let silent = clock.since(self.last_heartbeat?);
        Some(silent.max(self.degraded.map_or(Duration::ZERO, |since| clock.since(since))))
    }

    fn is_live(&self, limit: Duration, clock: &HealthyClock) -> bool {
        !self.left && self.time_since_heartbeat(clock).is_some_and(|silent| silent < limit)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    workers: BTreeMap<WorkerId, WorkerRecord>,
    standbys: BTreeMap<Arc<str>, Option<HealthyInstant>>,
    /// The newest incarnation of each id that wrote a leave record.
    left_incarnations: BTreeMap<WorkerId, Incarnation>,
}

impl Roster {
    /// Notes a heartbeat of an id, unless it is of an earlier incarnation. Returns whether anything in it is new.
    pub(super) fn record_heartbeat(
        &mut self,
        id: WorkerId,
        beat: &Heartbeat,
        retained: bool,
        now: Time,
        clock: &HealthyClock,
    ) -> bool {
        let Some(holder) = beat.worker.filter(|holder| holder.id == id) else { return false };
        if beat.left {
            let newest = self.left_incarnations.entry(id).or_default();
            *newest = holder.incarnation.max(*newest);
        }
        let place = self.workers.entry(id);
        let known = match &place {
            Place::Occupied(known) => Some(known.get()),
            Place::Vacant(_) => None,
        };
        if known.is_some_and(|seen| seen.incarnation > holder.incarnation) {
            return false;
        }
        let known_incarnation = known.map_or(Incarnation(0), |seen| seen.incarnation);
        let same_incarnation = known.filter(|seen| seen.incarnation == holder.incarnation);
        // A leave record is final for its incarnation: a heartbeat that arrives after it changes nothing.
        if same_incarnation.is_some_and(|seen| seen.left) {
            return false;
        }
        let degraded_since = same_incarnation.and_then(|seen| seen.degraded);
        let is_degraded = beat.state == WorkerState::Degraded;
        let seen = WorkerRecord {
            incarnation: holder.incarnation,
            serial: beat.serial,
            state: beat.state,
            left: beat.left,
            applied_version: beat.applied_version,
            map_version: beat.map_version,
            cursor_version: beat.cursor_version,
            fleet_size: beat.fleet_size,
            last_heartbeat: if retained {
                same_incarnation.and_then(|seen| seen.last_heartbeat)
            } else {
                Some(clock.now())
            },
            left_at: beat.left.then_some(now),
            degraded: if is_degraded { degraded_since.or(Some(clock.now())) } else { None },
        };
        // A worker that was silent is news when it speaks again, whatever it says.
        let routine = same_incarnation.is_some_and(|known| {
            known.last_heartbeat.is_some_and(|heard| clock.since(heard) < clock.echo_limit())
                && (known.state, known.applied_version, known.map_version)
                    == (seen.state, seen.applied_version, seen.map_version)
                && (known.cursor_version, known.fleet_size) == (seen.cursor_version, seen.fleet_size)
                && !seen.left
                && known.degraded.is_none()
        });
        invariant!(!seen.left || seen.left_at.is_some(), "a leave record has an arrival");
        invariant!(known_incarnation <= seen.incarnation, "an earlier incarnation is ignored");
        place.insert_entry(seen);
        !routine
    }

    /// Notes a heartbeat of a process without an id; none means that it has left.
    pub(super) fn record_standby(
        &mut self,
        pod: &Arc<str>,
        beat: Option<&Heartbeat>,
        retained: bool,
        clock: &HealthyClock,
    ) {
        match beat.filter(|beat| !beat.left && beat.worker.is_none()) {
            Some(_) => {
                let heard = (!retained).then(|| clock.now());
                self.standbys.insert(pod.clone(), heard);
            }
            None => {
                self.standbys.remove(pod);
            }
        }
    }

    /// Begins to count everybody's silence anew, as a leader would that had not listened before.
    pub(super) fn reset_timers(&mut self, clock: &HealthyClock) {
        self.workers
            .values_mut()
            .filter(|seen| seen.last_heartbeat.is_some())
            .for_each(|seen| seen.last_heartbeat = Some(clock.now()));
    }

    /// Whether this incarnation of an id wrote a leave record.
    pub(super) fn has_left(&self, holder: WorkerIncarnation) -> bool {
        self.left_incarnations.get(&holder.id) == Some(&holder.incarnation)
    }

    pub(super) fn get(&self, id: WorkerId) -> Option<&WorkerRecord> {
        self.workers.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (WorkerId, &WorkerRecord)> {
        self.workers.iter().map(|(&id, seen)| (id, seen))
    }

    /// How long a worker has been silent on the healthy clock; none if this process has never heard it.
    pub(super) fn time_since_heartbeat(&self, id: WorkerId, clock: &HealthyClock) -> Option<Duration> {
        self.workers.get(&id)?.time_since_heartbeat(clock)
    }

    /// Whether a worker was heard since health last returned.
    pub(super) fn seen_since_healthy(&self, id: WorkerId, clock: &HealthyClock) -> bool {
        self.workers.get(&id).and_then(|seen| seen.last_heartbeat).is_some_and(|heard| clock.is_recent(heard))
    }

    /// Whether a worker was heard within `limit` and has not left.
    pub(super) fn is_live(&self, id: WorkerId, limit: Duration, clock: &HealthyClock) -> bool {
        self.workers.get(&id).is_some_and(|seen| seen.is_live(limit, clock))
    }

    /// Whoever was heard within `limit` and has not left.
    pub(super) fn live(
        &self,
        limit: Duration,
        clock: &HealthyClock,
    ) -> impl Iterator<Item = (WorkerId, &WorkerRecord)> {
        self.iter().filter(move |(_, seen)| seen.is_live(limit, clock))
    }

    /// Returns the number of workers whose heartbeats arrived within `limit`, also those that are DEGRADED.
    pub(super) fn heard(&self, limit: Duration, clock: &HealthyClock) -> usize {
        let is_heard = |seen: &WorkerRecord| {
            !seen.left && seen.last_heartbeat.is_some_and(|heard| clock.since(heard) < limit)
        };
        self.workers.values().filter(|seen| is_heard(seen)).count()
    }

    /// Whether a standby was heard within `limit`.
    pub(super) fn has_standby(&self, limit: Duration, clock: &HealthyClock) -> bool {
        self.standbys.values().flatten().any(|&heard| clock.since(heard) < limit)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::Config;
    use crate::types::Pod;

    fn s(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    fn beat(incarnation: u64) -> Heartbeat {
        beat_of(WorkerIncarnation { id: WorkerId(3), incarnation: Incarnation(incarnation) })
    }

    pub(crate) fn beat_of(holder: WorkerIncarnation) -> Heartbeat {
        Heartbeat {
            pod: Pod { name: "pod".into(), uid: "uid".into() },
            worker: Some(holder),
            serial: 1,
            state: WorkerState::Stable,
            left: false,
            is_leader: false,
            map_version: Version(0),
            applied_version: Version(0),
            cursor_version: Version(0),
            assigned: 0,
            processed: 0,
            fleet_size: None,
        }
    }

    pub(crate) fn healthy_clock(now: u64) -> HealthyClock {
        let mut clock = HealthyClock::new(s(0), &Config::default());
        (0..=now).for_each(|second| clock.echoed(s(second), s(second)));
        clock
    }

    #[test]
    fn a_retained_value_does_not_prove_liveness() {
        let (mut roster, clock) = (Roster::default(), healthy_clock(5));
        roster.record_heartbeat(WorkerId(3), &beat(1), true, s(5), &clock);
        assert_eq!(roster.time_since_heartbeat(WorkerId(3), &clock), None);
        assert!(!roster.is_live(WorkerId(3), Duration::from_secs(6), &clock));
    }

    #[test]
    fn an_earlier_incarnation_of_an_id_is_ignored() {
        let (mut roster, clock) = (Roster::default(), healthy_clock(5));
        roster.record_heartbeat(WorkerId(3), &beat(9), false, s(5), &clock);
        roster.record_heartbeat(WorkerId(3), &Heartbeat { left: true, ..beat(8) }, false, s(5), &clock);
        assert!(roster.is_live(WorkerId(3), Duration::from_secs(6), &clock));
    }

    #[test]
    fn a_leave_record_is_final_for_its_incarnation_only() {
        let (mut roster, clock) = (Roster::default(), healthy_clock(5));
        roster.record_heartbeat(WorkerId(3), &Heartbeat { left: true, ..beat(1) }, false, s(5), &clock);
        roster.record_heartbeat(WorkerId(3), &beat(1), false, s(5), &clock);
        assert!(!roster.is_live(WorkerId(3), Duration::from_secs(6), &clock));
        roster.record_heartbeat(WorkerId(3), &beat(2), false, s(5), &clock);
        assert!(roster.is_live(WorkerId(3), Duration::from_secs(6), &clock));
    }

    #[test]
    fn degraded_counts_as_silence_from_its_first_heartbeat() {
        let (mut roster, mut clock) = (Roster::default(), healthy_clock(0));
        for second in 0..=8 {
            clock.echoed(s(second), s(second));
            let state = if second < 2 { WorkerState::Stable } else { WorkerState::Degraded };
            roster.record_heartbeat(WorkerId(3), &Heartbeat { state, ..beat(1) }, false, s(second), &clock);
        }
        assert_eq!(roster.time_since_heartbeat(WorkerId(3), &clock), Some(Duration::from_secs(6)));
    }
}
