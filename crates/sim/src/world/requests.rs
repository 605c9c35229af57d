//! Requests of processes: their way to the broker, their effect there, and the answers.

use phalanx_cluster_core::types::{AssignmentMap, Key, Revision, Time, Value};
use phalanx_cluster_core::{
    Condition, Effect, Event, LeaseExpiry, LogInspection, LogPage, Purpose, ReadError, RequestId,
    SubjectList, WorkerState, WriteError, Written,
};

use crate::broker::decode;
use crate::event::SimEvent;
use crate::fleet::ProcessId;
use crate::network::{LATENCY, Passage, Request, TIMEOUT, WatchedBucket};
use crate::rules::EnvironmentRule;
use crate::world::World;

/// The time by which a replica of the log may be behind, in microseconds.
const REPLICA_LAG: u64 = 3_000_000;

impl World {
    /// Sends a request to the broker: it may wait for the link, come late, or lose its answer.
    pub(super) fn send(&mut self, process: ProcessId, effect: Effect) {
        let request =
            Request { key: key_of(&effect), purpose: purpose_of(&effect), is_write: is_write(&effect) };
        let route = self.network.route(self.now, process, request);
        for copy in route.copies.into_iter().flatten() {
            self.later(copy, SimEvent::LateRequest(process, effect.clone()));
        }
        match route.passage {
            Passage::Arrives(delay) => self.later(delay, SimEvent::Request(process, effect)),
            Passage::Lost => self.later(TIMEOUT, SimEvent::Arrival(process, unanswered(&effect))),
            Passage::TimesOut(late) => {
                self.oracle.processes.disturb(process, self.now);
                self.later(TIMEOUT, SimEvent::Arrival(process, unanswered(&effect)));
                if let Some(late) = late {
                    self.later(late, SimEvent::LateRequest(process, effect));
                }
            }
        }
    }

    /// Executes a request at the broker and sends the answer.
    pub(super) fn answer(&mut self, process: ProcessId, effect: Effect) {
        let given_up = unanswered(&effect);
        let is_stale = matches!(effect, Effect::Read { .. } | Effect::ReadCursors { .. })
            && self.network.rolls_stale_read();
        let event = if is_stale {
            self.oracle.processes.disturb(process, self.now);
            self.doubt_cursors(process, &effect);
            self.stale_answer(effect)
        } else {
            self.apply(process, effect)
        };
        match self.network.answer_delay(self.now, process) {
            Some(delay) => self.later(delay, SimEvent::Arrival(process, event)),
            None => {
                self.oracle.processes.disturb(process, self.now);
                self.later(TIMEOUT - LATENCY, SimEvent::Arrival(process, given_up));
            }
        }
    }

    /// Tells the oracle that a process is shown old cursors.
    fn doubt_cursors(&mut self, process: ProcessId, effect: &Effect) {
        let names = match effect {
            Effect::Read { key: Key::Cursor(name), .. } => std::slice::from_ref(name),
            Effect::ReadCursors { partitions, .. } => partitions,
            _ => return,
        };
        for name in names {
            self.oracle.doubt(process, self.traffic.partition(name));
        }
    }

    /// Returns the answer of a server that does not know that it is no longer the leader: each value is the one before.
    fn stale_answer(&self, effect: Effect) -> Event {
        match effect {
            Effect::Read { request_id, key } => {
                Event::Fetched { request_id, result: Ok(self.broker.before(&key)) }
            }
            Effect::ReadCursors { request_id, partitions } => {
                let keys = partitions.into_iter().map(Key::Cursor);
                let found = keys.map(|key| self.broker.before(&key)).collect();
                Event::Cursors { request_id, result: Ok(found) }
            }
            other => unreachable!("{other:?} is never answered with an old value"),
        }
    }

    /// Expires claims that were not renewed for half a minute, without the rule against it.
    fn expire_claims(&mut self) {
        if !self.setup.enforces(EnvironmentRule::NoShortTtl) {
            self.broker.old_claims(self.now).iter().for_each(|key| self.lose(key));
        }
    }

    /// Executes a request at the broker and returns the answer.
    pub(super) fn apply(&mut self, process: ProcessId, effect: Effect) -> Event {
        self.expire_claims();
        match effect {
            Effect::Write { request_id, key, value, condition } => {
                let result = self.write(process, request_id, &key, value, condition);
                Event::Written { request_id, result }
            }
            Effect::Delete { request_id, key, revision } => {
                let known = self.broker.revision(&key);
                let revision = if revision == Revision::ANY { known.unwrap_or(revision) } else { revision };
                let result = self.broker.delete(self.now, &key, revision);
                if result.is_ok() {
                    self.notify_watches(&key);
                }
                Event::Written { request_id, result }
            }
            Effect::Read { request_id, key } => {
                Event::Fetched { request_id, result: Ok(self.broker.get(&key)) }
            }
            Effect::ReadCursors { request_id, partitions } => {
                let keys = partitions.into_iter().map(Key::Cursor);
                let found = keys.map(|key| self.broker.get(&key)).collect();
                Event::Cursors { request_id, result: Ok(found) }
            }
            effect => self.apply_to_log(effect),
        }
    }

    fn apply_to_log(&mut self, effect: Effect) -> Event {
        match effect {
            Effect::InspectLog { request_id, partitions } => {
                self.expire();
                let log = &self.broker.log;
                let last = |name| log.last_id_of(self.traffic.partition(name));
                let last_messages = partitions.iter().map(|name| last(name)).collect();
                let result = Ok(LogInspection { info: log.info(), last_messages });
                Event::LogInspected { request_id, result }
            }
            Effect::ReadLog { request_id, partition, from, from_leader } => {
                self.expire();
                let is_behind = !from_leader && self.network.rolls_stale_log();
                let until = if is_behind { self.broker.micros(self.now) - REPLICA_LAG } else { u64::MAX };
                let log = &self.broker.log;
                let messages = log.read(self.traffic.partition(&partition), from, 2, until);
                let info = from_leader.then(|| log.info());
                Event::LogRead { request_id, result: Ok(LogPage { info, messages }) }
            }
            Effect::PublishDeadLetter { request_id, partition, work, .. } => {
                let partition = self.traffic.partition(&partition);
                if self.broker.append_dead_letter(partition, work.position) {
                    let (number, _) = decode(&work.message.payload);
                    self.oracle.on_dead_letter(self.now, partition, work.message.sequence, number);
                }
                Event::DeadLetterStep { request_id, happened: true }
            }
            Effect::ListSubjects { request_id } => {
                let log = &self.broker.log;
                let found =
                    log.subjects().map(|(partition, _, last)| (self.traffic.name(partition).clone(), last));
                let subjects = SubjectList { log_id: log.info().log_id, lasts: found.collect() };
                Event::Subjects { request_id, result: Ok(subjects) }
            }
            other => unreachable!("{other:?} is not for the broker"),
        }
    }

    fn write(
        &mut self,
        process: ProcessId,
        request_id: RequestId,
        key: &Key,
        value: Value,
        condition: Condition,
    ) -> Result<Written, WriteError> {
        let now = self.now;
        let before = self.broker.value(key).cloned();
        let written = self.broker.write(now, key, value.clone(), condition)?;
        self.oracle.stored(now, &value);
        match (&value, &before) {
            (Value::Cursor(is), before) => {
                let Key::Cursor(name) = key else { return Ok(written) };
                let was = before.as_ref().and_then(|value| match value {
                    Value::Cursor(cursor) => Some(&**cursor),
                    _ => None,
                });
                let partition = self.traffic.partition(name);
                self.oracle.cursor(now, process, partition, (was, is), &self.store.rows);
                return Ok(written);
            }
            (Value::Map(is), Some(Value::Map(was))) => {
                let is_emergency = self.worker(process).state() == WorkerState::Emergency;
                if is_emergency && request_id.purpose == Purpose::PublishMap && is.version > was.version {
                    self.oracle.emergency(now, was, is);
                }
                if is.version > was.version {
                    self.note_publication(is);
                }
            }
            (Value::Map(is), _) => self.note_publication(is),
            _ => {}
        }
        if let (Key::Lease, LeaseExpiry::AfterTerm(term)) = (key, self.setup.config.lease_expiry) {
            self.later(term, SimEvent::TermOver(written.revision));
        }
        self.notify_watches(key);
        Ok(written)
    }

    /// Ends a lease that was not renewed for its term, as the Election Agent does.
    pub(super) fn end_term(&mut self, revision: Revision) {
        let LeaseExpiry::AfterTerm(term) = self.setup.config.lease_expiry else { return };
        if self.broker.revision(&Key::Lease) != Some(revision) {
            return;
        }
        // After an outage of the agent every lease gets a full term.
        let (now, down_until) = (self.now, self.network.agent_down_until);
        let full = down_until + term;
        if down_until > Time::ZERO && now < full {
            self.later(full - now, SimEvent::TermOver(revision));
        } else {
            self.lose(&Key::Lease);
        }
    }

    /// Shows a change of a key to every watch.
    pub(super) fn notify_watches(&mut self, key: &Key) {
        if matches!(key, Key::Cursor(_)) {
            return;
        }
        let now = self.now;
        let entry = self.broker.get(key);
        let bucket = WatchedBucket::of(key);
        let mut but = Vec::new();
        for process in self.fleet.running().to_vec() {
            let link = self.network.link_mut(process);
            if link.is_watch_immediate(now, bucket) {
                continue;
            }
            but.push(process);
            if *key == Key::Map && std::mem::take(&mut link.drops_map) {
                continue;
            }
            let event = Event::Watched { key: key.clone(), entry: entry.clone(), retained: false };
            let at = link.delay(now, LATENCY, bucket, event);
            self.later(at - now, SimEvent::DeliverDelayed(process));
        }
        let until = self.fleet.started();
        self.later(LATENCY, SimEvent::Broadcast { key: key.clone(), entry, but, until });
    }

    /// Delivers the delayed watch events of a process that are due.
    pub(super) fn deliver_delayed(&mut self, process: ProcessId) {
        for event in self.network.link_mut(process).take_due(self.now) {
            self.deliver(process, event);
        }
    }

    fn note_publication(&mut self, map: &AssignmentMap) {
        self.add_publication(map);
        let (version, workers) = (map.version.0, map.workers.len());
        self.note(|| format!("version {version} for {workers} workers"));
    }
}

/// Returns whether a request is a change.
fn is_write(effect: &Effect) -> bool {
    matches!(effect, Effect::Write { .. } | Effect::Delete { .. } | Effect::PublishDeadLetter { .. })
}

/// Returns the key that a request is about, if it is one.
fn key_of(effect: &Effect) -> Option<&Key> {
    match effect {
        Effect::Write { key, .. } | Effect::Delete { key, .. } | Effect::Read { key, .. } => Some(key),
        _ => None,
    }
}

/// Returns the purpose of a write or a deletion.
fn purpose_of(effect: &Effect) -> Option<Purpose> {
    match effect {
        Effect::Write { request_id, .. } | Effect::Delete { request_id, .. } => Some(request_id.purpose),
        _ => None,
    }
}

/// Returns the event of a caller that gives up waiting.
fn unanswered(effect: &Effect) -> Event {
    match *effect {
        Effect::Read { request_id, .. } => Event::Fetched { request_id, result: Err(ReadError) },
        Effect::ReadCursors { request_id, .. } => Event::Cursors { request_id, result: Err(ReadError) },
        Effect::InspectLog { request_id, .. } => Event::LogInspected { request_id, result: Err(ReadError) },
        Effect::ReadLog { request_id, .. } => Event::LogRead { request_id, result: Err(ReadError) },
        Effect::ListSubjects { request_id } => Event::Subjects { request_id, result: Err(ReadError) },
        Effect::PublishDeadLetter { request_id, .. } => Event::DeadLetterStep { request_id, happened: false },
        Effect::Write { request_id, .. } | Effect::Delete { request_id, .. } => {
            Event::Written { request_id, result: Err(WriteError::Unknown) }
        }
        ref other => unreachable!("{other:?} is not for the broker"),
    }
}
