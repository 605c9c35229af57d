//! Writing heartbeats, and renewing the claim with them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::io::{Condition, Purpose, RequestId};
use crate::types::{Heartbeat, Key, Time, Value};

use super::WorkerCore;

/// The schedule of heartbeats.
#[derive(Debug)]
pub(super) struct Heartbeats {
    pub(super) next: Time,
    pub(super) next_renewal: Time,
    /// Whether a heartbeat is due before the next periodic one, because its content has changed.
    pub(super) is_requested: bool,
    /// Serial numbers of heartbeats without an answer.
    pub(super) unanswered: BTreeSet<u64>,
}

impl Heartbeats {
    pub(super) fn new(now: Time) -> Self {
        Self { next: now, next_renewal: now, is_requested: false, unanswered: BTreeSet::new() }
    }
}

impl WorkerCore {
    /// Sends a heartbeat if one is due, and renews the claim with a periodic one.
    pub(super) fn send_heartbeat(&mut self) {
        let now = self.facts.now;
        let is_due = now >= self.heartbeats.next;
        let is_silent = !self.is_synced || self.leave_phase().is_some_and(|phase| !phase.needs_heartbeats());
        if is_silent || !(is_due || self.heartbeats.is_requested) {
            return;
        }
        self.heartbeats.is_requested = false;
        let request_id = self.write_heartbeat(Purpose::Heartbeat, false);
        self.fence.heartbeat_sent(now, request_id.serial);
        self.heartbeats.unanswered.insert(request_id.serial);
        if is_due {
            self.heartbeats.next = now + self.facts.config.heartbeat_interval;
            if now >= self.heartbeats.next_renewal {
                self.heartbeats.next_renewal = now + self.facts.config.claim_renewal();
                self.identity.renew(&mut self.outbox);
            }
        }
    }

    /// Writes the leave record. No heartbeat may arrive after it.
    pub(super) fn write_leave_record(&mut self) -> RequestId {
        invariant!(
            self.heartbeats.unanswered.is_empty(),
            "every heartbeat is answered before the leave record"
        );
        self.write_heartbeat(Purpose::LeaveRecord, true)
    }

    fn write_heartbeat(&mut self, purpose: Purpose, left: bool) -> RequestId {
        let facts = &self.facts;
        let key = match facts.identity {
            Some(me) => Key::Heartbeat(me.id),
            None => Key::StandbyHeartbeat(facts.pod.uid.clone()),
        };
        let heartbeat = Heartbeat {
            pod: facts.pod.clone(),
            worker: facts.identity,
            serial: self.outbox.last_serial() + 1,
            state: self.state(),
            left,
            is_leader: self.is_leader(),
            map_version: facts.map_version(),
            applied_version: self.assignment.applied(),
            cursor_version: self.consumer.cursor_version(),
            assigned: self.assignment.len(),
            processed: self.consumer.processed(),
            fleet_size: facts.config.fleet_size,
        };
        let serial = heartbeat.serial;
        let request_id =
            self.outbox.write(purpose, key, Value::Heartbeat(Arc::new(heartbeat)), Condition::None);
        invariant!(request_id.serial == serial, "a heartbeat carries the serial number of its request");
        request_id
    }
}
