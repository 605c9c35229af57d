//! What passes between processes and the broker, and what may befall it on its way.

use super::*;

impl World {
    /// A request on its way to the broker: it may wait for the link, come late, or lose its answer.
    pub(super) fn send(&mut self, process: ProcessId, effect: Effect) {
        let now = self.now;
        let is_heartbeat =
            matches!(&effect, Effect::Write { ticket, .. } if ticket.purpose == Purpose::Heartbeat);
        let target = &self.processes[process.index()];
        if is_heartbeat && target.mute {
            self.later(TIMEOUT, Happening::Arrival(process, unanswered(&effect)));
            return;
        }
        let away = self.grantor_away_until.max(target.cut_from_grantor) > now;
        if away && key_of(&effect) == Some(&Key::Lease) {
            self.later(TIMEOUT, Happening::Arrival(process, unanswered(&effect)));
            return;
        }
        let cut = target.cut_out.saturating_sub(now);
        if let Some((purpose, after)) = target.repeats
            && purpose_of(&effect) == Some(purpose)
        {
            self.processes[process.index()].repeats = None;
            self.later(after, Happening::LateRequest(process, effect.clone()));
        }
        let (mut delay, mut answered) = (LATENCY, true);
        let writes = writes(&effect);
        match self.shaker.as_mut().map_or(0, |shaker| shaker.between(0, 2_000)) {
            1..=4 => {
                let late = self.shaker.as_mut().map_or(0, |shaker| shaker.between(100, 6_000));
                if self.shakes_by(if writes { Shake::LateWrite } else { Shake::LateAnswer }) {
                    delay = Duration::from_millis(late);
                }
            }
            5..=7 if self.shakes_by(Shake::LostAnswer) => answered = false,
            8..=9 if writes && self.shakes_by(Shake::DuplicatedRequest) => {
                // Sent twice, as a client does that reconnects: the second one comes later.
                self.later(cut + Duration::from_millis(700), Happening::LateRequest(process, effect.clone()));
            }
            _ => {}
        }
        let arrives = cut + delay;
        if arrives + LATENCY > TIMEOUT || !answered {
            // The caller gives up; the request may still arrive, if it is a write and the connection comes back soon.
            self.processes[process.index()].disturb(now + AFTERMATH);
            self.later(TIMEOUT, Happening::Arrival(process, unanswered(&effect)));
            if cut < Duration::from_secs(8) && writes {
                self.later(arrives, Happening::LateRequest(process, effect));
            }
            return;
        }
        self.later(arrives, Happening::Request(process, effect));
    }

    /// Whether answers are shaken in this way; it is counted then.
    pub(super) fn shakes_by(&mut self, shake: Shake) -> bool {
        let happens = self.shakes.contains(&shake);
        if happens {
            *self.shaken.entry(shake.name()).or_default() += 1;
        }
        happens
    }

    pub(super) fn answer(&mut self, process: ProcessId, effect: Effect) {
        let now = self.now;
        let gives_up = unanswered(&effect);
        let stale = matches!(effect, Effect::Read { .. } | Effect::ReadCursors { .. })
            && self.shaker.as_mut().is_some_and(|shaker| shaker.one_in(500))
            && self.shakes_by(Shake::StaleRead);
        let event = if stale {
            self.processes[process.index()].disturb(now + AFTERMATH);
            self.doubt_cursors(process, &effect);
            self.answer_stale(effect)
        } else {
            self.apply(process, effect)
        };
        let target = &mut self.processes[process.index()];
        let wait = LATENCY + target.slowness + target.cut_in.saturating_sub(now);
        if wait >= TIMEOUT {
            target.disturb(now + AFTERMATH);
            self.later(TIMEOUT - LATENCY, Happening::Arrival(process, gives_up));
        } else {
            self.later(wait, Happening::Arrival(process, event));
        }
    }

    /// Tells the ledger that a process is shown old cursors.
    fn doubt_cursors(&mut self, process: ProcessId, effect: &Effect) {
        let names = match effect {
            Effect::Read { key: Key::Cursor(name), .. } => std::slice::from_ref(name),
            Effect::ReadCursors { partitions, .. } => partitions,
            _ => return,
        };
        for name in names {
            self.ledger.doubt(process, self.numbers[name]);
        }
    }

    /// An answer from a server that does not know it has lost the lead: each value is the one before.
    pub(super) fn answer_stale(&mut self, effect: Effect) -> Event {
        match effect {
            Effect::Read { ticket, key } => {
                Event::Fetched { ticket, result: Ok(self.broker.before(&key).cloned()) }
            }
            Effect::ReadCursors { ticket, partitions } => {
                let keys = partitions.into_iter().map(Key::Cursor);
                let found = keys.map(|key| self.broker.before(&key).cloned()).collect();
                Event::Cursors { ticket, result: Ok(found) }
            }
            other => unreachable!("{other:?} is never answered with an old value"),
        }
    }

    /// Without the rule, claims that were not renewed for half a minute of the broker's clock are gone.
    pub(super) fn expire_claims(&mut self) {
        if self.setup.config.keeps(Guard::NoShortTtl) {
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
            Effect::Write { ticket, key, value, condition } => {
                let result = self.write(process, ticket, &key, value, condition);
                Event::Written { ticket, result }
            }
            Effect::Delete { ticket, key, revision } => {
                let known = self.broker.get(&key).map(|entry| entry.revision);
                let revision = if revision == Revision::ANY { known.unwrap_or(revision) } else { revision };
                let result = self.broker.delete(micros, &key, revision);
                if result.is_ok() {
                    self.tell_watchers(&key);
                }
                Event::Written { ticket, result }
            }
            Effect::Read { ticket, key } => {
                Event::Fetched { ticket, result: Ok(self.broker.get(&key).cloned()) }
            }
            Effect::ReadCursors { ticket, partitions } => {
                let keys = partitions.into_iter().map(Key::Cursor);
                let found = keys.map(|key| self.broker.get(&key).cloned()).collect();
                Event::Cursors { ticket, result: Ok(found) }
            }
            Effect::SurveyLog { ticket, partitions } => {
                self.expire();
                let lasts = partitions.iter().map(|name| self.log.last_of(self.numbers[name])).collect();
                Event::Surveyed { ticket, result: Ok(Survey { info: self.log.info(), lasts }) }
            }
            Effect::ReadLog { ticket, partition, from, leader } => {
                self.expire();
                let behind = !leader
                    && self.shaker.as_mut().is_some_and(|shaker| shaker.one_in(20))
                    && self.shakes_by(Shake::StaleLog);
                let until = if behind { micros - 3_000_000 } else { u64::MAX };
                let messages = self.log.read(self.numbers[&partition], from, until);
                let info = leader.then(|| self.log.info());
                Event::Paged { ticket, result: Ok(Page { info, messages }) }
            }
            Effect::PublishDead { ticket, partition, work, .. } => {
                let chamber = self.numbers[&partition];
                if self.log.bury(chamber, work.position) {
                    self.ledger.buried(self.now, chamber, &work);
                }
                Event::Done { ticket, happened: true }
            }
            Effect::ListSubjects { ticket } => {
                let found =
                    self.log.chambers().map(|(chamber, last)| (self.names[chamber as usize].clone(), last));
                let subjects = Subjects { stream: self.log.info().stream, lasts: found.collect() };
                Event::Subjects { ticket, result: Ok(subjects) }
            }
            other => unreachable!("{other:?} is not for the broker"),
        }
    }

    pub(super) fn write(
        &mut self,
        process: ProcessId,
        ticket: Ticket,
        key: &Key,
        value: Value,
        condition: Condition,
    ) -> Result<phalanx_cluster_core::Written, WriteError> {
        let before = self.broker.get(key).map(|entry| entry.value.clone());
        let result = self.broker.write(self.micros(), key, value.clone(), condition);
        result?;
        let now = self.now;
        self.ledger.stored(now, &value);
        match (&value, before) {
            (Value::Cursor(is), before) => {
                let Key::Cursor(name) = key else { return result };
                let was = before.as_ref().and_then(|value| match value {
                    Value::Cursor(cursor) => Some(&**cursor),
                    _ => None,
                });
                self.ledger.cursor(now, process, self.numbers[name], was, is, &self.store);
                return result;
            }
            (Value::Map(is), Some(Value::Map(was))) => {
                let emergency = self.worker(process).state() == WorkerState::Emergency;
                if emergency && ticket.purpose == Purpose::PublishMap && is.version > was.version {
                    self.ledger.emergency(now, &was, is);
                }
                if is.version > was.version {
                    self.note_publication(is);
                }
            }
            (Value::Map(is), _) => self.note_publication(is),
            _ => {}
        }
        if let (Key::Lease, Tenure::Term(term), Ok(written)) = (key, self.setup.config.tenure, result) {
            self.later(term, Happening::TermOver(written.revision));
        }
        self.tell_watchers(key);
        result
    }

    /// Whoever grants leases ends one that was not renewed for its term.
    pub(super) fn term_over(&mut self, revision: Revision) {
        let Tenure::Term(term) = self.setup.config.tenure else { return };
        if self.broker.get(&Key::Lease).is_none_or(|entry| entry.revision != revision) {
            return;
        }
        let (now, full) = (self.now, self.grantor_away_until + term);
        if self.grantor_away_until > Time::ZERO && now < full {
            self.later(full - now, Happening::TermOver(revision));
        } else {
            self.lose(&Key::Lease);
        }
    }

    pub(super) fn tell_watchers(&mut self, key: &Key) {
        if matches!(key, Key::Cursor(_)) {
            return;
        }
        let now = self.now;
        let entry = self.broker.get(key).cloned();
        let bucket = Bucket::of(key);
        let mut but = Vec::new();
        for process in self.living.clone() {
            let target = &mut self.processes[process.index()];
            if target.hears_at_once(now, bucket) {
                continue;
            }
            but.push(process);
            if *key == Key::Map && std::mem::take(&mut target.drops_map) {
                continue;
            }
            let late = target.deaf_until(bucket).saturating_sub(now) + target.watch_delay;
            let event = Event::Watched { key: key.clone(), entry: entry.clone(), retained: false };
            let before = target.held_back.iter().filter(|(_, of, _)| *of == bucket).map(|(at, ..)| *at).max();
            let at = before.unwrap_or_default().max(now + late + LATENCY);
            target.held_back.push((at, bucket, event));
            self.later(at - now, Happening::ShowHeldBack(process));
        }
        let until = self.processes.len() as u32;
        self.later(LATENCY, Happening::Broadcast { key: key.clone(), entry, but, until });
    }

    /// A watch is ordered: what was held back is shown before anything newer of the same bucket.
    pub(super) fn show_held_back(&mut self, process: ProcessId) {
        let now = self.now;
        let due: Vec<_> =
            self.processes[process.index()].held_back.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, _, event) in due {
            self.deliver(process, event);
        }
    }

    pub(super) fn note_publication(&mut self, map: &AssignmentMap) {
        self.published.push(Publication {
            second: self.now.as_secs(),
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
    matches!(effect, Effect::Write { .. } | Effect::Delete { .. } | Effect::PublishDead { .. })
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
        Effect::Write { ticket, .. } | Effect::Delete { ticket, .. } => Some(ticket.purpose),
        _ => None,
    }
}

/// What a caller is told when it gives up waiting.
fn unanswered(effect: &Effect) -> Event {
    match effect {
        Effect::Read { ticket, .. } => Event::Fetched { ticket: *ticket, result: Err(ReadError) },
        Effect::ReadCursors { ticket, .. } => Event::Cursors { ticket: *ticket, result: Err(ReadError) },
        Effect::SurveyLog { ticket, .. } => Event::Surveyed { ticket: *ticket, result: Err(ReadError) },
        Effect::ReadLog { ticket, .. } => Event::Paged { ticket: *ticket, result: Err(ReadError) },
        Effect::ListSubjects { ticket } => Event::Subjects { ticket: *ticket, result: Err(ReadError) },
        Effect::PublishDead { ticket, .. } => Event::Done { ticket: *ticket, happened: false },
        Effect::Write { ticket, .. } | Effect::Delete { ticket, .. } => {
            Event::Written { ticket: *ticket, result: Err(WriteError::Unknown) }
        }
        other => unreachable!("{other:?} is not for the broker"),
    }
}
