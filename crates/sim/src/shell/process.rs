//! One process with the real shell, on a runtime and a paused clock of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use phalanx_cluster::backend::StoreConfig;
use phalanx_cluster::simulation::{SimulatedClock, with_clock};
use phalanx_cluster::{HookError, PartitionSource, Status, Worker, WorkerHandle};
use phalanx_cluster_core::Config;
use phalanx_cluster_core::types::{PartitionList, Time};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backend::SimBackend;
use crate::fleet::ProcessId;
use crate::handler::Handler;
use crate::shell::application::Application;
use crate::shell::port::{Call, Port};

/// The delay before a process tries again to start its worker.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The configuration of a process.
#[derive(Clone, Debug)]
pub(crate) struct ProcessConfig {
    pub(crate) config: Config,
    pub(crate) stores: StoreConfig,
    pub(crate) partitions: SharedPartitions,
    /// The time that the clock of its machine shows at the start.
    pub(crate) clock: Time,
}

/// The list of partitions that all processes read. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedPartitions(Arc<Mutex<Arc<PartitionList>>>);

impl SharedPartitions {
    /// Creates a source of this list.
    pub(crate) fn new(listed: Arc<PartitionList>) -> Self {
        Self(Arc::new(Mutex::new(listed)))
    }

    /// Replaces the list.
    pub(crate) fn set(&self, listed: Arc<PartitionList>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = listed;
    }
}

#[async_trait]
impl PartitionSource for SharedPartitions {
    async fn partitions(&self) -> Result<Vec<(String, u64)>, HookError> {
        let listed = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(listed.iter().map(|(name, weight)| (name.to_string(), weight.0)).collect())
    }
}

/// The state of the task that runs the worker.
#[derive(Default)]
struct Shared {
    handle: Mutex<Option<WorkerHandle>>,
    terminate: Notify,
    has_ended: Mutex<bool>,
}

/// A process with a worker. It runs only inside [`ShellProcess::run_until`].
pub(crate) struct ShellProcess {
    runtime: Option<Runtime>,
    port: Arc<Port>,
    shared: Arc<Shared>,
    clock: SimulatedClock,
    started_at: Time,
    origin: Instant,
    /// The virtual time up to which it has run.
    ran_until: Time,
    pub(crate) is_stopped: bool,
    /// The model of its handler.
    pub(crate) handler: Handler,
    /// Whether it has reported that it lost its id, since this was last asked.
    pub(crate) has_lost_id: bool,
    /// The number of its next calls after which it is killed.
    pub(crate) kill_after_calls: Option<u32>,
    /// The virtual time at which its machine was suspended.
    frozen: Option<Time>,
    /// Whether its machine was ever suspended: its clock has stood still, so it cannot know when its fence closes.
    pub(crate) lost_time: bool,
}

impl ShellProcess {
    /// Starts a process now.
    pub(crate) fn start(process: ProcessId, now: Time, config: ProcessConfig) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let (port, shared) = (Port::new(), Arc::new(Shared::default()));
        let origin = runtime.block_on(async { Instant::now() });
        port.start(now, origin);
        let clock = SimulatedClock::Running { origin, shown: config.clock };
        runtime.spawn(run_worker(process, config, port.clone(), shared.clone()));
        Ok(Self {
            runtime: Some(runtime),
            port,
            shared,
            clock,
            started_at: now,
            origin,
            ran_until: now,
            is_stopped: false,
            handler: Handler::default(),
            has_lost_id: false,
            kill_after_calls: None,
            frozen: None,
            lost_time: false,
        })
    }

    /// Suspends its machine: process and clocks stand still.
    pub(crate) fn freeze(&mut self, now: Time) {
        self.is_stopped = true;
        self.frozen = Some(now);
    }

    /// Continues after a stop. The clocks of a suspended machine continue with the time that they showed.
    pub(crate) fn resume(&mut self, now: Time) {
        self.is_stopped = false;
        if let Some(since) = self.frozen.take() {
            self.started_at += now - since;
            self.ran_until += now - since;
            self.port.start(self.started_at, self.origin);
            self.lost_time = true;
        }
    }

    /// Counts one more call. Returns whether the process lives to make it.
    pub(crate) fn may_call(&mut self) -> bool {
        match &mut self.kill_after_calls {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        true
    }

    /// Lets its worker read the list of partitions again.
    pub(crate) fn refresh_partitions(&self) {
        if let (Some(runtime), Some(handle)) = (&self.runtime, self.handle()) {
            runtime.spawn(async move { handle.refresh_partitions().await });
        }
    }

    /// Returns whether it has neither been killed nor ended.
    pub(crate) fn is_alive(&self) -> bool {
        self.runtime.is_some() && !*self.shared.has_ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs it up to a time. Its clock first jumps over the time in which it was stopped.
    pub(crate) fn run_until(&mut self, now: Time, end: Time) {
        let Some(runtime) = &self.runtime else { return };
        let (gap, until) = (now.saturating_sub(self.ran_until), self.origin + (end - self.started_at));
        with_clock(self.clock, || {
            runtime.block_on(async {
                if !gap.is_zero() {
                    tokio::time::advance(gap).await;
                }
                tokio::time::sleep_until(until).await;
            });
        });
        self.ran_until = end;
    }

    /// Ends it without a trace, as SIGKILL does.
    pub(crate) fn kill(&mut self) {
        let shown = self.in_its_time(|shown| shown);
        with_clock(SimulatedClock::Stopped(shown), || drop(self.runtime.take()));
        self.port.take();
        self.handler.drop_all();
    }

    /// Tells it to leave, as SIGTERM does.
    pub(crate) fn terminate(&self) {
        self.shared.terminate.notify_one();
    }

    /// Returns the status of its worker, if it has one.
    pub(crate) fn status(&self) -> Option<Status> {
        self.handle().map(|handle| handle.status())
    }

    /// Returns whether its worker may work, by its own clock.
    pub(crate) fn is_unfenced(&self) -> bool {
        self.handle().is_some_and(|handle| self.in_its_time(|_| handle.may_write()))
    }

    /// Removes and returns its calls so far.
    pub(crate) fn take_calls(&self) -> Vec<(Time, Call)> {
        self.port.take()
    }

    fn handle(&self) -> Option<WorkerHandle> {
        self.shared.handle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs something with the clocks of the process.
    fn in_its_time<T>(&self, run: impl FnOnce(Time) -> T) -> T {
        let _entered = self.runtime.as_ref().map(Runtime::enter);
        let elapsed = Instant::now().saturating_duration_since(self.origin);
        let shown = match self.clock {
            SimulatedClock::Running { shown, .. } => shown + elapsed,
            SimulatedClock::Stopped(shown) => shown,
        };
        with_clock(self.clock, || run(shown))
    }
}

/// Starts a worker, and lets it leave when the process is told to.
async fn run_worker(process: ProcessId, config: ProcessConfig, port: Arc<Port>, shared: Arc<Shared>) {
    let application = Application::new(port.clone());
    let worker = loop {
        let backend = Arc::new(SimBackend::new(port.clone()));
        let started = Worker::builder(config.stores.clone(), backend)
            .pod(&format!("pod-{}", process.0), &format!("uid-{}", process.0))
            .config(config.config.clone())
            .partitions(config.partitions.clone())
            .handler(application.clone())
            .hooks(application.clone())
            .start()
            .await;
        match started {
            Ok(worker) => {
                port.post(Call::WorkerStarted);
                break worker;
            }
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    };
    *shared.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker.handle());
    shared.terminate.notified().await;
    worker.shutdown().await;
    *shared.has_ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
}
