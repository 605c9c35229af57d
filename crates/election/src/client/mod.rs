//! For whoever wants to lead: a client that knows several nodes and goes on to the next one when one does not answer.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use phalanx_election::client::{Acquired, Candidacy, Client};
//! use phalanx_election::security::Security;
//!
//! let addresses = ["10.0.0.1:9090".to_owned(), "10.0.0.2:9090".to_owned(), "10.0.0.3:9090".to_owned()];
//! let client = Client::new(&addresses, &Security::default())?;
//! let candidacy = Candidacy::new("fab-1", "worker-5", Duration::from_secs(10));
//! if let Acquired::Leads(mut held) = client.acquire(&candidacy).await? {
//!     while !held.is_over() {
//!         // lead, and before half of the term is over:
//!         held = client.renew(&held).await?;
//!     }
//! }
//! # Ok(()) }
//! ```

mod clock;
mod outcome;

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::proto::admin_client::AdminClient;
use crate::proto::election_client::ElectionClient;
use crate::proto::{
    AcquireLeadershipRequest, AcquireLeadershipResponse, EndLeadershipRequest, GetLeaderRequest,
    GetStatusRequest, Leadership, ListElectionsRequest, Member, ReleaseLeadershipRequest,
    RemoveMemberRequest, RenewLeadershipRequest, Status as NodeStatus, WatchLeaderRequest,
};
use crate::security::{self, Security, Stamp};
pub use outcome::Error;

/// How long taking a leadership may take.
pub const ACQUIRE: Duration = Duration::from_secs(5);
/// How long keeping one may take.
pub const RENEW: Duration = Duration::from_secs(2);
/// How long the others may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a change of the members may take.
const CHANGE: Duration = Duration::from_secs(30);
/// How soon a node is asked again when all of them were.
const PAUSE: Duration = Duration::from_millis(50);

/// A client of the agent. Clones share their connections.
#[derive(Clone)]
pub struct Client(std::sync::Arc<Inside>);

type Service = InterceptedService<Channel, Stamp>;

struct Inside {
    nodes: Vec<(String, Service)>,
    /// Who answered last.
    preferred: AtomicUsize,
}

/// Who wants to lead what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidacy {
    /// The election.
    pub election: String,
    /// The candidate.
    pub candidate: String,
    /// How long the leadership lasts without a renewal.
    pub ttl: Duration,
    /// The epoch is at least this.
    pub epoch_min: u64,
    /// Tells attempts apart: the same number again means the same leadership, also after no answer came.
    pub attempt: u64,
}

impl Candidacy {
    /// A first attempt: its number is random.
    pub fn new(election: impl Into<String>, candidate: impl Into<String>, ttl: Duration) -> Self {
        let attempt = getrandom::u64().unwrap_or_else(|_| clock::now().as_nanos() as u64).max(1);
        Self { election: election.into(), candidate: candidate.into(), ttl, epoch_min: 0, attempt }
    }
}

/// What came of a candidacy.
#[derive(Clone, Debug)]
pub enum Acquired {
    /// The candidate leads.
    Leads(Held),
    /// Somebody else does.
    Other(Leadership),
}

/// A leadership that is one's own, until it is over.
#[derive(Clone)]
pub struct Held {
    /// Who leads.
    pub leader: String,
    /// Above that of every leadership of the election before.
    pub epoch: u64,
    /// Grows with every change of any leadership.
    pub revision: u64,
    /// How often it was renewed.
    pub renewals: u64,
    token: String,
    /// By this process's own clock.
    deadline: Duration,
}

impl Held {
    /// Whether the holder must have stopped: its term has passed, counted from before the request was sent that began it.
    pub fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// How much of the term is left.
    pub fn left(&self) -> Duration {
        self.deadline.saturating_sub(clock::now())
    }

    /// What proves that the leadership is one's own. Keep it secret.
    pub fn token(&self) -> &str {
        &self.token
    }
}

/// The token is never shown by accident.
impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { leader, epoch, renewals, revision, .. } = self;
        write!(
            f,
            "Held({leader}, epoch {epoch}, renewals {renewals}, revision {revision}, {:?} left)",
            self.left()
        )
    }
}

impl Client {
    /// A client of the nodes at these addresses. Nothing is connected yet.
    pub fn new(addresses: &[String], security: &Security) -> Result<Self, security::Error> {
        if addresses.is_empty() {
            let reason = "no address is given".to_owned();
            return Err(security::Error::Address { address: String::new(), reason });
        }
        let stamp = security.stamp()?;
        let nodes = addresses.iter().map(|address| {
            let channel = security.endpoint(address)?.connect_lazy();
            Ok((address.clone(), InterceptedService::new(channel, stamp.clone())))
        });
        let nodes: Vec<_> = nodes.collect::<Result<_, security::Error>>()?;
        Ok(Self(std::sync::Arc::new(Inside { nodes, preferred: AtomicUsize::new(0) })))
    }

    /// Takes the leadership if nobody has it. After [`Error::Unknown`] the same candidacy may be tried again.
    ///
    /// It looks first and asks for what it saw: a try that the network delivers after another one was answered changes nothing.
    pub fn acquire<'a>(&'a self, candidacy: &'a Candidacy) -> BoxFuture<'a, Result<Acquired, Error>> {
        Box::pin(async move {
            let until = clock::now() + ACQUIRE;
            let mut seen = self.leader(&candidacy.election).await.map_err(|error| match error {
                // Looking changes nothing.
                Error::Unknown(reason) => Error::NotDone(reason),
                error => error,
            })?;
            loop {
                if !seen.leader.is_empty() && seen.leader != candidacy.candidate {
                    return Ok(Acquired::Other(seen));
                }
                match self.acquire_at(candidacy, seen.revision, until).await? {
                    Acquired::Other(other) if other.revision != seen.revision => seen = other,
                    acquired => return Ok(acquired),
                }
            }
        })
    }

    /// Takes the leadership if nothing has changed since that revision.
    async fn acquire_at(
        &self,
        candidacy: &Candidacy,
        revision: u64,
        until: Duration,
    ) -> Result<Acquired, Error> {
        let request = AcquireLeadershipRequest {
            election: candidacy.election.clone(),
            candidate: candidacy.candidate.clone(),
            ttl: prost_types::Duration::try_from(candidacy.ttl).ok(),
            epoch_min: candidacy.epoch_min,
            attempt: candidacy.attempt,
            if_revision: Some(revision),
        };
        let patience = until.saturating_sub(clock::now());
        let (answer, sent) = self
            .call(patience, request, |node, request| async move {
                ElectionClient::new(node).acquire_leadership(request).await
            })
            .await?;
        let AcquireLeadershipResponse { is_leader, leader, token, epoch, expires_in, revision, renewals } =
            answer;
        if is_leader {
            let deadline = sent + candidacy.ttl;
            return Ok(Acquired::Leads(Held { leader, epoch, revision, renewals, token, deadline }));
        }
        let election = candidacy.election.clone();
        Ok(Acquired::Other(Leadership {
            election,
            leader,
            epoch,
            expires_in,
            revision,
            renewals,
            ending: false,
        }))
    }

    /// Keeps a leadership for another term. [`Error::Ended`] says that it is over; after [`Error::Unknown`] it lasts at
    /// least as long as it did before.
    pub fn renew<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, Result<Held, Error>> {
        Box::pin(async move {
            let request = RenewLeadershipRequest { token: held.token.clone() };
            let (answer, sent) = self
                .call(RENEW, request, |node, request| async move {
                    ElectionClient::new(node).renew_leadership(request).await
                })
                .await?;
            let ttl = answer.expires_in.and_then(|left| Duration::try_from(left).ok()).unwrap_or_default();
            Ok(Held {
                leader: answer.leader,
                epoch: answer.epoch,
                revision: answer.revision,
                renewals: answer.renewals,
                token: held.token.clone(),
                deadline: sent + ttl,
            })
        })
    }

    /// Gives a leadership back. [`Error::Ended`] says that it was over already.
    pub fn release<'a>(&'a self, held: &'a Held) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let request = ReleaseLeadershipRequest { token: held.token.clone() };
            let mut in_doubt = false;
            let request = |limit| {
                let mut request = Request::new(request.clone());
                request.set_timeout(limit);
                request
            };
            let released = self
                .try_nodes(RENEW, request, &mut in_doubt, |node, request| async move {
                    ElectionClient::new(node).release_leadership(request).await
                })
                .await;
            match released {
                // An earlier try has done it, and its answer was lost.
                Err(Error::Ended(_)) if in_doubt => Ok(()),
                released => released.map(drop),
            }
        })
    }

    /// Who leads an election, for certain.
    pub fn leader<'a>(&'a self, election: &'a str) -> BoxFuture<'a, Result<Leadership, Error>> {
        Box::pin(async move {
            let request = GetLeaderRequest { election: election.to_owned() };
            let answer = self
                .call(ANSWER, request, |node, request| async move {
                    ElectionClient::new(node).get_leader(request).await
                })
                .await;
            answer.map(|(leadership, _)| leadership)
        })
    }

    /// Every election that there ever was.
    pub fn list(&self) -> BoxFuture<'_, Result<Vec<Leadership>, Error>> {
        Box::pin(async move {
            let answer = self
                .call(ANSWER, ListElectionsRequest {}, |node, request| async move {
                    ElectionClient::new(node).list_elections(request).await
                })
                .await;
            answer.map(|(list, _)| list.elections)
        })
    }

    /// Who leads an election now, and every change of it, as long as the node that answers is in touch with the others.
    pub fn watch<'a>(&'a self, election: &'a str) -> BoxFuture<'a, Result<Streaming<Leadership>, Error>> {
        Box::pin(async move {
            let request = WatchLeaderRequest { election: election.to_owned() };
            // Only its beginning is limited: the stream goes on.
            let request = |_| Request::new(request.clone());
            let answer = self
                .try_nodes(ANSWER, request, &mut false, |node, request| async move {
                    ElectionClient::new(node).watch_leader(request).await
                })
                .await;
            answer.map(|(stream, _)| stream)
        })
    }

    /// What every node says of itself, by the address it was asked at.
    pub fn status(&self) -> BoxFuture<'_, Vec<(String, Result<NodeStatus, Error>)>> {
        Box::pin(async move {
            let asked = self.0.nodes.iter().map(|(address, service)| async move {
                let mut client = AdminClient::new(service.clone());
                let answer = tokio::time::timeout(RENEW, client.get_status(GetStatusRequest {})).await;
                let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
                (
                    address.clone(),
                    answer.map(Response::into_inner).map_err(|status| outcome::of(address, &status)),
                )
            });
            futures_util::future::join_all(asked).await
        })
    }

    /// Asks the leader of an election to resign; none named is whoever leads. It may lead until its term is over.
    pub fn end<'a>(&'a self, election: &'a str, leader: &'a str) -> BoxFuture<'a, Result<Leadership, Error>> {
        Box::pin(async move {
            let request = EndLeadershipRequest { election: election.to_owned(), leader: leader.to_owned() };
            let answer = self
                .call(ANSWER, request, |node, request| async move {
                    AdminClient::new(node).end_leadership(request).await
                })
                .await;
            answer.map(|(answer, _)| answer.leadership.unwrap_or_default())
        })
    }

    /// Takes a node out of the set.
    pub fn remove_member(&self, node_id: u64) -> BoxFuture<'_, Result<Vec<Member>, Error>> {
        Box::pin(async move {
            let answer = self
                .call(CHANGE, RemoveMemberRequest { node_id }, |node, request| async move {
                    AdminClient::new(node).remove_member(request).await
                })
                .await;
            answer.map(|(answer, _)| answer.members)
        })
    }

    async fn call<Q: Clone + Send + Sync, A, F>(
        &self,
        patience: Duration,
        request: Q,
        ask: impl Fn(Service, Request<Q>) -> F + Send,
    ) -> Result<(A, Duration), Error>
    where
        F: Future<Output = Result<Response<A>, Status>> + Send,
    {
        let request = |limit| {
            let mut request = Request::new(request.clone());
            request.set_timeout(limit);
            request
        };
        self.try_nodes(patience, request, &mut false, ask).await
    }

    /// Asks one node after the other until one answers, and says when the request was sent that was answered.
    /// Whether an earlier one may have been carried out is noted in `in_doubt`.
    async fn try_nodes<Q, A, F>(
        &self,
        patience: Duration,
        request: impl Fn(Duration) -> Request<Q> + Send,
        in_doubt: &mut bool,
        ask: impl Fn(Service, Request<Q>) -> F + Send,
    ) -> Result<(A, Duration), Error>
    where
        F: Future<Output = Result<Response<A>, Status>> + Send,
    {
        let Inside { nodes, preferred } = &*self.0;
        let start = clock::now();
        let until = start + patience;
        // A node that does not answer leaves time for another.
        let limit = if nodes.len() > 1 { patience.mul_f64(0.45) } else { patience };
        let first = preferred.load(Ordering::Relaxed);
        let mut last = "nobody was asked".to_owned();
        for turn in 0.. {
            let index = (first + turn) % nodes.len();
            let (address, service) = &nodes[index];
            let sent = clock::now();
            let limit = limit.min(until.saturating_sub(sent));
            if limit.is_zero() {
                break;
            }
            let answer = tokio::time::timeout(limit, ask(service.clone(), request(limit))).await;
            let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer")));
            match answer.map_err(|status| outcome::of(address, &status)) {
                Ok(answer) => {
                    preferred.store(index, Ordering::Relaxed);
                    return Ok((answer.into_inner(), sent));
                }
                Err(Error::NotDone(reason)) => last = reason,
                Err(Error::Unknown(reason)) => {
                    *in_doubt = true;
                    last = reason;
                }
                Err(refused) => return Err(refused),
            }
            if (turn + 1) % nodes.len() == 0 {
                tokio::time::sleep(PAUSE.min(until.saturating_sub(clock::now()))).await;
            }
        }
        Err(if *in_doubt { Error::Unknown(last) } else { Error::NotDone(last) })
    }
}
