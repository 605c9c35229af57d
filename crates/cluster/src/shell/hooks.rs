//! What a user is told: in order, awaited, on a task of its own.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tokio::runtime;
use tokio::sync::oneshot;

use super::handler::panic_text;
use super::hook_queue::{AssignmentCall, CallReceiver, CallSender, HookCall, hook_queue};
use super::metrics::Metrics;
use super::problem::Problem;
use crate::core::WorkerState;
use crate::core::types::FencingToken;

/// A hook that has not returned by then is given up.
pub(super) const HOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// What a hook may fail with.
pub type HookError = Box<dyn std::error::Error + Send + Sync>;

/// A partition that this worker owns now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedPartition {
    /// Its name.
    pub partition: Arc<str>,
    /// Without a log: a fencing token, above that of every earlier owner. Show it to whatever you write to, and let that
    /// refuse a lower one. A partition comes again with a higher one after this worker had stopped itself.
    pub fencing_token: Option<FencingToken>,
}

/// What a user is told. Calls come one after the other, in the order things happened. One that fails, panics or does not
/// return within 30 s is reported to [`Hooks::on_error`]; none ever holds up the worker itself.
///
/// ```
/// use std::sync::Arc;
/// use phalanx_cluster::{HookError, Hooks, OwnedPartition};
///
/// struct Print;
///
/// #[async_trait::async_trait]
/// impl Hooks for Print {
///     async fn on_assignment_changed(
///         &self,
///         added: Vec<OwnedPartition>,
///         removed: Vec<Arc<str>>,
///     ) -> Result<(), HookError> {
///         println!("+{} -{}", added.len(), removed.len());
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait Hooks: Send + Sync + 'static {
    /// Partitions were gained and lost. Without a log, stop what is removed before returning: only then does the next
    /// owner begin (after 30 s at the latest).
    async fn on_assignment_changed(
        &self,
        added: Vec<OwnedPartition>,
        removed: Vec<Arc<str>>,
    ) -> Result<(), HookError> {
        let _ = (added, removed);
        Ok(())
    }

    /// The worker went from one state to another.
    async fn on_state_changed(&self, from: WorkerState, to: WorkerState) -> Result<(), HookError> {
        let _ = (from, to);
        Ok(())
    }

    /// Returns whether a call may block its thread. Calls that never block run without a thread of their own.
    fn may_block(&self) -> bool {
        true
    }

    /// Something a person should know.
    async fn on_error(&self, problem: Problem) -> Result<(), HookError> {
        let _ = problem;
        Ok(())
    }
}

/// Nobody is told anything.
pub(super) struct NoHooks;

impl Hooks for NoHooks {}

/// The queue of hook calls. Clones are the same queue.
#[derive(Clone)]
pub(super) struct HookQueue {
    calls: Arc<CallSender>,
    metrics: Metrics,
}

impl HookQueue {
    /// Starts a queue. Its task ends when the last clone is dropped and all calls have returned.
    pub(super) fn start(hooks: Arc<dyn Hooks>, metrics: Metrics) -> Self {
        let (calls, waiting) = hook_queue();
        tokio::spawn(HookRunner { hooks, metrics: metrics.clone() }.serve(waiting));
        Self { calls: Arc::new(calls), metrics }
    }

    /// Waits until all calls that wait now have returned, for as long as one hook may take.
    pub(super) async fn flush(&self) {
        let (through, is_through) = oneshot::channel();
        self.calls.send(HookCall::Flush(through));
        let _ = tokio::time::timeout(HOOK_TIMEOUT, is_through).await;
    }

    /// Queues an assignment change, which is never dropped.
    pub(super) fn change_assignment(&self, change: AssignmentCall) {
        self.calls.send(HookCall::Assignment(change));
    }

    /// Queues a state change.
    pub(super) fn change_state(&self, from: WorkerState, to: WorkerState) {
        if !self.calls.send(HookCall::State { from, to }) {
            self.metrics.problem(&Problem::HookCallDropped { hook: "on_state_changed" });
        }
    }

    /// Counts a problem and queues it.
    pub(super) fn report(&self, problem: Problem) {
        self.metrics.problem(&problem);
        self.calls.send(HookCall::Problem(problem));
    }
}

struct HookRunner {
    hooks: Arc<dyn Hooks>,
    metrics: Metrics,
}

impl HookRunner {
    async fn serve(self, mut waiting: CallReceiver) {
        while let Some(call) = waiting.recv().await {
            let problem = match call {
                HookCall::Problem(problem) => {
                    self.tell(problem).await;
                    None
                }
                HookCall::Flush(through) => {
                    let _ = through.send(());
                    None
                }
                call => self.run(call).await,
            };
            if let Some(problem) = problem {
                self.metrics.problem(&problem);
                self.tell(problem).await;
            }
        }
    }

    /// A failure of the last resort has nowhere to go but the counter.
    async fn tell(&self, problem: Problem) {
        if let Some(worse) = self.run(HookCall::Problem(problem)).await {
            self.metrics.problem(&worse);
        }
    }

    /// Runs one call on a thread of its own, since it may block that. Says what went wrong.
    async fn run(&self, call: HookCall) -> Option<Problem> {
        if !self.hooks.may_block() {
            return self.run_inline(call).await;
        }
        let hooks = self.hooks.clone();
        let runtime = runtime::Handle::current();
        let (give_up, given_up) = oneshot::channel::<()>();
        let (name, done, running) = match call {
            HookCall::Assignment(AssignmentCall { added, removed, done }) => {
                let run = move || {
                    runtime.block_on(within_timeout(hooks.on_assignment_changed(added, removed), given_up))
                };
                ("on_assignment_changed", done, tokio::task::spawn_blocking(run))
            }
            HookCall::State { from, to } => {
                let run =
                    move || runtime.block_on(within_timeout(hooks.on_state_changed(from, to), given_up));
                ("on_state_changed", Vec::new(), tokio::task::spawn_blocking(run))
            }
            HookCall::Problem(problem) => {
                let run = move || runtime.block_on(within_timeout(hooks.on_error(problem), given_up));
                ("on_error", Vec::new(), tokio::task::spawn_blocking(run))
            }
            HookCall::Flush(_) => return None,
        };
        let mut running = running;
        let ended = tokio::time::timeout(HOOK_TIMEOUT, &mut running).await;
        for completion in done {
            completion.complete().await;
        }
        match ended {
            Ok(Ok(None | Some(Ok(())))) => None,
            Ok(Ok(Some(Err(error)))) => Some(Problem::HookFailed { hook: name, reason: error.to_string() }),
            Ok(Err(error)) => {
                let reason =
                    error.try_into_panic().map_or_else(|e| e.to_string(), |panic| panic_text(&*panic));
                Some(Problem::HookPanicked { hook: name, reason })
            }
            Err(_) => {
                drop(give_up);
                // One that waits is dropped now; one that blocks its thread keeps its place until it is through.
                let _ = running.await;
                Some(Problem::HookStuck { hook: name, after: HOOK_TIMEOUT })
            }
        }
    }
}

impl HookRunner {
    /// Runs one call of hooks that never block. Returns the problem if it fails.
    async fn run_inline(&self, call: HookCall) -> Option<Problem> {
        let hooks = &self.hooks;
        let (hook, done, running) = match call {
            HookCall::Assignment(AssignmentCall { added, removed, done }) => {
                ("on_assignment_changed", done, hooks.on_assignment_changed(added, removed))
            }
            HookCall::State { from, to } => {
                ("on_state_changed", Vec::new(), hooks.on_state_changed(from, to))
            }
            HookCall::Problem(problem) => ("on_error", Vec::new(), hooks.on_error(problem)),
            HookCall::Flush(_) => return None,
        };
        let ended = tokio::time::timeout(HOOK_TIMEOUT, AssertUnwindSafe(running).catch_unwind()).await;
        for completion in done {
            completion.complete().await;
        }
        match ended {
            Ok(Ok(Ok(()))) => None,
            Ok(Ok(Err(error))) => Some(Problem::HookFailed { hook, reason: error.to_string() }),
            Ok(Err(panic)) => Some(Problem::HookPanicked { hook, reason: panic_text(&*panic) }),
            Err(_) => Some(Problem::HookStuck { hook, after: HOOK_TIMEOUT }),
        }
    }
}

/// None if it was given up.
async fn within_timeout(
    hook: impl Future<Output = Result<(), HookError>>,
    given_up: oneshot::Receiver<()>,
) -> Option<Result<(), HookError>> {
    tokio::select! {
        result = hook => Some(result),
        _ = given_up => None,
    }
}
