//! The thread that owns the orchestrator and the broker.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender};
use std::thread::JoinHandle;

use phalanx_fsm::State as _;

use super::clock::Clock;
use super::{Answer, Command, Engine, Error, Options, Progress, Refusal, Summary, task, writer};
use crate::ProviderState as State;
use crate::core::broker::{self, Broker};
use crate::core::orchestrator::{self, Orchestrator};
use crate::core::provider::{self, Refused};
use crate::core::{EventKind, Outcome};
use crate::source::{Context, Done, Http};
use crate::store::{Commit, Counts, Moved, Reader, Writer};

pub(super) enum Message {
    /// Written, in this order.
    Written(String, Written),
    AskPermits(String),
    Return(String),
    Renew(String),
    Command(Option<String>, Command),
    /// A command whose sender waits to hear what came of it.
    Ask(String, Command, SyncSender<Answer>),
    Start(Vec<String>, SyncSender<Answer>),
    ShutDown,
    WriterGone,
    /// A provider's thread has panicked, which is a bug in the provider.
    Crashed(String),
}

/// How long an engine goes on.
pub(super) enum Until {
    /// Until these have run, and nothing moves any more.
    AtRest(Vec<String>),
    /// Until somebody shuts it down.
    ShutDown,
}

/// What a provider wrote since the last time.
#[derive(Default)]
pub(super) struct Written {
    pub(super) counts: Counts,
    pub(super) events: Vec<(EventKind, String)>,
    /// The number of the last of them in the store.
    pub(super) last_event: i64,
    pub(super) done: Option<Done>,
    pub(super) ended: Option<(Outcome, String)>,
}

struct Coordinator<'a> {
    options: &'a Options,
    clock: Clock,
    http: Http,
    orchestrator: Orchestrator,
    broker: Broker,
    writer: writer::Queue,
    sender: Sender<Message>,
    /// The run and the queue of each provider that is under way.
    tasks: BTreeMap<String, (String, SyncSender<task::Message>)>,
    threads: Vec<JoinHandle<()>>,
    run_ids: Vec<String>,
    counts: BTreeMap<String, Counts>,
    /// Where providers stand that are not under way.
    at_rest: BTreeMap<String, State>,
    /// A provider that panics ends the engine.
    panics_end: bool,
}

pub(super) fn run(
    engine: Engine,
    until: Until,
    satisfied: BTreeSet<String>,
    mut store: Writer,
    on_progress: &mut dyn FnMut(Progress),
) -> Result<Summary, Error> {
    let Engine { options, registry, sender, receiver } = engine;
    let clock = Clock::new();
    let now = clock.now();
    store.macro_begins(now)?;
    let (ids, serves) = match until {
        Until::AtRest(ids) => (ids, false),
        Until::ShutDown => (Vec::new(), true),
    };
    let mut unfinished = Vec::new();
    for config in &options.providers {
        store.register(&config.id, &config.provider_type, now)?;
        if serves || ids.contains(&config.id) {
            let key = source_key(&options, &config.id);
            if let Some(left) = store.unfinished(&config.id)? {
                if left.source == key {
                    let cursor = store.cursor(&config.id, &key)?;
                    unfinished.push((config.id.clone(), left, cursor));
                } else {
                    let why = format!("another source was asked for: {key}");
                    store.commit(&[Commit {
                        provider: config.id.clone(),
                        run_id: left.run_id,
                        at: now,
                        ended: Some((Outcome::Stopped, why)),
                        ..Commit::default()
                    }])?;
                }
            }
        }
    }
    let states = Reader::open(&options.db)?.providers()?.into_iter();
    let at_rest = states.filter_map(|one| Some((one.id, State::from_name(&one.state)?))).collect();
    let (writer, to_writer) = writer::Queue::new(options.queue_len);
    let meter = writer.meter();
    meter.handled(store.last_event()?);
    let (to_coordinator, measured, brake) = (sender.clone(), Arc::clone(&meter), options.brake.clone());
    let writing = spawn("etl-writer", move || {
        let result = writer::run(store, &measured, &to_writer, &to_coordinator, brake.as_ref());
        let _ = to_coordinator.send(Message::WriterGone);
        result
    })?;
    let mut coordinator = Coordinator {
        clock,
        http: Http::new(options.timeouts, options.limits),
        orchestrator: Orchestrator::new(now, registry, satisfied),
        broker: Broker::new(now, options.permits),
        writer,
        sender,
        tasks: BTreeMap::new(),
        threads: Vec::new(),
        run_ids: Vec::new(),
        counts: BTreeMap::new(),
        at_rest,
        panics_end: !serves,
        options: &options,
    };
    let going_on = unfinished.into_iter().try_for_each(|(id, left, cursor)| {
        coordinator.spawn_task(&id, left.run_id, cursor, Some(left.saved))
    });
    let started = going_on.and_then(|()| coordinator.tell(orchestrator::Input::Start(ids)));
    let result = started.and_then(|()| {
        while serves || !coordinator.orchestrator.is_at_rest() {
            let wait = coordinator.broker.next_deadline().saturating_sub(coordinator.clock.now());
            match receiver.recv_timeout(wait) {
                Ok(Message::WriterGone) => return Ok(()),
                Ok(Message::ShutDown) => break,
                Ok(message) => coordinator.handle(message, on_progress)?,
                Err(RecvTimeoutError::Timeout) => coordinator.look_at_load(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if coordinator.broker.check_due(coordinator.clock.now()) {
                coordinator.look_at_load();
            }
        }
        if serves || coordinator.orchestrator.paused().next().is_none() {
            coordinator.tell(orchestrator::Input::Drain)?;
        }
        Ok(())
    });
    let paused = coordinator.orchestrator.paused().map(str::to_owned).collect();
    let blocked = coordinator.orchestrator.blocked().map(str::to_owned).collect();
    let Coordinator { threads, run_ids, tasks, writer, .. } = coordinator;
    for (_, task) in tasks.values() {
        let _ = task.send(task::Message::Close);
    }
    // The writer ends when nobody can send to it any more.
    drop(writer);
    for thread in threads {
        thread.join().map_err(|_| Error::Thread("a provider's thread has panicked".to_owned()))?;
    }
    let store =
        writing.join().map_err(|_| Error::Thread("the writer's thread has panicked".to_owned()))??;
    result?;
    store.events_handled(store.last_event()?)?;
    drop(store);
    let mut runs = Reader::open(&options.db)?.runs()?;
    runs.retain(|run| run_ids.contains(&run.run_id));
    Ok(Summary { runs, paused, blocked })
}

impl Coordinator<'_> {
    fn handle(&mut self, message: Message, on_progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        match message {
            Message::Written(id, Written { counts, events, last_event, done, ended }) => {
                for (kind, _) in &events {
                    self.tell(orchestrator::Input::Event(id.clone(), *kind))?;
                }
                self.writer.meter().handled(last_event);
                let sum = self.counts.entry(id.clone()).or_default();
                *sum += counts;
                let counts = *sum;
                if let Some((outcome, _)) = &ended {
                    self.tasks.remove(&id);
                    self.at_rest.insert(id.clone(), State::Terminated);
                    self.threads.retain(|thread| !thread.is_finished());
                    self.tell(orchestrator::Input::Ended(id.clone(), *outcome))?;
                }
                on_progress(Progress { provider: id, counts, done, events, ended });
            }
            Message::AskPermits(id) => self.permits(broker::Input::Ask(id, self.options.permits.pool)),
            Message::Return(id) => {
                self.permits(broker::Input::Return(id.clone()));
                self.save_permits(&id);
            }
            Message::Renew(id) => self.permits(broker::Input::Renew(id)),
            Message::WriterGone | Message::ShutDown => {}
            Message::Crashed(id) => self.crashed(&id)?,
            Message::Command(id, command) => {
                for (task, (_, sender)) in &self.tasks {
                    if id.as_ref().is_none_or(|id| id == task) {
                        let _ = sender.send(task::Message::Input(input_of(command)));
                    }
                }
            }
            Message::Ask(id, command, reply) => self.ask(&id, command, reply)?,
            Message::Start(ids, reply) => {
                let answer = self.begin(ids)?;
                let _ = reply.try_send(answer);
            }
        }
        Ok(())
    }

    /// One provider is told one thing: whoever is under way answers itself.
    fn ask(&mut self, id: &str, command: Command, reply: SyncSender<Answer>) -> Result<(), Error> {
        if let Some((_, task)) = self.tasks.get(id) {
            let _ = task.send(task::Message::Command(input_of(command), reply));
            return Ok(());
        }
        let withdrawn = command == Command::Stop && self.orchestrator.blocked().any(|one| one == id);
        let answer = match (command, self.at_rest.get(id)) {
            (Command::Start, _) => self.begin(vec![id.to_owned()])?,
            (Command::Stop, _) if withdrawn => {
                self.tell(orchestrator::Input::Withdrawn(id.to_owned()))?;
                Ok(Vec::new())
            }
            (_, Some(&state)) => Err(Refused { command: command.name(), state }.into()),
            // Nobody knows it, which is what the registry says.
            (_, None) => self.orchestrator.needed(&[id.to_owned()]).map_err(Refusal::from),
        };
        let _ = reply.try_send(answer);
        Ok(())
    }

    /// Starts each of `ids` that is not under way, and what they need.
    fn begin(&mut self, ids: Vec<String>) -> Result<Answer, Error> {
        let needed = match self.orchestrator.needed(&ids) {
            Ok(needed) => needed,
            Err(unknown) => return Ok(Err(unknown.into())),
        };
        let needed: Vec<_> =
            needed.into_iter().filter(|needed| !self.tasks.contains_key(&needed.id)).collect();
        self.tell(orchestrator::Input::Start(needed.iter().map(|needed| needed.id.clone()).collect()))?;
        Ok(Ok(needed))
    }

    fn crashed(&mut self, id: &str) -> Result<(), Error> {
        let Some((run_id, _)) = self.tasks.remove(id) else { return Ok(()) };
        if self.panics_end {
            return Err(Error::Thread(format!(
                "provider `{id}` has panicked, which is a bug in it; the next run goes on after its last commit"
            )));
        }
        let why = "the provider has panicked, which is a bug in it".to_owned();
        self.permits(broker::Input::Return(id.to_owned()));
        let commit = Commit {
            provider: id.to_owned(),
            run_id,
            at: self.clock.now(),
            saved: Some(provider::Saved { state: State::Terminated, ..provider::Saved::default() }),
            events: vec![(EventKind::ProviderFailed, why.clone())],
            permits: Some(self.broker.statistics(id)),
            ended: Some((Outcome::Failed, why)),
            ..Commit::default()
        };
        self.writer.send(writer::Message::Commit(Box::new(commit), None));
        Ok(())
    }

    fn look_at_load(&mut self) {
        let now = self.clock.now();
        if self.broker.check_due(now) {
            self.permits(broker::Input::Check(self.writer.load()));
        } else {
            self.permits(broker::Input::Tick);
        }
    }

    fn permits(&mut self, input: broker::Input) {
        let mut effects = Vec::new();
        self.broker.handle(self.clock.now(), input, &mut effects);
        for effect in effects {
            let (id, input) = match effect {
                broker::Effect::Grant(id, permits) => (id, provider::Input::QuotaGranted(permits)),
                broker::Effect::Revoke(id, permits, why) => (id, provider::Input::QuotaRevoked(permits, why)),
            };
            if let Some((_, task)) = self.tasks.get(&id) {
                let _ = task.send(task::Message::Input(input));
            }
            self.save_permits(&id);
        }
    }

    fn save_permits(&self, id: &str) {
        let commit = Commit {
            provider: id.to_owned(),
            at: self.clock.now(),
            permits: Some(self.broker.statistics(id)),
            ..Commit::default()
        };
        self.writer.send(writer::Message::Commit(Box::new(commit), None));
    }

    fn tell(&mut self, input: orchestrator::Input) -> Result<(), Error> {
        let now = self.clock.now();
        let mut effects = Vec::new();
        self.orchestrator.handle(now, input, &mut effects);
        for effect in effects {
            match effect {
                orchestrator::Effect::Moved { from, to, cause } => {
                    let moved = Moved { from: from.name(), to: to.name(), cause: cause.into_owned() };
                    self.writer.send(writer::Message::MacroMoved(moved, now));
                }
                orchestrator::Effect::StartProvider(id) => self.start(&id)?,
            }
        }
        Ok(())
    }

    fn start(&mut self, id: &str) -> Result<(), Error> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        let source = source_key(self.options, id);
        let at = self.clock.now();
        self.writer.send(writer::Message::BeginRun { provider: id.to_owned(), source, at, reply });
        let writer::Begun { run_id, cursor } =
            answer.recv().map_err(|_| Error::Thread("the writer did not begin the run".to_owned()))?;
        self.spawn_task(id, run_id, cursor, None)
    }

    /// Starts the thread of a provider: a new run, or one that goes on.
    fn spawn_task(
        &mut self,
        id: &str,
        run_id: String,
        cursor: Option<String>,
        saved: Option<provider::Saved>,
    ) -> Result<(), Error> {
        let now = self.clock.now();
        let config = self.options.providers.iter().find(|one| one.id == id);
        let Some((config, provider)) = config.and_then(|one| Some((one, one.provider()?))) else {
            return Err(Error::Thread(format!("provider `{id}` is not registered")));
        };
        let mut begin = Vec::new();
        let goes_on = saved.is_some();
        let machine =
            provider::Provider::recover(now, config.policy(), saved.unwrap_or_default(), &mut begin);
        let (sender, receiver) = task::queue();
        self.run_ids.push(run_id.clone());
        let state = machine.state();
        if state == State::Idle {
            let _ = sender.send(task::Message::Input(provider::Input::Start));
        }
        if state == State::Paused && self.options.resume {
            let _ = sender.send(task::Message::Input(provider::Input::Resume));
        }
        if goes_on {
            let paused = state == State::Paused && !self.options.resume;
            self.tell(orchestrator::Input::Recovered(id.to_owned(), paused))?;
        }
        self.tasks.insert(id.to_owned(), (run_id.clone(), sender.clone()));
        let http = match &self.options.on_fetch {
            Some(watch) => self.http.watched(id, watch),
            None => self.http.clone(),
        };
        let credential = provider
            .credential_variable()
            .and_then(|variable| self.options.credentials.get(variable).cloned());
        let task = task::Task {
            id: id.to_owned(),
            run_id,
            source: self.options.source_of(id, &*provider),
            source_key: source_key(self.options, id),
            cursor,
            batch_size: config.batch_size,
            machine,
            provider,
            context: Context { http, limits: self.options.limits, now, credential },
            clock: self.clock,
            writer: self.writer.clone(),
            coordinator: self.sender.clone(),
        };
        let coordinator = self.sender.clone();
        let name = id.to_owned();
        self.threads.push(spawn(&format!("etl-{id}"), move || {
            let work = AssertUnwindSafe(|| task::run(task, sender, &receiver, begin));
            if catch_unwind(work).is_err() {
                let _ = coordinator.send(Message::Crashed(name));
            }
        })?);
        Ok(())
    }
}

fn input_of(command: Command) -> provider::Input {
    match command {
        Command::Start => provider::Input::Start,
        Command::Pause => provider::Input::Pause,
        Command::Resume => provider::Input::Resume,
        Command::Stop => provider::Input::Stop,
    }
}

/// What a cursor belongs to: the same place in another version is another source.
fn source_key(options: &Options, id: &str) -> String {
    let provider =
        options.providers.iter().find(|one| one.id == id).and_then(super::ProviderConfig::provider);
    let Some(source) = provider.map(|provider| options.source_of(id, &*provider)) else {
        return String::new();
    };
    source.version.as_ref().map_or_else(|| source.to_string(), |version| format!("{source} as {version}"))
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|error| Error::Thread(format!("thread {name} does not start: {error}")))
}
