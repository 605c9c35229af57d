//! The service with tokens and epochs.

use std::pin::Pin;
use std::time::Duration;

use futures_util::Stream;
use phalanx_service::Shutdown;
use tokio::sync::{mpsc, watch};
use tonic::{Request, Response, Status};

use super::{duration, invalid, list, measured, not_done, propose, read, refused};
use crate::leases::{Command, Nonce, Refusal, Reply, Seat};
use crate::names;
use crate::node::Node;
use crate::proto::election_server::Election;
use crate::proto::{
    AcquireLeadershipRequest, AcquireLeadershipResponse, GetLeaderRequest, Leadership, ListElectionsRequest,
    ListElectionsResponse, ReleaseLeadershipRequest, ReleaseLeadershipResponse, RenewLeadershipRequest,
    RenewLeadershipResponse, WatchLeaderRequest,
};
use crate::token::Token;

/// How often a stream looks whether its node is still in touch with the others.
const LOOK: Duration = Duration::from_millis(250);

pub(super) struct Native {
    pub(super) node: Node,
    pub(super) shutdown: Shutdown,
}

#[tonic::async_trait]
impl Election for Native {
    async fn acquire_leadership(
        &self,
        request: Request<AcquireLeadershipRequest>,
    ) -> Result<Response<AcquireLeadershipResponse>, Status> {
        measured(&self.node, "AcquireLeadership", self.acquire(request.into_inner())).await
    }

    async fn renew_leadership(
        &self,
        request: Request<RenewLeadershipRequest>,
    ) -> Result<Response<RenewLeadershipResponse>, Status> {
        measured(&self.node, "RenewLeadership", self.renew(request.into_inner())).await
    }

    async fn release_leadership(
        &self,
        request: Request<ReleaseLeadershipRequest>,
    ) -> Result<Response<ReleaseLeadershipResponse>, Status> {
        measured(&self.node, "ReleaseLeadership", self.release(request.into_inner())).await
    }

    async fn get_leader(&self, request: Request<GetLeaderRequest>) -> Result<Response<Leadership>, Status> {
        let work = async {
            let election = names::election(&request.into_inner().election).map_err(invalid)?;
            let (seat, left) = read(&self.node, election.clone()).await?;
            Ok(leadership(election, seat, left))
        };
        measured(&self.node, "GetLeader", work).await
    }

    type WatchLeaderStream = Pin<Box<dyn Stream<Item = Result<Leadership, Status>> + Send>>;

    async fn watch_leader(
        &self,
        request: Request<WatchLeaderRequest>,
    ) -> Result<Response<Self::WatchLeaderStream>, Status> {
        let election = names::election(&request.into_inner().election).map_err(invalid)?;
        // From before the first look on, so that no change falls between.
        let turns = self.node.applied().turns();
        let first = measured(&self.node, "WatchLeader", read(&self.node, election.clone())).await?;
        let (events, inbox) = mpsc::channel(16);
        let watching =
            Watching { node: self.node.clone(), election, turns, shutdown: self.shutdown.clone(), events };
        tokio::spawn(watching.run(first.into_inner().0));
        let stream = futures_util::stream::unfold(inbox, |mut inbox| async move {
            inbox.recv().await.map(|event| (event, inbox))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn list_elections(
        &self,
        _request: Request<ListElectionsRequest>,
    ) -> Result<Response<ListElectionsResponse>, Status> {
        let work = async {
            let seats = list(&self.node).await?;
            let elections = seats.into_iter().map(|(election, seat, left)| leadership(election, seat, left));
            Ok(ListElectionsResponse { elections: elections.collect() })
        };
        measured(&self.node, "ListElections", work).await
    }
}

impl Native {
    async fn acquire(&self, request: AcquireLeadershipRequest) -> Result<AcquireLeadershipResponse, Status> {
        let ttl = request.ttl.ok_or_else(|| Status::invalid_argument("the ttl is missing; send 10s, say"))?;
        let ttl = Duration::try_from(ttl)
            .map_err(|_| Status::invalid_argument("the ttl is negative; send 10s, say"))?;
        let election = names::election(&request.election).map_err(invalid)?;
        let command = Command::Acquire {
            election: election.clone(),
            candidate: names::candidate(&request.candidate).map_err(invalid)?,
            ttl_ms: names::term(ttl).map_err(invalid)?,
            epoch_min: request.epoch_min,
            attempt: request.attempt,
            if_revision: request.if_revision,
            nonce: fresh_nonce(),
        };
        let (reply, left) = propose(&self.node, command).await?;
        let (is_leader, seat, token) = match reply {
            Reply::Granted(seat, nonce) => (true, seat, Token { election, nonce }.to_string()),
            Reply::Taken(seat) | Reply::Kept(seat) | Reply::Ended(seat) => (false, seat, String::new()),
            Reply::Refused(refusal) => return Err(refused(&election, &refusal)),
        };
        Ok(AcquireLeadershipResponse {
            is_leader,
            leader: seat.leader.unwrap_or_default(),
            token,
            epoch: seat.epoch,
            expires_in: left.map(duration),
            revision: seat.revision,
            renewals: seat.renewals,
        })
    }

    async fn renew(&self, request: RenewLeadershipRequest) -> Result<RenewLeadershipResponse, Status> {
        let Token { election, nonce } = parsed(&request.token)?;
        let command = Command::Renew { election: election.clone(), nonce };
        let (reply, left) = propose(&self.node, command).await?;
        let seat = kept(&election, reply)?;
        Ok(RenewLeadershipResponse {
            leader: seat.leader.unwrap_or_default(),
            epoch: seat.epoch,
            expires_in: left.map(duration),
            revision: seat.revision,
            renewals: seat.renewals,
        })
    }

    async fn release(&self, request: ReleaseLeadershipRequest) -> Result<ReleaseLeadershipResponse, Status> {
        let Token { election, nonce } = parsed(&request.token)?;
        let command = Command::Release { election: election.clone(), nonce };
        let (reply, _) = propose(&self.node, command).await?;
        Ok(ReleaseLeadershipResponse { revision: kept(&election, reply)?.revision })
    }
}

/// A stream of one election's leaders.
struct Watching {
    node: Node,
    election: String,
    turns: watch::Receiver<u64>,
    shutdown: Shutdown,
    events: mpsc::Sender<Result<Leadership, Status>>,
}

impl Watching {
    async fn run(mut self, first: Seat) {
        let watches = self.node.measured().watches().clone();
        watches.inc();
        self.tell(first).await;
        watches.dec();
    }

    /// Tells every change until nobody listens, or until this node does not know any more how things are.
    async fn tell(&mut self, mut told: Seat) {
        let first = Ok(leadership(self.election.clone(), told.clone(), None));
        if self.events.send(first).await.is_err() {
            return;
        }
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                turned = self.turns.changed() => if turned.is_err() {
                    return;
                },
                _ = look.tick() => if let Err(reason) = self.node.in_touch() {
                    let _ = self.events.send(Err(not_done(&reason))).await;
                    return;
                },
                () = self.shutdown.requested() => {
                    let _ = self.events.send(Err(not_done("this node is stopping"))).await;
                    return;
                }
                () = self.events.closed() => return,
            }
            let seat = self.node.applied().seat(&self.election).0.unwrap_or_default();
            let is_news = (&seat.leader, seat.epoch, seat.ending) != (&told.leader, told.epoch, told.ending);
            // What this node has applied may be older than the leader's first answer.
            if seat.revision > told.revision && is_news {
                told = seat.clone();
                if self.events.send(Ok(leadership(self.election.clone(), seat, None))).await.is_err() {
                    return;
                }
            }
        }
    }
}

pub(super) fn leadership(election: String, seat: Seat, left: Option<Duration>) -> Leadership {
    Leadership {
        election,
        expires_in: left.filter(|_| seat.leader.is_some()).map(duration),
        leader: seat.leader.unwrap_or_default(),
        epoch: seat.epoch,
        revision: seat.revision,
        renewals: seat.renewals,
        ending: seat.ending,
    }
}

fn parsed(token: &str) -> Result<Token, Status> {
    token.parse().map_err(|error: crate::token::NoToken| Status::invalid_argument(error.to_string()))
}

fn kept(election: &str, reply: Reply) -> Result<Seat, Status> {
    match reply {
        Reply::Granted(seat, _) | Reply::Kept(seat) | Reply::Ended(seat) => Ok(seat),
        Reply::Taken(seat) => Err(refused(election, &Refusal::NotLeader(seat))),
        Reply::Refused(refusal) => Err(refused(election, &refusal)),
    }
}

/// 128 bits that nobody can guess, chosen before the command is ordered so that all nodes apply the same.
pub(super) fn fresh_nonce() -> Nonce {
    let mut bytes = [0; 16];
    // A machine without randomness has no way to keep a secret: there is nothing sensible left to do.
    getrandom::fill(&mut bytes).expect("the operating system gives random bits");
    let both = u128::from_ne_bytes(bytes);
    Nonce((both >> 64) as u64, both as u64)
}
