//! What this worker owns: the difference that each map makes, and which map it has fully followed.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::io::Effect;
use super::types::{AssignmentMap, Version, WorkerId};

#[derive(Debug, Default)]
pub(super) struct Holdings {
    owned: BTreeSet<Arc<str>>,
    /// The newest map followed so far.
    version: Version,
    /// The newest map whose losses are let go of.
    applied: Version,
}

impl Holdings {
    pub(super) fn applied(&self) -> Version {
        self.applied
    }

    pub(super) fn len(&self) -> usize {
        self.owned.len()
    }

    /// Follows a map: says what was gained and lost. Where nothing was lost and nothing earlier is still being let go
    /// of, the map is applied at once.
    pub(super) fn follow(&mut self, me: WorkerId, map: &AssignmentMap, out: &mut Vec<Effect>) {
        let mine = map.assignments.iter().filter(|(_, assignment)| assignment.owner == me);
        let wanted: BTreeSet<Arc<str>> = mine.map(|(name, _)| name.clone()).collect();
        let settled = self.applied == self.version;
        let removed = self.change_to(map.version, wanted, out);
        if settled && removed == 0 {
            self.applied = map.version;
        }
    }

    /// Gives everything up: the id is lost.
    pub(super) fn clear(&mut self, out: &mut Vec<Effect>) {
        self.change_to(self.version, BTreeSet::new(), out);
        *self = Self::default();
    }

    fn change_to(&mut self, version: Version, wanted: BTreeSet<Arc<str>>, out: &mut Vec<Effect>) -> usize {
        let added: Vec<_> = wanted.difference(&self.owned).cloned().collect();
        let removed: Vec<_> = self.owned.difference(&wanted).cloned().collect();
        let count = removed.len();
        if !(added.is_empty() && removed.is_empty()) {
            out.push(Effect::Assign { version, added, removed });
        }
        self.owned = wanted;
        self.version = version;
        count
    }

    /// What a map took away has been let go of. Says whether that is news.
    pub(super) fn let_go(&mut self, version: Version) -> bool {
        let news = version > self.applied && version <= self.version;
        if news {
            self.applied = version;
        }
        news
    }
}
