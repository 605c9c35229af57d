//! What passes between processes and the broker, and what may befall it on its way.

use super::*;

impl World {
    /// A request on its way to the broker: it may wait for the link, come late, or lose its answer.
    pub(super) fn send(&mut self, process: ProcessId, effect: Effect) {
        let now = self.now;
        let is_heartbeat =
            matches!(&effect, Effect::Write { request_id, .. } if request_id.purpose == Purpose::Heartbeat);
        let target = &self.processes[process.index()];
        if is_heartbeat && target.drops_heartbeats {
            self.later(TIMEOUT, SimEvent::Arrival(process, unanswered(&effect)));
            return;
        }
        let away = self.agent_down_until.max(target.cut_from_agent) > now;
        if away && key_of(&effect) == Some(&Key::Lease) {
            self.later(TIMEOUT, SimEvent::Arrival(process, unanswered(&effect)));
            return;
        }
        let cut = target.cut_out.saturating_sub(now);
        if let Some((purpose, after)) = target.repeats
            && purpose_of(&effect) == Some(purpose)
        {
            self.processes[process.index()].repeats = None;
            self.later(after, SimEvent::LateRequest(process, effect.clone()));
        }
        let (mut delay, mut answered) = (LATENCY, true);
        let writes = writes(&effect);
        match self.fault_rng.as_mut().map_or(0, |shaker| shaker.between(0, 2_000)) {
            1..=4 => {
                let late = self.fault_rng.as_mut().map_or(0, |shaker| shaker.between(100, 6_000));
                if self.roll_request_fault(if writes {
                    RequestFault::LateWrite
                } else {
                    RequestFault::LateAnswer
                }) {
                    delay = Duration::from_millis(late);
                }
            }
            5..=7 if self.roll_request_fault(RequestFault::LostAnswer) => answered = false,
            8..=9 if writes && self.roll_request_fault(RequestFault::DuplicatedRequest) => {
                // Sent twice, as a client does that reconnects: the second one comes later.
                self.later(cut + Duration::from_millis(700), SimEvent::LateRequest(process, effect.clone()));
            }
            _ => {}
        }
        let arrives = cut + delay;
        if arrives + LATENCY > TIMEOUT || !answered {
            // The caller gives up; the request may still arrive, if it is a write and the connection comes back soon.
            self.processes[process.index()].disturb(now + RECOVERY_MARGIN);
            self.later(TIMEOUT, SimEvent::Arrival(process, unanswered(&effect)));
            if cut < Duration::from_secs(8) && writes {
                self.later(arrives, SimEvent::LateRequest(process, effect));
            }
            return;
        }
        self.later(arrives, SimEvent::Request(process, effect));
    }

    /// Whether answers are shaken in this way; it is counted then.
    pub(super) fn roll_request_fault(&mut self, shake: RequestFault) -> bool {
        let happens = self.request_faults.contains(&shake);
        if happens {
            *self.request_fault_counts.entry(shake.name()).or_default() += 1;
        }
        happens
    }

    pub(super) fn answer(&mut self, process: ProcessId, effect: Effect) {
        let now = self.now;
        let gives_up = unanswered(&effect);
        let stale = matches!(effect, Effect::Read { .. } | Effect::ReadCursors { .. })
            && self.fault_rng.as_mut().is_some_and(|shaker| shaker.one_in(500))
            && self.roll_request_fault(RequestFault::StaleRead);
        let event = if stale {
            self.processes[process.index()].disturb(now + RECOVERY_MARGIN);
            self.doubt_cursors(process, &effect);
            self.answer_stale(effect)
        } else {
            self.apply(process, effect)
        };
        let target = &mut self.processes[process.index()];
        let wait = LATENCY + target.slowness + target.cut_in.saturating_sub(now);
        if wait >= TIMEOUT {
            target.disturb(now + RECOVERY_MARGIN);
            self.later(TIMEOUT - LATENCY, SimEvent::Arrival(process, gives_up));
        } else {
            self.later(wait, SimEvent::Arrival(process, event));
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
            self.oracle.doubt(process, self.numbers[name]);
        }
    }

    /// An answer from a server that does not know it has lost the lead: each value is the one before.
    pub(super) fn answer_stale(&mut self, effect: Effect) -> Event {
        match effect {
            Effect::Read { request_id, key } => {
                Event::Fetched { request_id, result: Ok(self.broker.before(&key).cloned()) }
            }
            Effect::ReadCursors { request_id, partitions } => {
                let keys = partitions.into_iter().map(Key::Cursor);
                let found = keys.map(|key| self.broker.before(&key).cloned()).collect();
                Event::Cursors { request_id, result: Ok(found) }
            }
            other => unreachable!("{other:?} is never answered with an old value"),
        }
    }

    /// Without the rule, claims that were not renewed for half a minute of the broker's clock are gone.
    pub(super) fn expire_claims(&mut self) {
        if self.setup.enforces(EnvironmentRule::NoShortTtl) {
            return;
        }
        let limit = self.micros() - 30_000_000;
        let old = self
            .broker
            .watched()
            .filter(|(key, entry)| matches!(key, Key::Claim(_)) && entry.stored_at < limit);
        let old: Vec<Key> = old.map(|(key, _)| key.clone()).collect();
        old.iter().for_each(|key| self.lose(key));
    }

    /// What a request does at the broker, and the answer.
    pub(super) fn apply(&mut self, process: ProcessId, effect: Effect) -> Event {
        self.expire_claims();
        let micros = self.micros();
        match effect {
            Effect::Write { request_id, key, value, condition } => {
                let result = self.write(process, request_id, &key, value, condition);
                Event::Written { request_id, result }
            }
            Effect::Delete { request_id, key, revision } => {
                let known = self.broker.get(&key).map(|entry| entry.revision);
                let revision = if revision == Revision::ANY { known.unwrap_or(revision) } else { revision };
                let result = self.broker.delete(micros, &key, revision);
                if result.is_ok() {
                    self.notify_watches(&key);
                }
                Event::Written { request_id, result }
            }
            Effect::Read { request_id, key } => {
                Event::Fetched { request_id, result: Ok(self.broker.get(&key).cloned()) }
            }
            Effect::ReadCursors { request_id, partitions } => {
                let keys = partitions.into_iter().map(Key::Cursor);
                let found = keys.map(|key| self.broker.get(&key).cloned()).collect();
                Event::Cursors { request_id, result: Ok(found) }
            }
            Effect::InspectLog { request_id, partitions } => {
                self.expire();
                let lasts = partitions.iter().map(|name| self.log.last_of(self.numbers[name])).collect();
                Event::LogInspected {
                    request_id,
                    result: Ok(LogInspection { info: self.log.info(), last_messages: lasts }),
                }
            }
            Effect::ReadLog { request_id, partition, from, from_leader: leader } => {
                self.expire();
                let behind = !leader
                    && self.fault_rng.as_mut().is_some_and(|shaker| shaker.one_in(20))
                    && self.roll_request_fault(RequestFault::StaleLog);
                let until = if behind { micros - 3_000_000 } else { u64::MAX };
                let messages = self.log.read(self.numbers[&partition], from, until);
                let info = leader.then(|| self.log.info());
                Event::LogRead { request_id, result: Ok(LogPage { info, messages }) }
            }
            Effect::PublishDeadLetter { request_id, partition, work, .. } => {
                let partition = self.numbers[&partition];
                if self.log.append_dead_letter(partition, work.position) {
                    self.oracle.on_dead_letter(self.now, partition, &work);
                }
                Event::DeadLetterStep { request_id, happened: true }
            }
            Effect::ListSubjects { request_id } => {
                let found = self
                    .log
                    .partitions()
                    .map(|(partition, last)| (self.names[partition as usize].clone(), last));
                let subjects = SubjectList { log_id: self.log.info().log_id, lasts: found.collect() };
                Event::Subjects { request_id, result: Ok(subjects) }
            }
            other => unreachable!("{other:?} is not for the broker"),
        }
    }

    pub(super) fn write(
        &mut self,
        process: ProcessId,
        request_id: RequestId,
        key: &Key,
        value: Value,
        condition: Condition,
    ) -> Result<phalanx_cluster_core::Written, WriteError> {
        let before = self.broker.get(key).map(|entry| entry.value.clone());
        let result = self.broker.write(self.micros(), key, value.clone(), condition);
        result?;
        let now = self.now;
        self.oracle.stored(now, &value);
        match (&value, before) {
            (Value::Cursor(is), before) => {
                let Key::Cursor(name) = key else { return result };
                let was = before.as_ref().and_then(|value| match value {
                    Value::Cursor(cursor) => Some(&**cursor),
                    _ => None,
                });
                self.oracle.cursor(now, process, self.numbers[name], was, is, &self.store);
                return result;
            }
            (Value::Map(is), Some(Value::Map(was))) => {
                let emergency = self.worker(process).state() == WorkerState::Emergency;
                if emergency && request_id.purpose == Purpose::PublishMap && is.version > was.version {
                    self.oracle.emergency(now, &was, is);
                }
                if is.version > was.version {
                    self.note_publication(is);
                }
            }
            (Value::Map(is), _) => self.note_publication(is),
            _ => {}
        }
        if let (Key::Lease, LeaseExpiry::AfterTerm(term), Ok(written)) =
            (key, self.setup.config.lease_expiry, result)
        {
            self.later(term, SimEvent::TermOver(written.revision));
        }
        self.notify_watches(key);
        result
    }

    /// Whoever grants leases ends one that was not renewed for its term.
    pub(super) fn term_over(&mut self, revision: Revision) {
        let LeaseExpiry::AfterTerm(term) = self.setup.config.lease_expiry else { return };
        if self.broker.get(&Key::Lease).is_none_or(|entry| entry.revision != revision) {
            return;
        }
        let (now, full) = (self.now, self.agent_down_until + term);
        if self.agent_down_until > Time::ZERO && now < full {
            self.later(full - now, SimEvent::TermOver(revision));
        } else {
            self.lose(&Key::Lease);
        }
    }

    pub(super) fn notify_watches(&mut self, key: &Key) {
        if matches!(key, Key::Cursor(_)) {
            return;
        }
        let now = self.now;
        let entry = self.broker.get(key).cloned();
        let bucket = Bucket::of(key);
        let mut but = Vec::new();
        for process in self.living.clone() {
            let target = &mut self.processes[process.index()];
            if target.watch_is_immediate(now, bucket) {
                continue;
            }
            but.push(process);
            if *key == Key::Map && std::mem::take(&mut target.drops_map) {
                continue;
            }
            let late = target.watch_blocked_until(bucket).saturating_sub(now) + target.watch_delay;
            let event = Event::Watched { key: key.clone(), entry: entry.clone(), retained: false };
            let before =
                target.delayed_events.iter().filter(|(_, of, _)| *of == bucket).map(|(at, ..)| *at).max();
            let at = before.unwrap_or_default().max(now + late + LATENCY);
            target.delayed_events.push((at, bucket, event));
            self.later(at - now, SimEvent::ShowHeldBack(process));
        }
        let until = self.processes.len() as u32;
        self.later(LATENCY, SimEvent::Broadcast { key: key.clone(), entry, but, until });
    }

    /// A watch is ordered: what was held back is shown before anything newer of the same bucket.
    pub(super) fn deliver_delayed(&mut self, process: ProcessId) {
        let now = self.now;
        let due: Vec<_> =
            self.processes[process.index()].delayed_events.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, _, event) in due {
            self.deliver(process, event);
        }
    }

    pub(super) fn note_publication(&mut self, map: &AssignmentMap) {
        self.published.push(Publication {
            second: self.now.since_origin().as_secs(),
            version: map.version.0,
            lifecycle: map.lifecycle.name(),
            workers: map.workers.len(),
            moved: map.moved,
        });
        let Version(version) = map.version;
        let workers = map.workers.len();
        self.note(|| format!("version {version} for {workers} workers"));
    }
}

/// Whether a request changes something at the broker.
fn writes(effect: &Effect) -> bool {
    matches!(effect, Effect::Write { .. } | Effect::Delete { .. } | Effect::PublishDeadLetter { .. })
}

/// What a request is about, if that is one key.
fn key_of(effect: &Effect) -> Option<&Key> {
    match effect {
        Effect::Write { key, .. } | Effect::Delete { key, .. } | Effect::Read { key, .. } => Some(key),
        _ => None,
    }
}

/// What a write or a removal is for.
fn purpose_of(effect: &Effect) -> Option<Purpose> {
    match effect {
        Effect::Write { request_id, .. } | Effect::Delete { request_id, .. } => Some(request_id.purpose),
        _ => None,
    }
}

/// What a caller is told when it gives up waiting.
fn unanswered(effect: &Effect) -> Event {
    match effect {
        Effect::Read { request_id, .. } => Event::Fetched { request_id: *request_id, result: Err(ReadError) },
        Effect::ReadCursors { request_id, .. } => {
            Event::Cursors { request_id: *request_id, result: Err(ReadError) }
        }
        Effect::InspectLog { request_id, .. } => {
            Event::LogInspected { request_id: *request_id, result: Err(ReadError) }
        }
        Effect::ReadLog { request_id, .. } => {
            Event::LogRead { request_id: *request_id, result: Err(ReadError) }
        }
        Effect::ListSubjects { request_id } => {
            Event::Subjects { request_id: *request_id, result: Err(ReadError) }
        }
        Effect::PublishDeadLetter { request_id, .. } => {
            Event::DeadLetterStep { request_id: *request_id, happened: false }
        }
        Effect::Write { request_id, .. } | Effect::Delete { request_id, .. } => {
            Event::Written { request_id: *request_id, result: Err(WriteError::Unknown) }
        }
        other => unreachable!("{other:?} is not for the broker"),
    }
}
