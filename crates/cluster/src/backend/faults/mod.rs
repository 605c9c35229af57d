//! Trouble between a backend and its user, exactly where a test wants it.
//!
//! [`wrap`] gives a backend that behaves like the one it wraps until its [`Faults`] say otherwise. Nothing is random and
//! nothing depends on time: a planned fault strikes the next operation it fits, once.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), phalanx_cluster::backend::Error> {
//! use std::sync::Arc;
//! use phalanx_cluster::backend::faults::{self, Fault, Op};
//! use phalanx_cluster::backend::{Backend, BucketConfig, Embedded, Error};
//!
//! let (backend, faults) = faults::wrap(Arc::new(Embedded::in_memory()?));
//! let bucket = backend.bucket(&BucketConfig::new("leases")).await?;
//! let revision = bucket.create("leader", "anna".into()).await?;
//!
//! faults.inject(Op::Write, "leader", Fault::Late);
//! let renewal = bucket.update("leader", "anna".into(), revision).await;
//! assert!(matches!(renewal, Err(Error::Unknown { .. })));
//! bucket.update("leader", "berta".into(), revision).await?;
//! // The renewal arrives after all, and the compare-and-swap keeps it out.
//! assert!(matches!(faults.apply_late_writes().await[..], [Err(Error::Conflict { .. })]));
//! # Ok(()) }
//! ```

mod kv;
mod log;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;

use super::{Backend, BucketConfig, Error, Kv, Log, LogConfig, StoreKind};

/// Which operation a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read of a key, or of messages.
    Read,
    /// A write of a key, or an append.
    Write,
    /// A deletion.
    Delete,
    /// An event of a watch, by its key.
    Event,
    /// A wake-up, by its subject.
    WakeUp,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is lost: it does not happen, and nobody says so. An event or a ring is lost.
    Drop,
    /// It waits for [`Faults::release`].
    Delay,
    /// It happens twice; the first answer counts. An event or a ring comes twice.
    Duplicate,
    /// It happens, and the answer is lost.
    LoseAnswer,
    /// The time is out before it happens: it happens at [`Faults::apply_late_writes`].
    Late,
    /// A replica that is behind answers: the value before the last write, or messages without the last one. Reads that
    /// go to the one place that knows are never stale, so this strikes [`Kv::get`] and [`Log::read`] as they would be
    /// on a backend that forgot to ask there.
    Stale,
}

/// A backend with trouble, and the handle that makes it.
pub fn wrap(inner: Arc<dyn Backend>) -> (Arc<dyn Backend>, Faults) {
    let faults = Faults::new();
    (Arc::new(Faulty { inner, faults: faults.clone() }), faults)
}

struct Faulty {
    inner: Arc<dyn Backend>,
    faults: Faults,
}

#[async_trait]
impl Backend for Faulty {
    async fn bucket(&self, config: &BucketConfig) -> Result<Arc<dyn Kv>, Error> {
        let inner = self.inner.bucket(config).await?;
        // Whoever opens a bucket again meets the same replica.
        let former = self.faults.lock().former.entry(config.name.clone()).or_default().clone();
        Ok(Arc::new(kv::FaultyKv::new(inner, self.faults.clone(), former)))
    }

    async fn log(&self, config: &LogConfig) -> Result<Arc<dyn Log>, Error> {
        let inner = self.inner.log(config).await?;
        Ok(Arc::new(log::FaultyLog::new(inner, self.faults.clone())))
    }

    async fn description(&self, kind: StoreKind, name: &str) -> Result<String, Error> {
        self.inner.description(kind, name).await
    }

    async fn describe(&self, kind: StoreKind, name: &str, description: &str) -> Result<(), Error> {
        self.inner.describe(kind, name, description).await
    }
}

type Late = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Makes trouble. Clones are the same handle.
#[derive(Clone)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    /// Whether the connection is cut.
    cut: Arc<watch::Sender<bool>>,
    /// How many operations wait to be released.
    held: Arc<watch::Sender<usize>>,
    /// How often was released.
    released: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct State {
    plan: VecDeque<(Op, String, Fault)>,
    struck: Vec<(Op, String, Fault)>,
    late: Vec<Late>,
    /// By bucket.
    former: HashMap<String, Arc<Mutex<kv::PreviousValues>>>,
}

impl Faults {
    fn new() -> Self {
        Self {
            state: Arc::default(),
            cut: Arc::new(watch::Sender::new(false)),
            held: Arc::new(watch::Sender::new(0)),
            released: Arc::new(watch::Sender::new(0)),
        }
    }

    /// The next such operation on that key or subject meets this fault. Several are met in the order they were planned.
    pub fn inject(&self, op: Op, name: &str, fault: Fault) {
        self.lock().plan.push_back((op, name.to_owned(), fault));
    }

    /// Cuts the connection: every operation fails without happening, watches and doorbells are silent.
    pub fn disconnect(&self) {
        self.cut.send_replace(true);
    }

    /// Undoes the cut: watches resume.
    pub fn reconnect(&self) {
        self.cut.send_replace(false);
    }

    /// Lets everything go on that is delayed.
    pub fn release(&self) {
        self.released.send_modify(|count| *count += 1);
    }

    /// Waits until so many operations are delayed.
    pub async fn wait_for_delayed(&self, count: usize) {
        // The sender lives as long as this handle.
        let _ = self.held.subscribe().wait_for(|held| *held >= count).await;
    }

    /// Lets every late write happen, in the order they were sent, and says how each went.
    pub async fn apply_late_writes(&self) -> Vec<Result<(), Error>> {
        let late = std::mem::take(&mut self.lock().late);
        let mut results = Vec::with_capacity(late.len());
        for write in late {
            results.push(write.await);
        }
        results
    }

    /// Every fault that has struck: a test that planned one can see that it did.
    pub fn occurred(&self) -> Vec<(Op, String, Fault)> {
        self.lock().struck.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    /// The fault that strikes here, if one is planned.
    fn next_fault(&self, op: Op, name: &str) -> Option<Fault> {
        let mut state = self.lock();
        let position = state.plan.iter().position(|(for_op, on, _)| *for_op == op && on == name)?;
        let struck = state.plan.remove(position)?;
        state.struck.push(struck.clone());
        Some(struck.2)
    }

    /// What every request goes through: an error if it does not arrive, otherwise what else is wrong with it.
    async fn enter(&self, op: Op, name: &str) -> Result<Option<Fault>, Error> {
        let refuse_if_cut = || match self.is_cut() {
            true => Err(Error::failed(format!("{op:?} of {name}"), "the connection is cut")),
            false => Ok(()),
        };
        refuse_if_cut()?;
        let fault = self.next_fault(op, name);
        match fault {
            Some(Fault::Drop) => return Err(lost(op, name)),
            Some(Fault::Delay) => {
                self.hold().await;
                refuse_if_cut()?;
            }
            _ => {}
        }
        Ok(fault)
    }

    /// Waits for the next release.
    async fn hold(&self) {
        let mut released = self.released.subscribe();
        self.held.send_modify(|held| *held += 1);
        // The sender lives as long as this handle.
        let _ = released.changed().await;
        self.held.send_modify(|held| *held -= 1);
    }

    /// Runs something that changes data, with whatever is wrong.
    async fn change<T, F, M>(&self, op: Op, name: &str, make: M) -> Result<T, Error>
    where
        T: Send + 'static,
        M: Fn() -> F + Send,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        match self.enter(op, name).await? {
            Some(Fault::Duplicate) => {
                let first = make().await;
                let _ = make().await;
                first
            }
            Some(Fault::LoseAnswer) => {
                let _ = make().await;
                Err(lost(op, name))
            }
            Some(Fault::Late) => {
                let late = make();
                self.lock().late.push(Box::pin(async move { late.await.map(drop) }));
                Err(lost(op, name))
            }
            Some(Fault::Drop | Fault::Delay | Fault::Stale) | None => make().await,
        }
    }
}

fn lost(op: Op, name: &str) -> Error {
    Error::unknown(format!("{op:?} of {name}"), "no answer")
}
