//! A transport without faults.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use phalanx_cluster::backend::{Error, WatchEvent};
use phalanx_cluster_core::types::{Revision, Time};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::backend::client::{SimBackend, Transport, WakeUps, WatchEvents};
use crate::backend::request::{Request, Response};
use crate::backend::server::{Change, Server};
use crate::network::LATENCY;

/// A simulated server that answers after the latency of the network, on tokio's clock.
#[derive(Clone)]
pub struct Direct {
    state: Arc<Mutex<State>>,
    start: Instant,
}

#[derive(Default)]
struct State {
    server: Server,
    watches: Vec<(Arc<str>, mpsc::UnboundedSender<WatchEvent>)>,
    subscriptions: Vec<(Arc<str>, String, mpsc::UnboundedSender<()>)>,
}

impl State {
    /// Tells watches and subscriptions what has changed.
    fn notify(&mut self) {
        for change in self.server.take_changes() {
            match change {
                Change::Bucket(name, event) => self
                    .watches
                    .retain(|(bucket, events)| *bucket != name || events.send(event.clone()).is_ok()),
                Change::Log(name, subject) => self.subscriptions.retain(|(log, to, wake_ups)| {
                    (log, to) != (&name, &subject) || wake_ups.send(()).is_ok()
                }),
            }
        }
    }
}

impl Default for Direct {
    fn default() -> Self {
        Self { state: Arc::default(), start: Instant::now() }
    }
}

impl Direct {
    /// Returns a connection to the server.
    pub fn backend(&self) -> SimBackend {
        SimBackend::new(Arc::new(self.clone()))
    }

    /// Removes a log.
    pub fn remove_log(&self, name: &str) {
        self.lock().server.remove_log(name);
    }

    fn now(&self) -> Time {
        Time::from_origin(self.start.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Transport for Direct {
    async fn call(&self, request: Request) -> Result<Response, Error> {
        tokio::time::sleep(LATENCY).await;
        let mut state = self.lock();
        let response = state.server.execute(self.now(), request, u64::MAX);
        state.notify();
        response
    }

    async fn watch(&self, bucket: Arc<str>, after: Revision) -> Result<WatchEvents, Error> {
        let (events, arriving) = mpsc::unbounded_channel();
        let mut state = self.lock();
        for event in state.server.watch_after(self.now(), &bucket, after)? {
            // The receiver is still here.
            let _ = events.send(event);
        }
        state.watches.push((bucket, events));
        Ok(arriving)
    }

    async fn subscribe(&self, log: Arc<str>, subject: String) -> Result<WakeUps, Error> {
        let (wake_ups, arriving) = mpsc::unbounded_channel();
        self.lock().subscriptions.push((log, subject, wake_ups));
        Ok(arriving)
    }
}
