//! Whether what clients saw of one election could have come from a single lease that one hand keeps.
//!
//! A search over the orders in which the operations may have happened (Wing and Gong): each between its call and its answer,
//! one without an answer at any time after its call or never. A call that asks several nodes may be granted a lease whose
//! answer it never gets, and another one after the first has expired. The search knows nothing of the agent but what a lease is: it has one
//! holder, its epochs grow, and it is over by itself only when its term has passed since the call that began it.

use std::collections::HashSet;

/// Microseconds on one clock.
pub(crate) type Time = u64;

/// A candidate, by its number.
pub(crate) type Who = u32;

/// What was asked, and what was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// The lease was granted, in this epoch.
    Granted(Who, u64),
    /// Somebody else had it.
    Taken(Who, u64),
    /// The lease may have been granted, at any time from the call to the answer.
    MaybeGranted(Who),
    /// The lease of this epoch was kept.
    Kept(Who, u64),
    /// It could not be kept: it was over.
    NotKept(Who, u64),
    /// It was given back.
    Released(Who, u64),
    /// Nobody knows whether it was given back.
    MaybeReleased(Who, u64),
    /// This one held it, in this epoch.
    SawLeader(Who, u64),
    /// Nobody held it; the last epoch was this.
    SawNobody(u64),
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) called: Time,
    /// None if no answer came.
    pub(crate) answered: Option<Time>,
    pub(crate) act: Act,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct State {
    epoch: u64,
    holder: Option<Who>,
    /// The call that began the term.
    term_began: Time,
}

/// Looks for an order that explains the history; the error is the operation that no order got past.
pub(crate) fn check(term: Time, history: &[Op]) -> Result<(), Op> {
    let is_optional = |op: &&Op| op.answered.is_none() || matches!(op.act, Act::MaybeGranted(_));
    let mut known: Vec<Op> = history.iter().filter(|op| !is_optional(op)).copied().collect();
    known.sort_by_key(|op| op.called);
    let granted: HashSet<(Who, u64)> = known
        .iter()
        .filter_map(|op| match op.act {
            Act::Granted(who, epoch) => Some((who, epoch)),
            _ => None,
        })
        .collect();
    // Somebody who was seen to hold an epoch that no answer granted got it by a call whose answer is missing.
    let mut unexplained: Vec<(Who, u64)> = known
        .iter()
        .filter_map(|op| match op.act {
            Act::SawLeader(who, epoch) | Act::Taken(who, epoch) => Some((who, epoch)),
            Act::Kept(who, epoch) | Act::Released(who, epoch) => Some((who, epoch)),
            _ => None,
        })
        .filter(|seen| !granted.contains(seen))
        .collect();
    unexplained.sort_unstable_by_key(|(_, epoch)| *epoch);
    unexplained.dedup();
    let optional: Vec<Op> = history.iter().filter(is_optional).copied().collect();
    Search { term, known: &known, optional: &optional, unexplained: &unexplained }.run()
}

struct Search<'a> {
    term: Time,
    known: &'a [Op],
    /// Operations that may have had no effect.
    optional: &'a [Op],
    unexplained: &'a [(Who, u64)],
}

/// How far an order has come.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Step {
    /// All before this are placed.
    first: usize,
    /// And these after it.
    ahead: Vec<usize>,
    /// Of the optional ones.
    used: Vec<usize>,
    state: State,
}

impl Search<'_> {
    fn run(&self) -> Result<(), Op> {
        let start = Step { first: 0, ahead: Vec::new(), used: Vec::new(), state: State::default() };
        let (mut stack, mut seen) = (vec![start], HashSet::new());
        let mut furthest = 0;
        while let Some(step) = stack.pop() {
            if step.first == self.known.len() {
                return Ok(());
            }
            furthest = furthest.max(step.first);
            if !seen.insert(step.clone()) {
                continue;
            }
            // The last pushed is tried first: what was answered before what was not.
            self.place_optional(&step, &mut stack);
            self.place_known(&step, &mut stack);
        }
        Err(self.known[furthest])
    }

    /// The time by which something must have happened: the first answer among all that is not placed.
    fn limit(&self, step: &Step) -> Time {
        let waiting = (step.first..self.known.len()).filter(|index| !step.ahead.contains(index));
        // Later calls cannot have earlier answers than their own call.
        let mut limit = Time::MAX;
        for index in waiting {
            if self.known[index].called > limit {
                break;
            }
            limit = limit.min(self.known[index].answered.unwrap_or(Time::MAX));
        }
        limit
    }

    fn place_known(&self, step: &Step, stack: &mut Vec<Step>) {
        let limit = self.limit(step);
        for index in (step.first..self.known.len()).rev() {
            let op = &self.known[index];
            if op.called > limit || step.ahead.contains(&index) {
                continue;
            }
            for state in self.after(&step.state, op, limit) {
                let mut next = Step { state, ..step.clone() };
                next.ahead.push(index);
                next.ahead.sort_unstable();
                while next.ahead.first() == Some(&next.first) {
                    next.ahead.remove(0);
                    next.first += 1;
                }
                stack.push(next);
            }
        }
    }

    fn place_optional(&self, step: &Step, stack: &mut Vec<Step>) {
        let limit = self.limit(step);
        // Everything that is placed has happened after this call.
        let last = step.ahead.last().copied().or(step.first.checked_sub(1));
        let newest_call = last.map_or(0, |index| self.known[index].called);
        for (index, op) in self.optional.iter().enumerate() {
            let is_over = op.answered.is_some_and(|answered| answered < newest_call);
            if op.called > limit || is_over || step.used.contains(&index) {
                continue;
            }
            let outcomes: Vec<Act> = match op.act {
                Act::MaybeGranted(who) => {
                    let epochs = self.unexplained.iter().filter(|(seen, _)| *seen == who);
                    epochs.map(|(_, epoch)| Act::Granted(who, *epoch)).collect()
                }
                // It matters only while it ends something.
                Act::MaybeReleased(who, epoch)
                    if step.state.holder == Some(who) && step.state.epoch == epoch =>
                {
                    vec![Act::Released(who, epoch)]
                }
                _ => Vec::new(),
            };
            for act in outcomes {
                for state in self.after(&step.state, &Op { act, ..*op }, limit) {
                    let mut next = Step { state, ..step.clone() };
                    next.used.push(index);
                    next.used.sort_unstable();
                    stack.push(next);
                }
            }
        }
    }

    /// The states that an operation may leave, if it happens by `limit` at the latest.
    fn after(&self, state: &State, op: &Op, limit: Time) -> Vec<State> {
        let mut before = vec![*state];
        if state.holder.is_some() && limit >= state.term_began + self.term {
            before.push(State { holder: None, ..*state });
        }
        before.iter().filter_map(|state| apply(state, op)).collect()
    }
}

fn apply(state: &State, op: &Op) -> Option<State> {
    let holds = |who: Who, epoch: u64| state.holder == Some(who) && state.epoch == epoch;
    match op.act {
        Act::Granted(who, epoch) => {
            let is_free = state.holder.is_none_or(|holder| holder == who);
            (is_free && epoch > state.epoch).then_some(State {
                epoch,
                holder: Some(who),
                term_began: op.called,
            })
        }
        Act::Taken(who, epoch) | Act::SawLeader(who, epoch) => holds(who, epoch).then_some(*state),
        Act::Kept(who, epoch) => {
            holds(who, epoch).then_some(State { term_began: op.called.max(state.term_began), ..*state })
        }
        Act::NotKept(who, epoch) => (!holds(who, epoch)).then_some(*state),
        // A call that was repeated says "released" also of a lease that had ended by then.
        Act::Released(who, epoch) => match holds(who, epoch) {
            true => Some(State { holder: None, ..*state }),
            false => (epoch <= state.epoch).then_some(*state),
        },
        Act::SawNobody(epoch) => (state.holder.is_none() && epoch >= state.epoch).then_some(State {
            epoch,
            holder: None,
            ..*state
        }),
        Act::MaybeGranted(_) | Act::MaybeReleased(..) => None,
    }
}
