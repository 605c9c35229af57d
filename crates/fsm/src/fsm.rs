//! A machine that runs: the current state, the check, the history and the time spent.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::State;

/// How many transitions a machine remembers unless told otherwise.
const HISTORY_LEN: usize = 64;

/// One step a machine took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition<S> {
    /// When, on the caller's clock.
    pub at: Duration,
    /// The state it left.
    pub from: S,
    /// The state it entered.
    pub to: S,
    /// Why, in words for a person.
    pub cause: Cow<'static, str>,
}

/// A step the table does not allow. It is a bug in the caller: the machine stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalTransition<S> {
    /// The state the machine is in.
    pub from: S,
    /// The state somebody wanted.
    pub to: S,
}

impl<S: State> fmt::Display for IllegalTransition<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to } = self;
        write!(f, "{}: {from} -> {to} is not a legal transition; ", S::MACHINE.name)?;
        match from.declaration().next {
            [] => write!(f, "{from} is terminal"),
            [first, rest @ ..] => {
                write!(f, "from {from} the machine may go to {first}")?;
                rest.iter().try_for_each(|next| write!(f, ", {next}"))
            }
        }
    }
}

impl<S: State> Error for IllegalTransition<S> {}

/// A running machine.
///
/// Nothing is allocated per transition: the history is a ring of fixed length, and a cause that is a literal is
/// borrowed.
#[derive(Clone, Debug)]
pub struct Fsm<S> {
    state: S,
    since: Duration,
    time_spent: Vec<Duration>,
    history: VecDeque<Transition<S>>,
    history_len: usize,
}

impl<S: State> Fsm<S> {
    /// A machine in its first state, entered `now`.
    pub fn new(now: Duration) -> Self {
        Self::with_state(S::MACHINE.initial(), now)
    }

    /// A machine that continues in `state`, entered `now`: recovery chooses where to start, and that is no transition.
    pub fn with_state(state: S, now: Duration) -> Self {
        Self::with_history(state, now, HISTORY_LEN)
    }

    /// As [`with_state`](Fsm::with_state), remembering the last `history_len` transitions.
    pub fn with_history(state: S, now: Duration, history_len: usize) -> Self {
        Self {
            state,
            since: now,
            time_spent: vec![Duration::ZERO; S::MACHINE.states.len()],
            history: VecDeque::with_capacity(history_len),
            history_len,
        }
    }

    /// The current state.
    pub fn state(&self) -> S {
        self.state
    }

    /// When the current state was entered.
    pub fn since(&self) -> Duration {
        self.since
    }

    /// Goes to `to`, if the table allows it; otherwise nothing changes.
    ///
    /// Time that runs backwards counts as no time.
    pub fn transition(
        &mut self,
        now: Duration,
        to: S,
        cause: impl Into<Cow<'static, str>>,
    ) -> Result<(), IllegalTransition<S>> {
        let from = self.state;
        if !from.can_transition_to(to) {
            return Err(IllegalTransition { from, to });
        }
        self.time_spent[from.index()] += now.saturating_sub(self.since);
        self.state = to;
        self.since = now;
        if self.history.len() == self.history_len {
            self.history.pop_front();
        }
        if self.history_len > 0 {
            self.history.push_back(Transition { at: now, from, to, cause: cause.into() });
        }
        Ok(())
    }

    /// The latest transitions, oldest first.
    pub fn history(&self) -> impl ExactSizeIterator<Item = &Transition<S>> {
        self.history.iter()
    }

    /// How long the machine has been in `state`, all visits together, the current one up to `now`.
    pub fn time_in(&self, state: S, now: Duration) -> Duration {
        let current = if state == self.state { now.saturating_sub(self.since) } else { Duration::ZERO };
        self.time_spent[state.index()] + current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::machine! {
        enum Job: "job" {
            Waiting = 4, "WAITING" => [Busy, Done];
            Busy = 1, "BUSY" => [Waiting, Done];
            Done = 9, "DONE" => [];
        }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_illegal_transition_names_both_states_and_what_is_legal_and_changes_nothing() {
        let mut job = Fsm::<Job>::new(s(0));
        let refused = job.transition(s(1), Job::Waiting, "again").unwrap_err();
        assert_eq!(refused, IllegalTransition { from: Job::Waiting, to: Job::Waiting });
        assert_eq!(
            refused.to_string(),
            "job: WAITING -> WAITING is not a legal transition; from WAITING the machine may go to BUSY, DONE"
        );
        assert_eq!((job.state(), job.since(), job.history().len()), (Job::Waiting, s(0), 0));

        job.transition(s(2), Job::Done, "over").unwrap();
        let refused = job.transition(s(3), Job::Busy, "more").unwrap_err();
        assert_eq!(refused.to_string(), "job: DONE -> BUSY is not a legal transition; DONE is terminal");
    }

    #[test]
    fn history_keeps_the_newest_transitions_with_time_and_cause() {
        let mut job = Fsm::<Job>::with_history(Job::Waiting, s(0), 2);
        job.transition(s(1), Job::Busy, "one").unwrap();
        job.transition(s(2), Job::Waiting, String::from("two")).unwrap();
        job.transition(s(3), Job::Busy, "three").unwrap();
        let kept: Vec<_> = job.history().map(|t| (t.at, t.from, t.to, t.cause.as_ref())).collect();
        assert_eq!(kept, [(s(2), Job::Busy, Job::Waiting, "two"), (s(3), Job::Waiting, Job::Busy, "three")]);
    }

    #[test]
    fn a_machine_without_history_remembers_nothing() {
        let mut job = Fsm::<Job>::with_history(Job::Waiting, s(0), 0);
        job.transition(s(1), Job::Busy, "one").unwrap();
        assert_eq!(job.history().len(), 0);
    }

    #[test]
    fn time_in_a_state_adds_up_over_visits_and_ignores_time_running_backwards() {
        let mut job = Fsm::<Job>::new(s(10));
        job.transition(s(13), Job::Busy, "a").unwrap();
        job.transition(s(20), Job::Waiting, "b").unwrap();
        job.transition(s(15), Job::Busy, "the clock stepped back").unwrap();
        assert_eq!(job.time_in(Job::Waiting, s(16)), s(3));
        assert_eq!(job.time_in(Job::Busy, s(16)), s(7 + 1));
        assert_eq!(job.time_in(Job::Done, s(16)), s(0));
    }

    #[test]
    fn names_and_codes_come_from_the_table() {
        assert_eq!(Job::from_name("DONE"), Some(Job::Done));
        assert_eq!(Job::from_name("done"), None);
        assert_eq!(Job::Done.code(), 9);
        assert_eq!(format!("[{:>8}]", Job::Busy), "[    BUSY]");
    }
}
