//! The queue between a worker and the hooks of its user.
//!
//! The queue is bounded. While it is full, problems and state changes are counted and dropped, and an assignment change is
//! merged into the one that waits, so that no partition is forgotten.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc, oneshot};

use super::hooks::OwnedPartition;
use super::problem::Problem;
use super::watches::Signal;
use crate::core::{Event, WorkerState};

/// Number of calls that may wait for a busy hook.
const MAX_QUEUED_CALLS: usize = 1000;

/// An event that the core gets when a hook has returned.
pub(super) struct Completion {
    pub(super) signals: mpsc::Sender<Signal>,
    pub(super) event: Event,
}

impl Completion {
    /// Delivers the event. A worker that has ended does not need it any more.
    pub(super) async fn complete(self) {
        let _ = self.signals.send(Signal::Event(self.event)).await;
    }
}

/// Partitions that this worker gained and lost.
#[derive(Default)]
pub(super) struct AssignmentCall {
    pub(super) added: Vec<OwnedPartition>,
    pub(super) removed: Vec<Arc<str>>,
    pub(super) done: Vec<Completion>,
}

impl AssignmentCall {
    /// Adds a later change: what it removes is no longer added, and the other way round.
    fn merge(&mut self, later: Self) {
        self.added.retain(|owned| !later.removed.contains(&owned.partition));
        self.removed.retain(|name| !later.added.iter().any(|owned| owned.partition == *name));
        self.added.extend(later.added);
        self.removed.extend(later.removed);
        self.done.extend(later.done);
    }
}

/// A call that waits for its turn.
pub(super) enum HookCall {
    Assignment(AssignmentCall),
    State {
        from: WorkerState,
        to: WorkerState,
    },
    Problem(Problem),
    /// Answers when all calls before it have returned.
    Flush(oneshot::Sender<()>),
}

#[derive(Default)]
struct Calls {
    waiting: VecDeque<HookCall>,
    is_closed: bool,
}

/// The waiting calls, shared by the two ends of the queue.
#[derive(Default)]
struct Shared {
    calls: Mutex<Calls>,
    changed: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of the queue that takes calls. The queue closes when it is dropped.
pub(super) struct CallSender(Arc<Shared>);

/// The end of the queue that returns calls in order.
pub(super) struct CallReceiver(Arc<Shared>);

/// Returns the two ends of a new queue.
pub(super) fn hook_queue() -> (CallSender, CallReceiver) {
    let shared = Arc::new(Shared::default());
    (CallSender(shared.clone()), CallReceiver(shared))
}

impl CallSender {
    /// Queues a call. Returns false if the queue is full and the call was dropped.
    pub(super) fn send(&self, call: HookCall) -> bool {
        let mut calls = self.0.lock();
        let is_full = calls.waiting.len() >= MAX_QUEUED_CALLS;
        match call {
            HookCall::State { .. } | HookCall::Problem(_) if is_full => return false,
            HookCall::Assignment(later) if is_full => {
                let waiting = calls.waiting.iter_mut().rev().find_map(|call| match call {
                    HookCall::Assignment(waiting) => Some(waiting),
                    _ => None,
                });
                match waiting {
                    Some(waiting) => waiting.merge(later),
                    None => calls.waiting.push_back(HookCall::Assignment(later)),
                }
            }
            call => calls.waiting.push_back(call),
        }
        drop(calls);
        self.0.changed.notify_one();
        true
    }
}

impl Drop for CallSender {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.changed.notify_one();
    }
}

impl CallReceiver {
    /// Waits for the next call; none if the queue is closed and empty.
    pub(super) async fn recv(&mut self) -> Option<HookCall> {
        loop {
            {
                let mut calls = self.0.lock();
                if let Some(call) = calls.waiting.pop_front() {
                    return Some(call);
                }
                if calls.is_closed {
                    return None;
                }
            }
            self.0.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> HookCall {
        HookCall::State { from: WorkerState::Election, to: WorkerState::Follower }
    }

    fn change(added: &[&str], removed: &[&str]) -> HookCall {
        let owned = |name: &&str| OwnedPartition { partition: (*name).into(), fencing_token: None };
        let added = added.iter().map(owned).collect();
        let removed = removed.iter().map(|&name| name.into()).collect();
        HookCall::Assignment(AssignmentCall { added, removed, done: Vec::new() })
    }

    #[tokio::test]
    async fn calls_are_returned_in_order_and_then_the_queue_ends() {
        let (sender, mut receiver) = hook_queue();
        assert!(sender.send(state()));
        assert!(sender.send(change(&["a"], &[])));
        drop(sender);
        assert!(matches!(receiver.recv().await, Some(HookCall::State { .. })));
        assert!(matches!(receiver.recv().await, Some(HookCall::Assignment(_))));
        assert!(receiver.recv().await.is_none());
    }

    #[tokio::test]
    async fn a_full_queue_drops_states_and_problems_and_merges_assignment_changes() {
        let (sender, mut receiver) = hook_queue();
        assert!(sender.send(change(&["a", "b"], &["c"])));
        (1..MAX_QUEUED_CALLS).for_each(|_| assert!(sender.send(state())));
        assert!(!sender.send(state()));
        assert!(!sender.send(HookCall::Problem(Problem::IdleStandby)));
        assert!(sender.send(change(&["c", "d"], &["b"])));
        let Some(HookCall::Assignment(merged)) = receiver.recv().await else {
            panic!("an assignment change")
        };
        let added: Vec<&str> = merged.added.iter().map(|owned| &*owned.partition).collect();
        assert_eq!((added, merged.removed), (vec!["a", "c", "d"], vec!["b".into()]));
    }
}
