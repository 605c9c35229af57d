//! What the world itself has seen happen, kept apart from what the workers believe.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use phalanx_cluster::core::types::{Epoch, Time, Value, Version};
use phalanx_cluster::core::{Effect, Purpose, Ticket};

use crate::world::ProcessId;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The number of the invariant in the design.
    pub invariant: u32,
    /// When.
    pub at: Time,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s: invariant {}: {}", self.at.as_secs_f64(), self.invariant, self.what)
    }
}

/// No worker leads later than this after the sending of its last acknowledged heartbeat.
const FENCE: Duration = Duration::from_millis(4500);

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sent: BTreeMap<(ProcessId, Ticket), Time>,
    /// When the newest acknowledged heartbeat of a process was sent.
    proof: BTreeMap<ProcessId, Time>,
    newest: (Version, Epoch),
    pub(crate) violations: Vec<Violation>,
}

impl Ledger {
    pub(crate) fn started(&mut self, now: Time, process: ProcessId) {
        self.proof.insert(process, now);
    }

    /// A process asks for something to be written.
    pub(crate) fn asked(&mut self, now: Time, process: ProcessId, effect: &Effect) {
        let Effect::Write { ticket, .. } = effect else { return };
        match ticket.purpose {
            Purpose::Heartbeat => {
                self.sent.insert((process, *ticket), now);
            }
            Purpose::TouchMap | Purpose::PublishMap | Purpose::WriteState => {
                let proof = self.proof.get(&process).copied().unwrap_or_default();
                if now.saturating_sub(proof) > FENCE {
                    let late = now.saturating_sub(proof);
                    self.violate(
                        8,
                        now,
                        format!("{process} leads {late:?} after its last acknowledged heartbeat"),
                    );
                }
            }
            _ => {}
        }
    }

    /// A process is told that a write happened.
    pub(crate) fn acknowledged(&mut self, process: ProcessId, ticket: Ticket) {
        if let Some(sent) = self.sent.remove(&(process, ticket)) {
            let proof = self.proof.entry(process).or_default();
            *proof = (*proof).max(sent);
        }
    }

    /// A value was stored.
    pub(crate) fn stored(&mut self, now: Time, value: &Value) {
        if let Value::ClusterState(state) = value {
            // A leader that says something has taken over: from then on nothing of an earlier one may be accepted.
            self.newest.1 = self.newest.1.max(state.epoch);
        }
        let Value::Map(map) = value else { return };
        let (version, epoch) = self.newest;
        if map.version < version || map.epoch < epoch {
            let (was, is) = ((version, epoch), (map.version, map.epoch));
            self.violate(12, now, format!("the map went from {was:?} to {is:?}"));
        }
        self.newest = (map.version, map.epoch.max(epoch));
    }

    pub(crate) fn violate(&mut self, invariant: u32, at: Time, what: String) {
        self.violations.push(Violation { invariant, at, what });
    }
}
