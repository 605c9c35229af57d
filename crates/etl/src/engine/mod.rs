//! The shell: threads, queues and clocks around the core.
//!
//! One thread owns each provider's machine and reads its source; it takes commands from a bounded queue between two
//! batches. One thread writes, and puts what arrives within 50 ms into one transaction. The thread that called
//! [`Engine::run`] owns the orchestrator and the broker.
//!
//! Nothing waits in a circle: providers wait for the writer, the writer waits for nobody, and the coordinator's own
//! queue has no bound (events are few: one per hundred items).

mod clock;
mod config;
mod coordinator;
mod retry;
mod task;
mod writer;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

pub use config::{Brake, Options, ProviderConfig};
pub use retry::retry;

use crate::core::provider::Refused;
use crate::core::registry::{self, Needed, Registry};
use crate::core::{EventKind, Outcome};
use crate::source::Done;
use crate::store::{self, Counts, Reader, RunRow, Writer};

/// Why an engine could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The set of providers makes no sense.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A provider has neither an executor nor a type we know.
    #[error("provider `{0}`: there is no built-in provider of type `{1}`, and no executor was given")]
    NoExecutor(String, String),
    /// A provider wants its state elsewhere.
    #[error(
        "provider `{0}`: its storage must be the engine's, because state and records are written in one transaction"
    )]
    ForeignStorage(String),
    /// A thread could not be started, or is gone.
    #[error("{0}")]
    Thread(String),
}

/// What a person may want of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begin a run, and one of whatever it needs that never completed.
    Start,
    /// Pause it.
    Pause,
    /// Go on.
    Resume,
    /// End the run.
    Stop,
}

impl Command {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Stop => "stop",
        }
    }
}

/// How far a provider is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Which.
    pub provider: String,
    /// What was read since the engine started.
    pub counts: Counts,
    /// How much of its source is read, where that can be said.
    pub done: Option<Done>,
    /// Its events since the last time.
    pub events: Vec<(EventKind, String)>,
    /// The end of its run.
    pub ended: Option<(Outcome, String)>,
}

/// What came of it all.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The run of each provider that ran, in the order they began.
    pub runs: Vec<RunRow>,
    /// Providers that are paused.
    pub paused: Vec<String>,
    /// Providers that could not start because of another one.
    pub blocked: Vec<String>,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such provider.
    #[error(transparent)]
    Registry(#[from] registry::Error),
    /// It makes no sense in the provider's state.
    #[error(transparent)]
    State(#[from] Refused),
}

/// What came of a command: who runs because of it, where it was a start.
pub type Answer = Result<Vec<Needed>, Refusal>;

/// Sends commands to the providers of an engine that runs.
#[derive(Clone)]
pub struct Handle(Sender<coordinator::Message>);

impl Handle {
    /// Gives `command` to `provider`, or to all of them. After the end of the engine nobody listens.
    pub fn send(&self, provider: Option<&str>, command: Command) {
        let _ = self.0.send(coordinator::Message::Command(provider.map(str::to_owned), command));
    }

    /// Gives `command` to `provider` and says what came of it, once that is known: a provider takes commands between
    /// two batches. Nothing comes when the engine has ended.
    pub fn ask(&self, provider: &str, command: Command) -> Receiver<Answer> {
        let (reply, answer) = sync_channel(1);
        let _ = self.0.send(coordinator::Message::Ask(provider.to_owned(), command, reply));
        answer
    }

    /// Starts each of `providers` that is not under way, and what they need.
    pub fn start(&self, providers: Vec<String>) -> Receiver<Answer> {
        let (reply, answer) = sync_channel(1);
        let _ = self.0.send(coordinator::Message::Start(providers, reply));
        answer
    }

    /// Ends an engine that [serves](Engine::serve): runs under way stay as they are, and go on the next time.
    pub fn shut_down(&self) {
        let _ = self.0.send(coordinator::Message::ShutDown);
    }
}

/// An engine, not running yet.
pub struct Engine {
    options: Options,
    registry: Registry,
    sender: Sender<coordinator::Message>,
    receiver: Receiver<coordinator::Message>,
}

impl Engine {
    /// Checks the whole set of providers.
    pub fn new(options: Options) -> Result<Self, Error> {
        let registry = Registry::new(
            options
                .providers
                .iter()
                .map(|one| (one.id.as_str(), one.dependencies.iter().map(String::as_str).collect())),
        )?;
        for config in &options.providers {
            if config.provider().is_none() {
                return Err(Error::NoExecutor(config.id.clone(), config.provider_type.clone()));
            }
            if config.storage.as_ref().is_some_and(|storage| *storage != options.db) {
                return Err(Error::ForeignStorage(config.id.clone()));
            }
        }
        let (sender, receiver) = channel();
        Ok(Self { options, registry, sender, receiver })
    }

    /// Every id, in the order they start.
    pub fn ids(&self) -> &[String] {
        self.registry.order()
    }

    /// Who will run when `ids` are asked for, and because of whom.
    pub fn plan(&self, ids: &[String]) -> Result<Vec<Needed>, Error> {
        Ok(self.registry.closure(ids, &self.satisfied()?)?)
    }

    /// For commands while it runs.
    pub fn handle(&self) -> Handle {
        Handle(self.sender.clone())
    }

    /// Runs `ids` and what they need until nothing moves any more.
    pub fn run(self, ids: &[String], on_progress: &mut dyn FnMut(Progress)) -> Result<Summary, Error> {
        let ids: Vec<String> = self.plan(ids)?.into_iter().map(|needed| needed.id).collect();
        let satisfied = self.satisfied()?;
        let writer = Writer::open(&self.options.db)?;
        coordinator::run(self, coordinator::Until::AtRest(ids), satisfied, writer, on_progress)
    }

    /// Lets runs that were under way go on, and then does what [`Handle`] says until it is shut down.
    ///
    /// A provider that panics fails its run; the others go on.
    pub fn serve(self, on_progress: &mut dyn FnMut(Progress)) -> Result<(), Error> {
        let satisfied = self.satisfied()?;
        let writer = Writer::open(&self.options.db)?;
        coordinator::run(self, coordinator::Until::ShutDown, satisfied, writer, on_progress)?;
        Ok(())
    }

    fn satisfied(&self) -> Result<BTreeSet<String>, Error> {
        match Reader::open(&self.options.db) {
            Ok(reader) => {
                let providers = reader.providers()?.into_iter();
                Ok(providers.filter(|one| one.satisfied).map(|one| one.id).collect())
            }
            Err(store::Error::Missing(_)) => Ok(BTreeSet::new()),
            Err(error) => Err(error.into()),
        }
    }
}
