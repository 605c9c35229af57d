//! What this worker owns: the difference that each map makes, and which map it has fully followed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::io::Effect;
use super::outbox::Outbox;
use super::types::{AssignmentMap, Version, WorkerId};

/// What a map gave and took.
#[derive(Debug)]
pub(super) struct AssignmentChange {
    pub(super) added: Vec<Arc<str>>,
    pub(super) removed: Vec<Arc<str>>,
}

#[derive(Debug, Default)]
pub(super) struct OwnAssignment {
    owned: BTreeSet<Arc<str>>,
    /// The newest map followed so far.
    version: Version,
    /// The newest map whose losses are let go of.
    applied: Version,
}

impl OwnAssignment {
    pub(super) fn applied(&self) -> Version {
        self.applied
    }

    pub(super) fn len(&self) -> usize {
        self.owned.len()
    }

    /// Follows a map: says what was gained and lost, if it is a new one. Where nothing was lost and nothing earlier is
    /// still being let go of, the map is applied at once.
    pub(super) fn apply_map(
        &mut self,
        me: WorkerId,
        map: &AssignmentMap,
        outbox: &mut Outbox,
    ) -> Option<AssignmentChange> {
        if self.version == map.version {
            return None;
        }
        let mine = map.assignments.iter().filter(|(_, assignment)| assignment.owner == me);
        let wanted: BTreeSet<Arc<str>> = mine.map(|(name, _)| name.clone()).collect();
        let settled = self.applied == self.version;
        let (added, removed) = self.change_to(map.version, wanted, outbox);
        invariant!(self.version == map.version, "the assignment follows the map");
        if settled && removed.is_empty() {
            self.applied = map.version;
        }
        invariant!(self.applied <= self.version, "no map is applied before it is followed");
        Some(AssignmentChange { added, removed })
    }

    /// Gives everything up: the id is lost.
    pub(super) fn clear(&mut self, outbox: &mut Outbox) {
        self.change_to(self.version, BTreeSet::new(), outbox);
        *self = Self::default();
    }

    fn change_to(
        &mut self,
        version: Version,
        wanted: BTreeSet<Arc<str>>,
        outbox: &mut Outbox,
    ) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let added: Vec<_> = wanted.difference(&self.owned).cloned().collect();
        let removed: Vec<_> = self.owned.difference(&wanted).cloned().collect();
        if !(added.is_empty() && removed.is_empty()) {
            outbox.push(Effect::Assign { version, added: added.clone(), removed: removed.clone() });
        }
        invariant!(removed.iter().all(|name| !wanted.contains(name)), "a removed partition is not owned");
        invariant!(
            wanted.len() + removed.len() == self.owned.len() + added.len(),
            "the change from {} to {} partitions adds up",
            self.owned.len(),
            wanted.len()
        );
        self.owned = wanted;
        self.version = version;
        (added, removed)
    }

    /// What a map took away has been let go of. Says whether that is news.
    pub(super) fn mark_released(&mut self, version: Version) -> bool {
        let news = version > self.applied && version <= self.version;
        if news {
            self.applied = version;
        }
        news
    }

    /// Everything that any map took away has been let go of. Says whether that is news.
    pub(super) fn mark_all_released(&mut self) -> bool {
        self.mark_released(self.version)
    }
}
