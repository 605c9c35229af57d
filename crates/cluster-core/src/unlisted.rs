//! Partitions that are not in the list: unknown ones that have messages are adopted, removed ones stay until they are
//! drained.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::facts::Facts;
use super::io::{Effect, Notice, Purpose, ReadError, RequestId, SubjectList};
use super::outbox::Outbox;
use super::types::{AssignmentMap, Entry, LogId, PartitionList, Sequence, Time, Value, Weight};

#[derive(Debug, Default)]
pub(super) struct UnlistedPartitions {
    next: Option<Time>,
    asked: Option<RequestId>,
    /// The log that the candidates were found in.
    log_id: Option<LogId>,
    /// The last message of each candidate, in the order of the request.
    candidates: Vec<(Arc<str>, Option<Sequence>)>,
    /// Not in the map, and with unread messages.
    to_adopt: BTreeSet<Arc<str>>,
    /// In the map, not in the list, and not needed any more.
    drained: BTreeSet<Arc<str>>,
    /// Grows when one of the two has changed.
    changes: u64,
}

impl UnlistedPartitions {
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.next.filter(|_| self.asked.is_none())
    }

    /// Lists the partitions of the log, when it is time.
    pub(super) fn scan_if_due(&mut self, facts: &Facts, outbox: &mut Outbox) {
        let interval = facts.config.unlisted_scan_interval;
        let next = *self.next.get_or_insert(facts.now + interval);
        if facts.now < next || self.asked.is_some() {
            return;
        }
        self.next = Some(facts.now + interval);
        self.asked =
            Some(outbox.request(Purpose::Subjects, |request_id| Effect::ListSubjects { request_id }));
    }

    /// Handles the partitions of the log: reads the cursors of those that are not in the list.
    pub(super) fn subjects(
        &mut self,
        request_id: RequestId,
        result: Result<SubjectList, ReadError>,
        listed: &PartitionList,
        map: Option<&AssignmentMap>,
        outbox: &mut Outbox,
    ) {
        if self.asked != Some(request_id) {
            return;
        }
        self.asked = None;
        let Ok(SubjectList { log_id, lasts: subjects }) = result else { return };
        self.log_id = Some(log_id);
        let listed: BTreeSet<&Arc<str>> = listed.iter().map(|(name, _)| name).collect();
        let mut candidates: BTreeMap<Arc<str>, Option<Sequence>> = map
            .into_iter()
            .flat_map(|map| map.assignments.keys())
            .filter(|name| !listed.contains(name))
            .map(|name| (name.clone(), None))
            .collect();
        candidates.extend(
            subjects
                .into_iter()
                .filter(|(name, _)| !listed.contains(name))
                .map(|(name, last)| (name, Some(last))),
        );
        invariant!(
            candidates.keys().all(|name| !listed.contains(name)),
            "only unlisted partitions are candidates"
        );
        self.candidates = candidates.into_iter().collect();
        if self.candidates.is_empty() {
            return;
        }
        let partitions = self.candidates.iter().map(|(name, _)| name.clone()).collect();
        self.asked =
            Some(outbox.request(Purpose::UnlistedCursors, |request_id| Effect::ReadCursors {
                request_id,
                partitions,
            }));
    }

    /// The cursors say who is drained.
    pub(super) fn cursors(
        &mut self,
        request_id: RequestId,
        result: Result<Vec<Option<Entry>>, ReadError>,
        map: Option<&AssignmentMap>,
        outbox: &mut Outbox,
    ) {
        if self.asked != Some(request_id) {
            return;
        }
        self.asked = None;
        let Ok(cursors) = result else { return };
        invariant!(cursors.len() == self.candidates.len(), "one answer for each cursor");
        let (mut unknown, mut done) = (BTreeSet::new(), BTreeSet::new());
        for ((name, last), entry) in self.candidates.drain(..).zip(cursors) {
            let committed = entry.as_ref().map_or(Sequence::START, |entry| match &entry.value {
                // What was committed in another log says nothing about this one.
                Value::Cursor(cursor) if cursor.log_id == self.log_id => cursor.position.sequence,
                _ => Sequence::START,
            });
            let unread = last.is_some_and(|last| last > committed);
            match map.and_then(|map| map.assignments.get(&name)) {
                // An adopted one stays as long as the log knows it: it is not in the list, but it is there.
                Some(known) if known.adopted && last.is_some() => {}
                Some(_) if unread => {}
                Some(_) => drop(done.insert(name)),
                None if unread => drop(unknown.insert(name)),
                None => {}
            }
        }
        invariant!(unknown.is_disjoint(&done), "a partition is adopted or drained");
        for partition in unknown.difference(&self.to_adopt).cloned() {
            outbox.notify(Notice::Adopted { partition });
        }
        if (&unknown, &done) != (&self.to_adopt, &self.drained) {
            (self.to_adopt, self.drained) = (unknown, done);
            self.changes += 1;
        }
    }

    /// The list, with whoever is adopted and whoever is not drained yet.
    pub(super) fn desired_partitions(
        &self,
        listed: &PartitionList,
        map: Option<&AssignmentMap>,
    ) -> DesiredPartitions {
        let mut wanted: BTreeMap<Arc<str>, (Weight, bool)> =
            listed.iter().map(|(name, weight)| (name.clone(), (*weight, false))).collect();
        let mut weights: Vec<Weight> = listed.iter().map(|(_, weight)| *weight).collect();
        weights.sort_unstable();
        let median = weights.get(weights.len() / 2).copied().unwrap_or(Weight(1));
        for (name, known) in map.into_iter().flat_map(|map| &map.assignments) {
            if !self.drained.contains(name) {
                wanted.entry(name.clone()).or_insert((known.weight, known.adopted));
            }
        }
        for name in &self.to_adopt {
            wanted.entry(name.clone()).or_insert((median, true));
        }
        let adopted =
            wanted.iter().filter(|(_, (_, adopted))| *adopted).map(|(name, _)| name.clone()).collect();
        let partitions = wanted.into_iter().map(|(name, (weight, _))| (name, weight)).collect();
        DesiredPartitions { partitions, adopted }
    }
}

/// Every partition that a map should have.
#[derive(Clone, Debug)]
pub(super) struct DesiredPartitions {
    pub(super) partitions: Arc<PartitionList>,
    pub(super) adopted: BTreeSet<Arc<str>>,
}
