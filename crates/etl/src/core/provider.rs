//! One provider's run: commands and facts in, effects out.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use phalanx_fsm::{Fsm, State as _};

use super::backoff::{Fault, Policy};
use super::broker::Reason;
use super::{EventKind, Outcome};
use crate::ProviderState as State;

/// A CHECKPOINT event is emitted each time that many items more were processed.
pub const CHECKPOINT_ITEMS: u64 = 100;

/// What happens to a provider.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A person or the orchestrator starts the run.
    Start,
    /// A person pauses it.
    Pause,
    /// A person resumes it.
    Resume,
    /// A person stops it for good.
    Stop,
    /// The broker gave that many permits.
    QuotaGranted(u32),
    /// The broker took that many permits back.
    QuotaRevoked(u32, Reason),
    /// A batch was read and is handed to the store.
    Batch {
        /// Items in it.
        items: u64,
        /// How many of them could not be understood.
        errors: u64,
        /// The URN of the last record in it.
        last: Option<String>,
    },
    /// A page was read whole.
    PageRead,
    /// A page could not be had. `jitter` is in `0.0..1.0`.
    PageFailed {
        /// Why.
        fault: Fault,
        /// What the source asked for.
        retry_after: Option<Duration>,
        /// Randomness for the wait.
        jitter: f64,
    },
    /// Everything was read and stored; gaps in words, if there are any.
    Exhausted {
        /// What is missing.
        gaps: Option<String>,
    },
    /// Trying again would not help.
    Broken(String),
    /// Time passed.
    Tick,
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
    /// Keep in the history that the run goes on in `state` after having been saved in `saved`.
    Recovered {
        /// As it was saved.
        saved: State,
        /// As it goes on.
        state: State,
    },
    /// Tell the orchestrator.
    Emit(EventKind, String),
    /// Ask the broker for permits.
    AskPermits,
    /// Give the broker back what is held, and withdraw what was asked for.
    ReturnPermits,
    /// Work, with at most that many batches between source and store.
    Work(u32),
    /// Begin nothing new; what is under way to the store arrives there.
    Halt,
    /// The run is over.
    EndRun(Outcome, String),
    /// The command makes no sense now; nothing changed.
    Refused(Refused),
}

/// A command that makes no sense in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{command}` is refused: the provider is {state}")]
pub struct Refused {
    /// What was wanted.
    pub command: &'static str,
    /// Where the provider is.
    pub state: State,
}

/// What survives a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The state.
    pub state: State,
    /// Failures in a row of the page that is due.
    pub failures: u32,
    /// When WAITING_BACKOFF or WAITING_QUOTA ends.
    pub deadline: Option<Duration>,
    /// Whether somebody wishes to pause.
    pub pause_wish: bool,
    /// Items processed in this run.
    pub processed: u64,
    /// Items of them that could not be understood.
    pub errors: u64,
    /// The URN of the last checkpoint.
    pub last_checkpoint: Option<String>,
}

impl Default for Saved {
    fn default() -> Self {
        Self {
            state: State::Idle,
            failures: 0,
            deadline: None,
            pause_wish: false,
            processed: 0,
            errors: 0,
            last_checkpoint: None,
        }
    }
}

/// The machine of one provider for one run.
///
/// | from | input | to |
/// |---|---|---|
/// | IDLE | start | ACQUIRING |
/// | ACQUIRING | permits granted; pause; stop | RUNNING; PAUSED; TERMINATED |
/// | RUNNING | last permit revoked | WAITING_QUOTA |
/// | RUNNING | page failed, retries left | WAITING_BACKOFF |
/// | RUNNING | pause; stop, exhausted, broken, no retries left | PAUSED; TERMINATED |
/// | WAITING_QUOTA, WAITING_BACKOFF | deadline; stop | ACQUIRING; TERMINATED |
/// | PAUSED | resume; stop | ACQUIRING; TERMINATED |
#[derive(Clone, Debug)]
pub struct Provider {
    fsm: Fsm<State>,
    policy: Policy,
    permits: u32,
    rest: Saved,
}

impl Provider {
    /// A provider before its first run.
    pub fn new(now: Duration, policy: Policy) -> Self {
        Self { fsm: Fsm::new(now), policy, permits: 0, rest: Saved::default() }
    }

    /// A provider after a restart: chooses the state to go on in, which is no transition.
    ///
    /// RUNNING, ACQUIRING and WAITING_QUOTA ask for permits anew; WAITING_BACKOFF keeps its deadline; PAUSED, IDLE and
    /// TERMINATED stay.
    pub fn recover(now: Duration, policy: Policy, saved: Saved, out: &mut Vec<Effect>) -> Self {
        let state = match saved.state {
            State::Running | State::Acquiring | State::WaitingQuota => State::Acquiring,
            State::WaitingBackoff | State::Paused | State::Idle | State::Terminated => saved.state,
        };
        let deadline = if state == State::WaitingBackoff { saved.deadline } else { None };
        if saved.state != State::Idle && saved.state != State::Terminated {
            out.push(Effect::Recovered { saved: saved.state, state });
        }
        let mut provider = Self {
            fsm: Fsm::with_state(state, now),
            policy,
            permits: 0,
            rest: Saved { state, deadline, ..saved },
        };
        if state == State::Acquiring {
            provider.acquire(now, out);
        }
        provider
    }

    /// The current state.
    pub fn state(&self) -> State {
        self.fsm.state()
    }

    /// Permits held, which is how many batches may be between source and store.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// What to save.
    pub fn saved(&self) -> &Saved {
        &self.rest
    }

    /// When [`Input::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.rest.deadline
    }

    /// Takes one input and appends what the shell must do.
    pub fn handle(&mut self, now: Duration, input: Input, out: &mut Vec<Effect>) {
        use State::{Acquiring, Idle, Paused, Running, Terminated, WaitingBackoff, WaitingQuota};
        match (self.state(), input) {
            (Idle, Input::Start) => {
                self.go(now, Acquiring, "start", out);
                out.push(Effect::Emit(EventKind::ProviderStarted, String::new()));
                self.acquire(now, out);
            }
            (_, Input::Start) => self.refuse("start", out),

            (Acquiring | Running, Input::Pause) => self.pause(now, "pause", out),
            (WaitingQuota | WaitingBackoff, Input::Pause) => self.rest.pause_wish = true,
            (Idle | Paused | Terminated, Input::Pause) => self.refuse("pause", out),

            (Paused, Input::Resume) => {
                self.rest.pause_wish = false;
                self.go(now, Acquiring, "resume", out);
                out.push(Effect::Emit(EventKind::ProviderResumed, String::new()));
                self.acquire(now, out);
            }
            (WaitingQuota | WaitingBackoff, Input::Resume) if self.rest.pause_wish => {
                self.rest.pause_wish = false;
            }
            (_, Input::Resume) => self.refuse("resume", out),

            (Idle | Terminated, Input::Stop) => self.refuse("stop", out),
            (_, Input::Stop) => self.end(now, Outcome::Stopped, "stopped", out),

            (_, Input::QuotaGranted(0)) => {}
            (Acquiring, Input::QuotaGranted(permits)) => {
                self.permits = permits;
                self.go(now, Running, "permits granted", out);
                self.granted(permits, out);
            }
            (Running, Input::QuotaGranted(permits)) => {
                self.permits += permits;
                self.granted(permits, out);
            }
            // The answer to a question nobody asks any more.
            (_, Input::QuotaGranted(_)) => out.push(Effect::ReturnPermits),

            (Running, Input::QuotaRevoked(permits, reason)) => self.revoked(now, permits, &reason, out),
            // They were given back before the broker asked.
            (_, Input::QuotaRevoked(..)) => {}

            // A batch may be on its way while the provider leaves RUNNING: what was read counts.
            (_, Input::Batch { items, errors, last }) => self.processed(items, errors, last, out),
            (_, Input::PageRead) => self.rest.failures = 0,

            (Running, Input::PageFailed { fault, retry_after, jitter }) => {
                self.page_failed(now, &fault, retry_after, jitter, out);
            }
            (Running, Input::Exhausted { gaps: None }) => {
                self.end(now, Outcome::Completed, "everything was read", out);
            }
            (Running, Input::Exhausted { gaps: Some(gaps) }) => {
                self.end(now, Outcome::CompletedWithGaps, gaps, out);
            }
            (Running, Input::Broken(why)) => self.end(now, Outcome::Failed, why, out),
            // Work that was halted meanwhile is done again when it goes on.
            (_, Input::PageFailed { .. } | Input::Exhausted { .. } | Input::Broken(_)) => {}

            (WaitingQuota | WaitingBackoff, Input::Tick) => {
                if self.rest.deadline.is_none_or(|deadline| deadline <= now) {
                    let cause =
                        if self.state() == WaitingQuota { "asking again" } else { "back-off expired" };
                    self.rest.deadline = None;
                    self.go(now, Acquiring, cause, out);
                    self.acquire(now, out);
                }
            }
            (_, Input::Tick) => {}
        }
    }

    /// In ACQUIRING: a wish to pause is taken here, otherwise permits are asked for.
    fn acquire(&mut self, now: Duration, out: &mut Vec<Effect>) {
        if self.rest.pause_wish {
            self.pause(now, "pause, as wished", out);
        } else {
            out.push(Effect::AskPermits);
        }
    }

    fn pause(&mut self, now: Duration, cause: &'static str, out: &mut Vec<Effect>) {
        self.rest.pause_wish = false;
        self.leave_work(out);
        self.go(now, State::Paused, cause, out);
        out.push(Effect::Emit(EventKind::ProviderPaused, String::new()));
    }

    fn granted(&mut self, permits: u32, out: &mut Vec<Effect>) {
        let held = self.permits;
        out.push(Effect::Emit(EventKind::QuotaGranted, format!("{permits} permits, {held} held")));
        out.push(Effect::Work(held));
    }

    fn revoked(&mut self, now: Duration, permits: u32, reason: &Reason, out: &mut Vec<Effect>) {
        self.permits = self.permits.saturating_sub(permits);
        let held = self.permits;
        out.push(Effect::Emit(EventKind::QuotaRevoked, format!("{permits} permits, {held} held: {reason}")));
        if held > 0 {
            out.push(Effect::Work(held));
        } else {
            out.push(Effect::Halt);
            self.rest.deadline = Some(now + self.policy.retry_delay);
            self.go(now, State::WaitingQuota, "the last permit was revoked", out);
        }
    }

    fn processed(&mut self, items: u64, errors: u64, last: Option<String>, out: &mut Vec<Effect>) {
        let before = self.rest.processed / CHECKPOINT_ITEMS;
        self.rest.processed += items;
        self.rest.errors += errors;
        if last.is_some() {
            self.rest.last_checkpoint = last;
        }
        for hundred in before + 1..=self.rest.processed / CHECKPOINT_ITEMS {
            let urn = self.rest.last_checkpoint.as_deref().unwrap_or("none yet");
            out.push(Effect::Emit(
                EventKind::Checkpoint,
                format!("{} items, at {urn}", hundred * CHECKPOINT_ITEMS),
            ));
        }
    }

    fn page_failed(
        &mut self,
        now: Duration,
        fault: &Fault,
        retry_after: Option<Duration>,
        jitter: f64,
        out: &mut Vec<Effect>,
    ) {
        self.rest.failures += 1;
        let wait = self.policy.wait(self.rest.failures, retry_after, jitter);
        if fault.is_rate_limit() {
            out.push(Effect::Emit(EventKind::RateLimited, fault.to_string()));
        }
        match wait {
            Some(wait) => {
                self.leave_work(out);
                self.rest.deadline = Some(now + wait);
                self.go(now, State::WaitingBackoff, fault.to_string(), out);
            }
            None => {
                let tries = self.rest.failures;
                // The next run begins to count anew.
                self.rest.failures = 0;
                self.end(now, Outcome::Failed, format!("{fault}, {tries} times in a row"), out);
            }
        }
    }

    fn end(
        &mut self,
        now: Duration,
        outcome: Outcome,
        why: impl Into<Cow<'static, str>>,
        out: &mut Vec<Effect>,
    ) {
        let why = why.into();
        self.leave_work(out);
        self.rest.deadline = None;
        self.rest.pause_wish = false;
        self.go(now, State::Terminated, why.clone(), out);
        match outcome {
            Outcome::Completed | Outcome::CompletedWithGaps => {
                out.push(Effect::Emit(EventKind::ProviderCompleted, why.to_string()));
            }
            Outcome::Failed => out.push(Effect::Emit(EventKind::ProviderFailed, why.to_string())),
            Outcome::Stopped => {}
        }
        out.push(Effect::EndRun(outcome, why.into_owned()));
    }

    fn leave_work(&mut self, out: &mut Vec<Effect>) {
        if self.state() == State::Running {
            out.push(Effect::Halt);
        }
        if matches!(self.state(), State::Running | State::Acquiring) {
            out.push(Effect::ReturnPermits);
        }
        self.permits = 0;
    }

    fn refuse(&self, command: &'static str, out: &mut Vec<Effect>) {
        out.push(Effect::Refused(Refused { command, state: self.state() }));
    }

    fn go(&mut self, now: Duration, to: State, cause: impl Into<Cow<'static, str>>, out: &mut Vec<Effect>) {
        let (from, cause) = (self.state(), cause.into());
        // Every call stands in an arm whose state allows it; the tests walk them all.
        self.fsm.transition(now, to, cause.clone()).expect("the arm allows the transition");
        self.rest.state = to;
        out.push(Effect::Moved { from, to, cause });
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.state().name())
    }
}

#[cfg(test)]
#[path = "provider_test.rs"]
mod tests;
