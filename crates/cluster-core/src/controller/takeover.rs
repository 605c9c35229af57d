//! Taking over as a new leader: read the map, claim it, and only then calculate.

use std::sync::Arc;

use crate::facts::Facts;
use crate::io::{Condition, Notice, Purpose, ReadError, RequestId};
use crate::outbox::Outbox;
use crate::trigger::Window;
use crate::types::{AssignmentMap, Entry, Key, Value, Weight};

use super::{Controller, Phase, Proposal};

/// A map for fewer workers is never a restart.
const RESTART_MIN_WORKERS: usize = 10;
/// A cluster with this many live workers is not restarting.
const RESTART_MAX_PRESENT: usize = 5;

impl Controller {
    /// Inherits the window and the grace periods of the last leader, counted from the arrival of its state.
    pub(super) fn inherit_state(&mut self, facts: &Facts) {
        let Some((state, arrived)) = &facts.cluster_state else { return };
        self.window =
            state.window.map(|(kind, left)| Window { kind, opened: *arrived, ends: *arrived + left });
        let grace_periods = state.grace_periods.iter().map(|(&id, &left)| (id, *arrived + left));
        self.inherited_grace_periods = facts.policy().inherited(grace_periods.collect());
    }

    pub(super) fn read_map(&mut self, unanswered: Option<Proposal>, outbox: &mut Outbox) {
        let request_id = outbox.read(Purpose::LeaderReadMap, Key::Map);
        self.phase = Phase::ReadingMap { request_id, unanswered };
    }

    /// Handles the removal of the map, which the watch has shown.
    pub(crate) fn on_map_lost(&mut self, outbox: &mut Outbox) {
        let unanswered = match &self.phase {
            Phase::ReadingMap { .. } => return,
            Phase::Running => None,
            Phase::ClaimingMap { proposed, .. } => {
                Some(Proposal { map: proposed.clone(), is_publication: false })
            }
            Phase::Publishing { proposed, .. } => {
                Some(Proposal { map: proposed.clone(), is_publication: true })
            }
        };
        self.read_map(unanswered, outbox);
    }

    /// Handles the map that was read. An answer to an earlier read changes nothing.
    pub(super) fn on_map_read(
        &mut self,
        request_id: RequestId,
        result: Result<Option<Entry>, ReadError>,
        facts: &Facts,
        outbox: &mut Outbox,
    ) {
        let unanswered = match &mut self.phase {
            Phase::ReadingMap { request_id: asked, unanswered } if *asked == request_id => unanswered.take(),
            _ => return,
        };
        match result {
            Err(ReadError) => self.read_map(unanswered, outbox),
            Ok(entry) => {
                self.map = entry.and_then(|entry| match entry.value {
                    Value::Map(map) => Some((map, entry.revision)),
                    _ => None,
                });
                let is_stored = |proposal: &Proposal| self.current_map() == Some(&*proposal.map);
                if unanswered.is_some_and(|proposal| proposal.is_publication && is_stored(&proposal)) {
                    self.on_published(facts);
                }
                self.claim_map(facts, outbox);
            }
        }
    }

    /// Rewrites the map unchanged except for the epoch, unless it carries the epoch of this leader already.
    fn claim_map(&mut self, facts: &Facts, outbox: &mut Outbox) {
        let Some((map, revision)) = self.map.clone() else {
            self.restore_map(facts, outbox);
            return;
        };
        if map.epoch == self.epoch || !facts.policy().claims_map_first() {
            self.begin(facts, outbox);
            return;
        }
        if map.epoch > self.epoch {
            self.epoch = map.epoch.next();
        }
        let claimed = AssignmentMap { epoch: self.epoch, ..(*map).clone() };
        self.write_claim(claimed, Condition::Revision(revision), outbox);
    }

    /// Writes a lost map again, above every version that any worker has seen. Begins without a map if this process knows
    /// none.
    fn restore_map(&mut self, facts: &Facts, outbox: &mut Outbox) {
        let Some(known) = facts.map() else {
            self.begin(facts, outbox);
            return;
        };
        let restored = AssignmentMap {
            epoch: self.epoch,
            version: self.next_version(facts).max(known.version.next()),
            moved: 0,
            moved_weight: Weight(0),
            lower_bound_weight: Weight(0),
            ..known.clone()
        };
        self.write_claim(restored, Condition::Absent, outbox);
    }

    fn write_claim(&mut self, claimed: AssignmentMap, condition: Condition, outbox: &mut Outbox) {
        invariant!(claimed.epoch == self.epoch, "a claimed map carries the epoch of its leader");
        let proposed = Arc::new(claimed);
        let request_id = outbox.write(Purpose::TouchMap, Key::Map, Value::Map(proposed.clone()), condition);
        self.phase = Phase::ClaimingMap { request_id, proposed };
    }

    /// Begins, or continues, to evaluate the fleet.
    pub(super) fn begin(&mut self, facts: &Facts, outbox: &mut Outbox) {
        invariant!(
            self.current_map().is_none_or(|map| map.epoch == self.epoch)
                || !facts.policy().claims_map_first(),
            "a leader calculates only with a map of its own epoch"
        );
        if self.state.is_first() {
            let present = |map: &AssignmentMap| map.workers.iter().filter(|id| facts.is_live(**id)).count();
            self.restarting = self.current_map().is_some_and(|map| {
                map.workers.len() >= RESTART_MIN_WORKERS && present(map) < RESTART_MAX_PRESENT
            });
            if self.restarting {
                outbox.notify(Notice::RestartDetected);
            }
        }
        self.phase = Phase::Running;
    }
}

#[cfg(test)]
#[path = "takeover_test.rs"]
mod tests;
