//! The agent as a backend of the coordination library: it grants the lease of one election, for a term.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use phalanx_cluster::backend::{Election, Error, Lease, LeaseEvent, LeaseWatch};
use phalanx_cluster::core::LeaseExpiry;
use phalanx_cluster::core::types::Revision;
use tonic::Streaming;

use crate::client::{self, Acquired, Candidacy, Client, Held};
use crate::proto::Leadership;

/// How soon a watch is tried again that could not be had.
const PAUSE: Duration = Duration::from_millis(200);

/// One election at an agent.
#[derive(Clone)]
pub struct AgentElection {
    client: Client,
    election: String,
    term: Duration,
    /// What this process holds: the tokens to the leases it was granted.
    held: Arc<Mutex<Option<Held>>>,
}

impl AgentElection {
    /// That election, where a lease lasts for `term` without a renewal.
    pub fn new(client: Client, election: impl Into<String>, term: Duration) -> Self {
        Self { client, election: election.into(), term, held: Arc::default() }
    }

    fn what(&self, doing: &str) -> String {
        format!("{doing} the leadership of {}", self.election)
    }

    /// The token to a lease; a lease of somebody else is one that was taken.
    fn held(&self, doing: &str, lease: &Lease) -> Result<Held, Error> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_it = |held: &Held| held.epoch == lease.epoch && held.leader == lease.holder;
        held.filter(is_it).ok_or_else(|| Error::conflict(self.what(doing), None))
    }

    fn hold(&self, held: Option<Held>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }
}

#[async_trait]
impl Election for AgentElection {
    fn lease_expiry(&self) -> LeaseExpiry {
        LeaseExpiry::AfterTerm(self.term)
    }

    async fn current(&self) -> Result<Option<Lease>, Error> {
        let leadership = self.client.leader(&self.election).await;
        leadership.map(lease).map_err(|error| translated(self.what("reading"), error))
    }

    async fn take(&self, holder: &str, _from: Option<&Lease>, epoch_min: u64) -> Result<Lease, Error> {
        let candidacy = Candidacy { epoch_min, ..Candidacy::new(&self.election, holder, self.term) };
        match self.client.acquire(&candidacy).await {
            Ok(Acquired::Leads(held)) => {
                let lease = lease_of(&held);
                self.hold(Some(held));
                Ok(lease)
            }
            Ok(Acquired::Other(other)) => {
                Err(Error::conflict(self.what("taking"), Some(Revision(other.revision))))
            }
            Err(error) => Err(translated(self.what("taking"), error)),
        }
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease, Error> {
        let held = self.held("renewing", lease)?;
        let renewed = self.client.renew(&held).await;
        let renewed = renewed.map_err(|error| translated(self.what("renewing"), error))?;
        let lease = lease_of(&renewed);
        self.hold(Some(renewed));
        Ok(lease)
    }

    async fn resign(&self, lease: &Lease) -> Result<(), Error> {
        let held = self.held("giving back", lease)?;
        self.client.release(&held).await.map_err(|error| translated(self.what("giving back"), error))?;
        self.hold(None);
        Ok(())
    }

    async fn watch(&self) -> Result<LeaseWatch, Error> {
        let watch = self.client.watch(&self.election).await;
        let watch = watch.map_err(|error| translated(self.what("watching"), error))?;
        let watching = Watching {
            client: self.client.clone(),
            election: self.election.clone(),
            stream: Some(watch),
            is_first: true,
            revision: 0,
            ready: Vec::new(),
        };
        Ok(stream::unfold(watching, |mut watching| async move {
            let event = watching.next().await;
            Some((Ok(event), watching))
        })
        .boxed())
    }
}

/// A watch that goes on at another node when its node is gone.
struct Watching {
    client: Client,
    election: String,
    stream: Option<Streaming<Leadership>>,
    /// What comes next is how things are, not news.
    is_first: bool,
    revision: u64,
    /// Told next, last first.
    ready: Vec<LeaseEvent>,
}

impl Watching {
    async fn next(&mut self) -> LeaseEvent {
        loop {
            if let Some(event) = self.ready.pop() {
                return event;
            }
            let Some(stream) = &mut self.stream else {
                match self.client.watch(&self.election).await {
                    Ok(stream) => {
                        (self.stream, self.is_first) = (Some(stream), true);
                        self.ready.push(LeaseEvent::Resumed { replaced: false });
                    }
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
                continue;
            };
            match stream.message().await {
                Ok(Some(leadership)) => self.take_in(leadership),
                // The node is stopping, or has lost sight of the others.
                Ok(None) | Err(_) => self.stream = None,
            }
        }
    }

    fn take_in(&mut self, leadership: Leadership) {
        let is_first = std::mem::take(&mut self.is_first);
        // Another node may be behind the one before.
        let is_old = leadership.revision < self.revision;
        let was_told = leadership.revision == self.revision && self.revision > 0;
        self.revision = self.revision.max(leadership.revision);
        if is_first {
            self.ready.push(LeaseEvent::Current);
        }
        if is_old {
            return;
        }
        match lease(leadership) {
            Some(lease) => self.ready.push(LeaseEvent::Held(lease)),
            // Where there was nobody before there is nothing to tell.
            None if is_first && (was_told || self.revision == 0) => {}
            None => self.ready.push(LeaseEvent::Vacant),
        }
    }
}

fn lease(leadership: Leadership) -> Option<Lease> {
    let Leadership { leader, epoch, renewals, revision, .. } = leadership;
    (!leader.is_empty()).then(|| Lease::new(leader, epoch, renewals, Revision(revision)))
}

fn lease_of(held: &Held) -> Lease {
    Lease::new(held.leader.clone(), held.epoch, held.renewals, Revision(held.revision))
}

fn translated(what: String, error: client::Error) -> Error {
    match error {
        client::Error::Ended(_) => Error::conflict(what, None),
        client::Error::Refused(reason) => Error::invalid(what, reason),
        client::Error::NotDone(reason) => Error::failed(what, reason),
        client::Error::Unknown(reason) => Error::unknown(what, reason),
    }
}
