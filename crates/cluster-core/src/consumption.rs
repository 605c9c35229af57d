//! All partitions that this worker owns: who is looked at, who waits, who runs.
//!
//! Partitions run side by side up to a limit, the one that has waited longest first. A message that was there too often
//! when something went wrong runs with nothing beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Guard;
use super::config::Config;
use super::health::HealthyClock;
use super::holdings::Change;
use super::io::{Effect, Event, Last, LogInfo, Purpose, ReadError, Survey, Tickets};
use super::partition::{Activity, Chamber, Context};
use super::release::{LastCursor, UnreleasedCursors};
use super::roster::Roster;
use super::types::{AssignmentMap, Entry, Holder, Time, Version};

/// A survey that failed is repeated after this.
const SURVEY_RETRY: Duration = Duration::from_millis(500);

/// What consumption may look at.
pub(super) struct Ground<'a> {
    pub(super) now: Time,
    pub(super) config: &'a Config,
    pub(super) me: Holder,
    pub(super) map: &'a AssignmentMap,
    pub(super) roster: &'a Roster,
    pub(super) clock: &'a HealthyClock,
    /// The newest time of the broker that was seen, in microseconds.
    pub(super) broker_time: u64,
}

/// A look at many partitions: first their cursors, then the log.
#[derive(Debug)]
struct Look {
    partitions: Vec<Arc<str>>,
    cursors: Option<Vec<Option<Entry>>>,
}

#[derive(Debug, Default)]
pub(super) struct Consumption {
    chambers: BTreeMap<Arc<str>, Chamber>,
    /// Whose request it was.
    asked: BTreeMap<u64, Arc<str>>,
    looks: BTreeMap<u64, Look>,
    /// Who has a message and waits for a slot, the longest-waiting first.
    ready: BTreeSet<(Time, Arc<str>)>,
    /// Whose message is processed.
    running: BTreeSet<Arc<str>>,
    /// Who waits for the last holder.
    waiting: BTreeSet<Arc<str>>,
    /// Who is tried again, and when.
    delayed: BTreeSet<(Time, Arc<str>)>,
    /// Who must be looked at.
    unseen: BTreeSet<Arc<str>>,
    /// Who is lost and not let go of yet.
    parting: BTreeSet<Arc<str>>,
    /// Whose message runs with nothing beside it.
    solo: Option<Arc<str>>,
    look_at: Time,
    next_sweep: Time,
    draining: bool,
    /// Cursors of partitions that are no longer served here.
    unreleased: UnreleasedCursors,
    wants_map: bool,
    /// The first log ever found: what a worker without the rule goes by.
    first_log: Option<u64>,
    cursor_version: Version,
    processed: u64,
}

impl Consumption {
    /// How many messages this worker has committed.
    pub(super) fn processed(&self) -> u64 {
        self.processed
    }

    /// The highest version seen in a cursor.
    pub(super) fn cursor_version(&self) -> Version {
        self.cursor_version
    }

    /// Whether everything lost is let go of.
    pub(super) fn has_let_go(&self) -> bool {
        self.parting.is_empty()
    }

    /// Somebody follows a map newer than ours: it must be read. Says so once.
    pub(super) fn take_wish_for_map(&mut self) -> bool {
        std::mem::take(&mut self.wants_map)
    }

    /// A map gives and takes partitions, and every cursor is looked at again.
    pub(super) fn follow(&mut self, change: &Change, config: &Config) {
        if self.draining {
            return;
        }
        for name in &change.removed {
            self.update(name, |chamber| chamber.owned = false);
        }
        for name in &change.added {
            self.unreleased.remove(name);
            if self.chambers.contains_key(name) {
                self.update(name, |chamber| chamber.regained(config));
            } else {
                self.chambers.insert(name.clone(), Chamber::new());
                self.unseen.insert(name.clone());
            }
        }
        self.look_at_all();
    }

    fn look_at_all(&mut self) {
        let Self { chambers, unseen, .. } = self;
        for (name, chamber) in chambers.iter_mut().filter(|(_, chamber)| chamber.owned) {
            chamber.wants_survey = true;
            unseen.insert(name.clone());
        }
    }

    /// The fence has closed: everything that ran was dropped.
    pub(super) fn fence(&mut self, config: &Config) {
        for (name, _) in self.chambers.extract_if(.., |_, chamber| !chamber.owned) {
            self.unreleased.add(&name, LastCursor::Unknown);
        }
        self.chambers.values_mut().for_each(|chamber| chamber.fence(config));
        let chambers = std::mem::take(&mut self.chambers);
        let unseen = chambers.keys().cloned().collect();
        *self = Self {
            chambers,
            unseen,
            draining: self.draining,
            unreleased: std::mem::take(&mut self.unreleased),
            first_log: self.first_log,
            cursor_version: self.cursor_version,
            processed: self.processed,
            ..Self::default()
        };
    }

    /// Nothing new is started; what runs is finished.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        for name in self.chambers.keys().cloned().collect::<Vec<_>>() {
            self.update(&name, |chamber| chamber.owned = false);
        }
    }

    /// What still runs is given up.
    pub(super) fn abandon(&mut self, out: &mut Vec<Effect>) {
        out.extend(self.running.iter().map(|partition| Effect::Cancel { partition: partition.clone() }));
        let (cursor_version, processed) = (self.cursor_version, self.processed);
        *self = Self { draining: true, cursor_version, processed, ..Self::default() };
    }

    /// Returns the cursors of partitions that are no longer served here.
    pub(super) fn unreleased(&mut self) -> &mut UnreleasedCursors {
        &mut self.unreleased
    }

    /// Whether an answer is for a partition, and what follows from it. Nothing follows behind a closed fence.
    pub(super) fn note(
        &mut self,
        event: Event,
        ground: &Ground<'_>,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
    ) {
        match event {
            Event::Rung(name) => self.step(&name, ground, tickets, out, Chamber::rung),
            Event::Cursors { ticket, result } => self.cursors(ticket.serial, result, ground, tickets, out),
            Event::Surveyed { ticket, result } => self.surveyed(ticket.serial, result, ground, tickets, out),
            Event::Traced { ticket, result } => {
                self.answer(ticket.serial, ground, tickets, out, |chamber, ctx| {
                    chamber.traced(ticket, result, ctx);
                });
            }
            Event::Paged { ticket, result } => {
                self.answer(ticket.serial, ground, tickets, out, |chamber, ctx| {
                    chamber.page(ticket, result, ctx);
                });
            }
            Event::Processed { ticket, outcome } => {
                self.answer(ticket.serial, ground, tickets, out, |chamber, ctx| {
                    chamber.processed(ticket, outcome, ctx);
                });
            }
            Event::Done { ticket, happened } => {
                self.answer(ticket.serial, ground, tickets, out, |chamber, ctx| {
                    chamber.done(ticket, happened, ctx);
                });
            }
            Event::Written { ticket, result } => {
                self.answer(ticket.serial, ground, tickets, out, |chamber, ctx| {
                    chamber.written(ticket, result, ctx);
                });
            }
            Event::Fetched { ticket, result } => {
                self.answer(ticket.serial, ground, tickets, out, |chamber, ctx| {
                    chamber.fetched(ticket, result, ctx);
                });
            }
            _ => {}
        }
    }

    fn answer(
        &mut self,
        serial: u64,
        ground: &Ground<'_>,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Chamber, &mut Context<'_>),
    ) {
        if let Some(name) = self.asked.remove(&serial) {
            self.step(&name, ground, tickets, out, act);
        }
    }

    fn cursors(
        &mut self,
        serial: u64,
        result: Result<Vec<Option<Entry>>, ReadError>,
        ground: &Ground<'_>,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
    ) {
        let Some(mut look) = self.looks.remove(&serial) else { return };
        match result {
            Err(ReadError) => self.look_again(look, serial, ground),
            Ok(cursors) if ground.config.log => {
                let ticket = tickets.next(Purpose::SurveyLog);
                out.push(Effect::SurveyLog { ticket, partitions: look.partitions.clone() });
                for name in &look.partitions {
                    if let Some(chamber) =
                        self.chambers.get_mut(name).filter(|chamber| chamber.survey == Some(serial))
                    {
                        chamber.survey = Some(ticket.serial);
                    }
                }
                look.cursors = Some(cursors);
                self.looks.insert(ticket.serial, look);
            }
            Ok(cursors) => {
                for (name, entry) in look.partitions.iter().zip(cursors) {
                    self.looked(name, serial, entry, None, ground, tickets, out);
                }
            }
        }
    }

    fn surveyed(
        &mut self,
        serial: u64,
        result: Result<Survey, ReadError>,
        ground: &Ground<'_>,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
    ) {
        let Some(look) = self.looks.remove(&serial) else { return };
        let Ok(Survey { mut info, lasts }) = result else {
            self.look_again(look, serial, ground);
            return;
        };
        let first_log = *self.first_log.get_or_insert(info.stream);
        if !ground.config.keeps(Guard::IdentityAfterCursor) {
            info.stream = first_log;
        }
        let cursors = look.cursors.unwrap_or_default();
        for ((name, entry), last) in look.partitions.iter().zip(cursors).zip(lasts) {
            self.looked(name, serial, entry, Some((info, last)), ground, tickets, out);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one look at one partition, with and without a log")]
    fn looked(
        &mut self,
        name: &Arc<str>,
        serial: u64,
        entry: Option<Entry>,
        log: Option<(LogInfo, Option<Last>)>,
        ground: &Ground<'_>,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
    ) {
        if self.chambers.get(name).is_some_and(|chamber| chamber.survey == Some(serial)) {
            self.step(name, ground, tickets, out, |chamber, ctx| chamber.surveyed(entry, log, ctx));
        }
    }

    fn look_again(&mut self, look: Look, serial: u64, ground: &Ground<'_>) {
        for name in look.partitions {
            if let Some(chamber) =
                self.chambers.get_mut(&name).filter(|chamber| chamber.survey == Some(serial))
            {
                chamber.survey = None;
                chamber.wants_survey = true;
                self.unseen.insert(name);
            }
        }
        self.look_at = ground.now + SURVEY_RETRY;
    }

    /// Does whatever is due.
    pub(super) fn pass(&mut self, ground: &Ground<'_>, tickets: &mut Tickets, out: &mut Vec<Effect>) {
        while let Some((_, name)) = self.delayed.first().filter(|(at, _)| *at <= ground.now).cloned() {
            self.step(&name, ground, tickets, out, Chamber::due);
        }
        for name in self.waiting.iter().cloned().collect::<Vec<_>>() {
            self.step(&name, ground, tickets, out, Chamber::hand_over);
        }
        if ground.now >= self.next_sweep && !self.draining {
            self.next_sweep = ground.now + ground.config.sweep_interval;
            self.look_at_all();
        }
        if !self.unseen.is_empty() && ground.now >= self.look_at {
            self.look(tickets, out);
        }
        self.start_waiting(ground, tickets, out);
    }

    /// Reads the cursors of everybody who must be looked at, at once.
    fn look(&mut self, tickets: &mut Tickets, out: &mut Vec<Effect>) {
        let partitions: Vec<Arc<str>> = std::mem::take(&mut self.unseen).into_iter().collect();
        let ticket = tickets.next(Purpose::ReadCursors);
        for name in &partitions {
            if let Some(chamber) = self.chambers.get_mut(name) {
                chamber.survey = Some(ticket.serial);
                chamber.wants_survey = false;
            }
        }
        out.push(Effect::ReadCursors { ticket, partitions: partitions.clone() });
        self.looks.insert(ticket.serial, Look { partitions, cursors: None });
    }

    fn start_waiting(&mut self, ground: &Ground<'_>, tickets: &mut Tickets, out: &mut Vec<Effect>) {
        while !self.draining && self.solo.is_none() && self.running.len() < ground.config.max_concurrent {
            let Some((_, name)) = self.ready.first().cloned() else { return };
            let alone = self.chambers.get(&name).is_some_and(|chamber| chamber.wants_solo(ground.config));
            if alone && !self.running.is_empty() {
                // Nothing else starts until it has run.
                return;
            }
            self.step(&name, ground, tickets, out, Chamber::start);
        }
    }

    /// When something is due, whatever happens.
    pub(super) fn next_deadline(&self, ground: &Ground<'_>) -> Option<Time> {
        let delayed = self.delayed.first().map(|(at, _)| *at);
        // Who waits for a holder is looked at whenever that is heard; this is for the end of patience.
        let waiting = (!self.waiting.is_empty()).then(|| ground.now + SURVEY_RETRY);
        let look = (!self.unseen.is_empty()).then_some(self.look_at);
        let sweep = (!self.draining && !self.chambers.is_empty()).then_some(self.next_sweep);
        [delayed, waiting, look, sweep].into_iter().flatten().min()
    }

    fn step(
        &mut self,
        name: &Arc<str>,
        ground: &Ground<'_>,
        tickets: &mut Tickets,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Chamber, &mut Context<'_>),
    ) {
        self.unindex(name);
        let Some(chamber) = self.chambers.get_mut(name) else { return };
        let mut ctx = Context {
            ground,
            name,
            tickets,
            asked: &mut self.asked,
            out,
            wants_map: &mut self.wants_map,
            processed: &mut self.processed,
        };
        act(chamber, &mut ctx);
        self.cursor_version = self.cursor_version.max(chamber.cursor_version().unwrap_or_default());
        self.index(name);
    }

    fn update(&mut self, name: &Arc<str>, act: impl FnOnce(&mut Chamber)) {
        self.unindex(name);
        if let Some(chamber) = self.chambers.get_mut(name) {
            act(chamber);
        }
        self.index(name);
    }

    fn unindex(&mut self, name: &Arc<str>) {
        let Some(chamber) = self.chambers.get(name) else { return };
        match &chamber.activity {
            Activity::Ready { since, .. } => drop(self.ready.remove(&(*since, name.clone()))),
            Activity::Running { .. } => drop(self.running.remove(name)),
            Activity::HandingOver { .. } => drop(self.waiting.remove(name)),
            Activity::Delayed { until, .. } => drop(self.delayed.remove(&(*until, name.clone()))),
            _ => {}
        }
        if self.solo.as_ref() == Some(name) {
            self.solo = None;
        }
    }

    /// Keeps the lists true; a partition that is lost goes as soon as nothing of it must be finished.
    fn index(&mut self, name: &Arc<str>) {
        let Some(chamber) = self.chambers.get(name) else { return };
        if !chamber.owned {
            if chamber.is_quiet() {
                if let Some(chamber) = self.chambers.remove(name) {
                    self.unreleased.add(name, chamber.last_cursor());
                }
                self.parting.remove(name);
                self.unseen.remove(name);
                return;
            }
            self.parting.insert(name.clone());
        } else {
            self.parting.remove(name);
        }
        match &chamber.activity {
            Activity::Ready { since, .. } => drop(self.ready.insert((*since, name.clone()))),
            Activity::Running { .. } => drop(self.running.insert(name.clone())),
            Activity::HandingOver { .. } => drop(self.waiting.insert(name.clone())),
            Activity::Delayed { until, .. } => drop(self.delayed.insert((*until, name.clone()))),
            _ => {}
        }
        if chamber.is_solo() {
            self.solo = Some(name.clone());
        }
        if chamber.wants_survey && chamber.owned {
            self.unseen.insert(name.clone());
        }
    }
}

#[cfg(test)]
#[path = "consumption_test.rs"]
mod tests;
