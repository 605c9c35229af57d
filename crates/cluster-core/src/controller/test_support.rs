//! A leader for tests: its facts, its outbox and its controller.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::cursor::tests::holder;
use crate::facts::Facts;
use crate::facts::tests::healthy_facts;
use crate::io::{Effect, Purpose, ReadError, RequestId, WriteError, Written};
use crate::outbox::Outbox;
use crate::roster::tests::beat_of;
use crate::types::{
    Assignment, AssignmentMap, Entry, Epoch, Heartbeat, Key, Lifecycle, Revision, Time, Value, Version,
    Weight, WorkerId,
};

use super::Controller;

/// The epoch of the tested leader.
pub(super) const EPOCH: Epoch = Epoch(5);

/// Worker 0, which leads. Time passes only by [`Leader::wait`].
pub(super) struct Leader {
    pub(super) controller: Controller,
    pub(super) facts: Facts,
    pub(super) outbox: Outbox,
    /// The workers whose heartbeats arrive while time passes.
    live: BTreeSet<u32>,
}

impl Leader {
    /// Returns a leader that hears these workers, has watched for 40 s, and has just won the election.
    pub(super) fn elected(live: &[u32]) -> Self {
        Self::elected_with(live, |_| {})
    }

    /// Returns a leader like [`Leader::elected`], with changed facts.
    pub(super) fn elected_with(live: &[u32], change: impl FnOnce(&mut Facts)) -> Self {
        let mut facts = healthy_facts(0);
        facts.watching_since = Some(facts.clock.now());
        facts.identity = Some(holder(0, 1));
        facts.partitions = Some(Arc::new([("a".into(), Weight(1)), ("b".into(), Weight(1))]));
        let live: BTreeSet<u32> = live.iter().copied().collect();
        for _ in 0..40 {
            pass_second(&mut facts, &live);
        }
        change(&mut facts);
        let mut outbox = Outbox::default();
        let controller = Controller::new(EPOCH, &facts, &mut outbox);
        Self { controller, facts, outbox, live }
    }

    /// Returns a leader that has claimed this map.
    pub(super) fn with_map(live: &[u32], map: AssignmentMap) -> Self {
        let mut leader = Self::elected(live);
        leader.outbox.take();
        let claimed = AssignmentMap { epoch: EPOCH, ..map };
        leader.read(1, Ok(Some(claimed)));
        leader.facts.map = leader.controller.map().cloned();
        leader
    }

    /// Answers the read of the map.
    pub(super) fn read(&mut self, serial: u64, map: Result<Option<AssignmentMap>, ReadError>) -> Vec<Effect> {
        let entry = |map| Entry { value: Value::Map(Arc::new(map)), revision: Revision(20), stored_at: 0 };
        let request_id = RequestId { purpose: Purpose::LeaderReadMap, serial };
        let result = map.map(|map| map.map(entry));
        assert_eq!(self.controller.fetched(request_id, result, &self.facts, &mut self.outbox), None);
        self.outbox.take()
    }

    /// Answers a write of the map.
    pub(super) fn written(
        &mut self,
        purpose: Purpose,
        serial: u64,
        result: Result<u64, WriteError>,
    ) -> Vec<Effect> {
        let result = result.map(|revision| Written { revision: Revision(revision), stored_at: 0 });
        self.controller.written(RequestId { purpose, serial }, result, &self.facts, &mut self.outbox);
        self.outbox.take()
    }

    /// Lets seconds pass, in which the live workers are heard and nothing is evaluated.
    pub(super) fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            pass_second(&mut self.facts, &self.live);
        }
    }

    /// Stops the heartbeats of a worker.
    pub(super) fn silence(&mut self, id: u32) {
        self.live.remove(&id);
    }

    /// Records one heartbeat.
    pub(super) fn hear(&mut self, heartbeat: &Heartbeat) {
        let id = heartbeat.worker.expect("a worker").id;
        self.facts.roster.record_heartbeat(id, heartbeat, false, self.facts.now, &self.facts.clock);
    }

    /// Begins to hear a worker.
    pub(super) fn join(&mut self, id: u32) {
        self.live.insert(id);
        self.hear(&beat_of(holder(id, 1)));
    }

    pub(super) fn evaluate(&mut self) -> Vec<Effect> {
        self.controller.evaluate(&self.facts, &mut self.outbox);
        self.outbox.take()
    }
}

fn pass_second(facts: &mut Facts, live: &BTreeSet<u32>) {
    facts.now += Duration::from_secs(1);
    facts.clock.echoed(facts.now, facts.now);
    for &id in live {
        facts.roster.record_heartbeat(WorkerId(id), &beat_of(holder(id, 1)), false, facts.now, &facts.clock);
    }
}

/// Returns a map of version 7 for these workers, which own the partitions `a` and `b` in turn.
pub(super) fn map(workers: &[u32]) -> AssignmentMap {
    let owner = |index: usize| WorkerId(workers[index % workers.len()]);
    let assignment = |index| Assignment { owner: owner(index), weight: Weight(1), adopted: false };
    AssignmentMap {
        version: Version(7),
        epoch: Epoch(3),
        lifecycle: Lifecycle::Stable,
        workers: workers.iter().map(|&id| WorkerId(id)).collect(),
        assignments: [("a".into(), assignment(0)), ("b".into(), assignment(1))].into(),
        fleet_size: None,
        moved: 0,
        moved_weight: Weight(0),
        lower_bound_weight: Weight(0),
    }
}

pub(super) fn read_map(serial: u64) -> Effect {
    Effect::Read { request_id: RequestId { purpose: Purpose::LeaderReadMap, serial }, key: Key::Map }
}

/// Returns the map that an effect publishes or claims, with its purpose and serial number.
pub(super) fn written_map(effect: &Effect) -> Option<(Purpose, u64, &AssignmentMap)> {
    match effect {
        Effect::Write { request_id, key: Key::Map, value: Value::Map(map), .. } => {
            Some((request_id.purpose, request_id.serial, map))
        }
        _ => None,
    }
}

pub(super) fn s(seconds: u64) -> Time {
    Time::from_secs(seconds)
}
