//! The thread that owns one provider.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::time::Duration;

use phalanx_fsm::State as _;

use super::clock::Clock;
use super::writer::{self, Ack};
use super::{Answer, coordinator};
use crate::ProviderState as State;
use crate::core::provider::{Effect, Input, Provider as Machine, Refused};
use crate::providers::Provider;
use crate::record::{Compressor, Entry};
use crate::source::{Context, Extract, Failure, Source, Step};
use crate::store::{Commit, Moved};

/// Commands wait here while a batch is being read.
const QUEUE_LEN: usize = 64;
/// How often a provider that works says that it is alive.
const RENEW_EVERY: Duration = Duration::from_secs(5);

pub(super) enum Message {
    Input(Input),
    /// A command whose sender waits to hear what came of it.
    Command(Input, SyncSender<Answer>),
    /// Something changed elsewhere; look again.
    Wake,
    /// The engine ends; the run stays where it is.
    Close,
}

/// What a provider's thread is given.
pub(super) struct Task {
    pub(super) id: String,
    pub(super) run_id: String,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) source: Source,
    pub(super) source_key: String,
    pub(super) cursor: Option<String>,
    pub(super) batch_size: usize,
    pub(super) machine: Machine,
    pub(super) context: Context,
    pub(super) clock: Clock,
    pub(super) writer: writer::Queue,
    pub(super) coordinator: Sender<coordinator::Message>,
}

pub(super) fn queue() -> (SyncSender<Message>, Receiver<Message>) {
    sync_channel(QUEUE_LEN)
}

/// What changes while it runs.
struct Running {
    task: Task,
    sender: SyncSender<Message>,
    extract: Option<Box<dyn Extract>>,
    compressor: Compressor,
    in_flight: Arc<AtomicU32>,
    pace_until: Option<Duration>,
    renew_at: Duration,
    /// The last command, where it made no sense.
    refused: Option<Refused>,
    /// The writer or the coordinator is gone: there is no point in going on.
    orphaned: bool,
}

/// Runs the provider until its run ends or nobody can command it any more. `begin` are the effects of its recovery.
pub(super) fn run(task: Task, sender: SyncSender<Message>, receiver: &Receiver<Message>, begin: Vec<Effect>) {
    let mut running = Running {
        task,
        sender,
        extract: None,
        compressor: Compressor::new(),
        in_flight: Arc::default(),
        pace_until: None,
        renew_at: Duration::ZERO,
        refused: None,
        orphaned: false,
    };
    running.apply(begin, Commit::default(), None);
    while running.task.machine.state() != State::Terminated && !running.orphaned {
        let message = if running.may_step() {
            receiver.try_recv().ok()
        } else {
            receiver.recv_timeout(running.wait()).ok()
        };
        match message {
            Some(Message::Input(input)) => running.take(input),
            Some(Message::Command(input, reply)) => {
                running.take(input);
                let answer = running.refused.take().map_or_else(|| Ok(Vec::new()), |why| Err(why.into()));
                let _ = reply.try_send(answer);
            }
            Some(Message::Wake) => {}
            Some(Message::Close) => return,
            None => running.take(Input::Tick),
        }
        running.renew();
        if running.may_step() {
            running.step();
        }
    }
}

impl Running {
    fn may_step(&self) -> bool {
        let machine = &self.task.machine;
        machine.state() == State::Running
            && self.in_flight.load(Ordering::Acquire) < machine.permits()
            && self.pace_until.is_none_or(|until| until <= self.task.clock.now())
    }

    /// How long there is nothing to do unless a message comes.
    fn wait(&self) -> Duration {
        let now = self.task.clock.now();
        let deadlines = [self.task.machine.next_deadline(), self.pace_until];
        let next = deadlines.into_iter().flatten().map(|deadline| deadline.saturating_sub(now)).min();
        next.unwrap_or(RENEW_EVERY).min(RENEW_EVERY)
    }

    fn renew(&mut self) {
        let now = self.task.clock.now();
        if self.task.machine.state() == State::Running && self.renew_at <= now {
            self.renew_at = now + RENEW_EVERY;
            self.tell(coordinator::Message::Renew(self.task.id.clone()));
        }
    }

    fn take(&mut self, input: Input) {
        self.refused = None;
        let mut effects = Vec::new();
        let wish = self.task.machine.saved().pause_wish;
        self.task.machine.handle(self.task.clock.now(), input, &mut effects);
        let commit = Commit::default();
        if wish != self.task.machine.saved().pause_wish && effects.is_empty() {
            // Nothing moved, but the wish must be seen and survive.
            return self.write(commit, None);
        }
        self.apply(effects, commit, None);
    }

    /// Reads the next batch and sends it on its way.
    fn step(&mut self) {
        self.pace_until = None;
        let now = self.task.clock.now();
        match self.next(now) {
            Ok(Step::Items { items, source, cursor, page_done }) => {
                let entries: Vec<Entry> = items
                    .iter()
                    .map(|item| Entry::new(item, self.task.provider.understand(item), &mut self.compressor))
                    .collect();
                let mut effects = Vec::new();
                let batch = Input::Batch {
                    items: entries.len() as u64,
                    errors: entries.iter().filter(|entry| entry.verdict.is_err()).count() as u64,
                    last: entries.iter().rev().find_map(Entry::urn).map(ToString::to_string),
                };
                self.task.machine.handle(now, batch, &mut effects);
                if page_done {
                    self.task.machine.handle(now, Input::PageRead, &mut effects);
                }
                self.task.cursor = Some(cursor.clone());
                let commit = Commit {
                    source: Some(source),
                    entries,
                    cursor: Some((self.task.source_key.clone(), cursor)),
                    ..Commit::default()
                };
                self.in_flight.fetch_add(1, Ordering::AcqRel);
                let done = self.extract.as_ref().and_then(|extract| extract.done());
                let ack = Ack { in_flight: Arc::clone(&self.in_flight), wake: self.sender.clone(), done };
                self.apply(effects, commit, Some(ack));
            }
            Ok(Step::Wait(until)) => self.pace_until = Some(until),
            Ok(Step::Done { gaps, cursor }) => {
                let cursor = Some((self.task.source_key.clone(), cursor));
                self.end(now, Input::Exhausted { gaps }, Commit { cursor, ..Commit::default() });
            }
            Err(Failure::Broken(why)) => self.end(now, Input::Broken(why), Commit::default()),
            Err(Failure::Retry { fault, retry_after, cursor }) => {
                self.extract = None;
                if cursor.is_some() {
                    self.task.cursor.clone_from(&cursor);
                }
                let cursor = cursor.map(|cursor| (self.task.source_key.clone(), cursor));
                let failed = Input::PageFailed { fault, retry_after, jitter: jitter() };
                self.end(now, failed, Commit { cursor, ..Commit::default() });
            }
        }
    }

    fn next(&mut self, now: Duration) -> Result<Step, Failure> {
        let extract = match &mut self.extract {
            Some(extract) => extract,
            None => {
                let task = &self.task;
                let context = Context { now, ..task.context.clone() };
                let opened = task.provider.open(&task.source, task.cursor.as_deref(), &context)?;
                self.extract.insert(opened)
            }
        };
        extract.next(self.task.batch_size, now)
    }

    fn end(&mut self, now: Duration, input: Input, commit: Commit) {
        let mut effects = Vec::new();
        self.task.machine.handle(now, input, &mut effects);
        self.apply(effects, commit, None);
    }

    /// Runs effects; what is to be written goes into one commit with what `commit` holds already.
    fn apply(&mut self, effects: Vec<Effect>, mut commit: Commit, ack: Option<Ack>) {
        let mut to_tell = Vec::new();
        let nothing = effects.is_empty() && commit.entries.is_empty() && commit.cursor.is_none();
        for effect in effects {
            match effect {
                Effect::Moved { from, to, cause } => {
                    commit.history.push(Moved { from: from.name(), to: to.name(), cause: cause.into_owned() })
                }
                Effect::Recovered { saved, state } => commit.history.push(Moved {
                    from: saved.name(),
                    to: state.name(),
                    cause: format!("recovered from {saved}"),
                }),
                Effect::Emit(kind, detail) => commit.events.push((kind, detail)),
                Effect::AskPermits => to_tell.push(coordinator::Message::AskPermits(self.task.id.clone())),
                Effect::ReturnPermits => to_tell.push(coordinator::Message::Return(self.task.id.clone())),
                // `may_step` looks at the machine before every batch; what was read is already on its way.
                Effect::Work(_) | Effect::Halt => {}
                Effect::EndRun(outcome, why) => commit.ended = Some((outcome, why)),
                Effect::Refused(why) => self.refused = Some(why),
            }
        }
        if !nothing {
            self.write(commit, ack);
        }
        for message in to_tell {
            self.tell(message);
        }
    }

    fn write(&mut self, commit: Commit, ack: Option<Ack>) {
        let commit = Commit {
            provider: self.task.id.clone(),
            run_id: self.task.run_id.clone(),
            at: self.task.clock.now(),
            saved: Some(self.task.machine.saved().clone()),
            ..commit
        };
        self.orphaned |= !self.task.writer.send(writer::Message::Commit(Box::new(commit), ack));
    }

    fn tell(&mut self, message: coordinator::Message) {
        self.orphaned |= self.task.coordinator.send(message).is_err();
    }
}

/// A number in `0.0..1.0` that nobody can foresee.
fn jitter() -> f64 {
    (RandomState::new().hash_one(()) >> 11) as f64 / (1u64 << 53) as f64
}
