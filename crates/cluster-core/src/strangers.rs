//! Partitions that are not in the list: unknown ones that have messages are adopted, removed ones stay until they are
//! drained.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::io::{Effect, Notice, Purpose, ReadError, Subjects, Ticket, Tickets};
use super::types::{AssignmentMap, Entry, Partitions, Time, Value};

#[derive(Debug, Default)]
pub(super) struct Strangers {
    next: Option<Time>,
    asked: Option<Ticket>,
    /// The log that the candidates were found in.
    stream: u64,
    /// The last message of each candidate, in the order of the request.
    candidates: Vec<(Arc<str>, Option<u64>)>,
    /// Not in the map, and with unread messages.
    unknown: BTreeSet<Arc<str>>,
    /// In the map, not in the list, and not needed any more.
    done: BTreeSet<Arc<str>>,
    /// Grows when one of the two has changed.
    changes: u64,
}

impl Strangers {
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.next.filter(|_| self.asked.is_none())
    }

    /// Asks the log what it holds, when it is time.
    pub(super) fn look(&mut self, now: Time, interval: Time, tickets: &mut Tickets, out: &mut Vec<Effect>) {
        let next = *self.next.get_or_insert(now + interval);
        if now < next || self.asked.is_some() {
            return;
        }
        self.next = Some(now + interval);
        let ticket = tickets.next(Purpose::Subjects);
        out.push(Effect::ListSubjects { ticket });
        self.asked = Some(ticket);
    }

    /// The log says what it holds: the cursors of whatever is not in the list are read.
    pub(super) fn subjects(
        &mut self,
        ticket: Ticket,
        result: Result<Subjects, ReadError>,
        listed: &Partitions,
        map: Option<&AssignmentMap>,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
    ) {
        if self.asked != Some(ticket) {
            return;
        }
        self.asked = None;
        let Ok(Subjects { stream, lasts: subjects }) = result else { return };
        self.stream = stream;
        let listed: BTreeSet<&Arc<str>> = listed.iter().map(|(name, _)| name).collect();
        let mut candidates: BTreeMap<Arc<str>, Option<u64>> = map
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
        self.candidates = candidates.into_iter().collect();
        if self.candidates.is_empty() {
            return;
        }
        let ticket = tickets.next(Purpose::StrangerCursors);
        let partitions = self.candidates.iter().map(|(name, _)| name.clone()).collect();
        out.push(Effect::ReadCursors { ticket, partitions });
        self.asked = Some(ticket);
    }

    /// The cursors say who is drained.
    pub(super) fn cursors(
        &mut self,
        ticket: Ticket,
        result: Result<Vec<Option<Entry>>, ReadError>,
        map: Option<&AssignmentMap>,
        out: &mut Vec<Effect>,
    ) {
        if self.asked != Some(ticket) {
            return;
        }
        self.asked = None;
        let Ok(cursors) = result else { return };
        let (mut unknown, mut done) = (BTreeSet::new(), BTreeSet::new());
        for ((name, last), entry) in self.candidates.drain(..).zip(cursors) {
            let committed = entry.as_ref().map_or(0, |entry| match &entry.value {
                // What was committed in another log says nothing about this one.
                Value::Cursor(cursor) if cursor.stream == self.stream => cursor.position.sequence,
                _ => 0,
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
        for partition in unknown.difference(&self.unknown).cloned() {
            out.push(Effect::Notice(Notice::Adopted { partition }));
        }
        if (&unknown, &done) != (&self.unknown, &self.done) {
            (self.unknown, self.done) = (unknown, done);
            self.changes += 1;
        }
    }

    /// The list, with whoever is adopted and whoever is not drained yet.
    pub(super) fn join(&self, listed: &Partitions, map: Option<&AssignmentMap>) -> Wanted {
        let mut wanted: BTreeMap<Arc<str>, (u64, bool)> =
            listed.iter().map(|(name, weight)| (name.clone(), (*weight, false))).collect();
        let mut weights: Vec<u64> = listed.iter().map(|(_, weight)| *weight).collect();
        weights.sort_unstable();
        let median = weights.get(weights.len() / 2).copied().unwrap_or(1);
        for (name, known) in map.into_iter().flat_map(|map| &map.assignments) {
            if !self.done.contains(name) {
                wanted.entry(name.clone()).or_insert((known.weight, known.adopted));
            }
        }
        for name in &self.unknown {
            wanted.entry(name.clone()).or_insert((median, true));
        }
        let adopted =
            wanted.iter().filter(|(_, (_, adopted))| *adopted).map(|(name, _)| name.clone()).collect();
        let partitions = wanted.into_iter().map(|(name, (weight, _))| (name, weight)).collect();
        Wanted { partitions, adopted }
    }
}

/// Every partition that a map should have.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) partitions: Arc<Partitions>,
    pub(super) adopted: BTreeSet<Arc<str>>,
}
