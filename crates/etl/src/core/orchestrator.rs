//! The machine above all providers: who starts when, and when there is nothing left to do.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use phalanx_fsm::Fsm;

use super::registry::{self, Needed, Registry};
use super::{EventKind, Outcome};
use crate::MacroState as State;

/// What happens to the orchestrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Run these providers, each once its dependencies are satisfied.
    Start(Vec<String>),
    /// A provider's run that was under way goes on after a restart; `true` when it stays paused.
    Recovered(String, bool),
    /// An event of a provider or of the broker.
    Event(String, EventKind),
    /// A provider that waits for others is not wanted any more.
    Withdrawn(String),
    /// A provider's run ended.
    Ended(String, Outcome),
    /// Clean up and end.
    Drain,
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Keep this step in the history.
    Moved {
        /// The state left.
        from: State,
        /// The state entered.
        to: State,
        /// Why.
        cause: Cow<'static, str>,
    },
    /// Start a new run of this provider.
    StartProvider(String),
}

/// Where a provider stands, as the orchestrator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Wanted,
    Active,
    Paused,
    Ended(Outcome),
}

/// The orchestrator.
#[derive(Clone, Debug)]
pub struct Orchestrator {
    fsm: Fsm<State>,
    registry: Registry,
    satisfied: BTreeSet<String>,
    progress: BTreeMap<String, Progress>,
}

impl Orchestrator {
    /// An orchestrator of these providers, of which some have completed before.
    pub fn new(now: Duration, registry: Registry, satisfied: BTreeSet<String>) -> Self {
        Self { fsm: Fsm::new(now), registry, satisfied, progress: BTreeMap::new() }
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.fsm.state()
    }

    /// Whether nothing moves any more unless a person does something: all ended, blocked, or paused.
    pub fn is_at_rest(&self) -> bool {
        !self.progress.iter().any(|(id, progress)| match progress {
            Progress::Active => true,
            Progress::Wanted => self.may_start(id),
            Progress::Paused | Progress::Ended(_) => false,
        })
    }

    /// The providers that are paused.
    pub fn paused(&self) -> impl Iterator<Item = &str> {
        let paused = self.progress.iter().filter(|(_, progress)| **progress == Progress::Paused);
        paused.map(|(id, _)| id.as_str())
    }

    /// The providers that wait behind one that failed, was stopped or is paused.
    pub fn blocked(&self) -> impl Iterator<Item = &str> {
        let wanted = self.progress.iter().filter(|(_, progress)| **progress == Progress::Wanted);
        wanted.map(|(id, _)| id.as_str()).filter(|id| !self.may_start(id))
    }

    /// Who runs when `ids` are asked for, and because of whom.
    pub fn needed(&self, ids: &[String]) -> Result<Vec<Needed>, registry::Error> {
        self.registry.closure(ids, &self.satisfied)
    }

    /// Takes one input and appends what the shell must do.
    pub fn handle(&mut self, now: Duration, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Start(ids) => {
                for id in ids {
                    let progress = self.progress.entry(id).or_insert(Progress::Wanted);
                    if matches!(progress, Progress::Ended(_)) {
                        *progress = Progress::Wanted;
                    }
                }
                self.start_what_may(out);
            }
            Input::Recovered(id, paused) => {
                self.progress.insert(id, if paused { Progress::Paused } else { Progress::Active });
                self.orchestrate(now, "a run goes on", out);
            }
            Input::Withdrawn(id) => {
                if self.progress.get(&id) == Some(&Progress::Wanted) {
                    self.progress.remove(&id);
                }
                self.stabilize(now, out);
            }
            Input::Event(id, kind) => self.event(now, id, kind, out),
            Input::Ended(id, outcome) => {
                if outcome.satisfies() {
                    self.satisfied.insert(id.clone());
                }
                self.progress.insert(id, Progress::Ended(outcome));
                self.start_what_may(out);
                self.stabilize(now, out);
            }
            Input::Drain => {
                if self.state() != State::Draining {
                    self.go(now, State::Draining, "drain", out);
                }
            }
        }
    }

    fn event(&mut self, now: Duration, id: String, kind: EventKind, out: &mut Vec<Effect>) {
        match kind {
            EventKind::ProviderStarted => {
                self.progress.insert(id, Progress::Active);
                self.orchestrate(now, "a provider started", out);
            }
            EventKind::ProviderPaused => {
                self.progress.insert(id, Progress::Paused);
            }
            EventKind::ProviderResumed => {
                self.progress.insert(id, Progress::Active);
                self.orchestrate(now, "a provider resumed", out);
            }
            // The end of a run comes as `Ended`, with its outcome; the others change nothing up here.
            EventKind::ProviderCompleted
            | EventKind::ProviderFailed
            | EventKind::QuotaRevoked
            | EventKind::QuotaGranted
            | EventKind::RateLimited
            | EventKind::Checkpoint => {}
        }
    }

    fn may_start(&self, id: &str) -> bool {
        self.state() != State::Draining
            && self.registry.dependencies(id).all(|need| {
                // What runs in this very set is waited for, also when an earlier run has satisfied it.
                match self.progress.get(need) {
                    Some(Progress::Ended(outcome)) => outcome.satisfies() || self.satisfied.contains(need),
                    Some(_) => false,
                    None => self.satisfied.contains(need),
                }
            })
    }

    fn start_what_may(&mut self, out: &mut Vec<Effect>) {
        for id in self.registry.order().to_vec() {
            if self.progress.get(&id) == Some(&Progress::Wanted) && self.may_start(&id) {
                self.progress.insert(id.clone(), Progress::Active);
                out.push(Effect::StartProvider(id));
            }
        }
    }

    fn orchestrate(&mut self, now: Duration, cause: &'static str, out: &mut Vec<Effect>) {
        if matches!(self.state(), State::Bootstrapping | State::Stabilizing) {
            self.go(now, State::Orchestrating, cause, out);
        }
    }

    fn stabilize(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let paused = self.paused().next().is_some();
        if self.state() == State::Orchestrating && self.is_at_rest() && !paused {
            self.go(now, State::Stabilizing, "no provider can make progress", out);
        }
    }

    fn go(&mut self, now: Duration, to: State, cause: &'static str, out: &mut Vec<Effect>) {
        let from = self.state();
        // Every caller has looked at the state first; the tests walk them all.
        self.fsm.transition(now, to, cause).expect("the caller allows the transition");
        out.push(Effect::Moved { from, to, cause: cause.into() });
    }
}

#[cfg(test)]
#[path = "orchestrator_test.rs"]
mod tests;
