//! The shape that clients of the public Election Agent speak.

use std::time::Duration;

use tonic::{Request, Response, Status};

use super::native::fresh_nonce;
use super::{invalid, list, measured, propose, read, refused};
use crate::leases::{Command, Refusal, Reply};
use crate::names;
use crate::node::Node;
use crate::public::election_server::Election;
use crate::public::{
    AgentStatus, BoolValue, CampaignRequest, CampaignResult, Empty, ExtendElectedTermRequest,
    GetLeaderRequest, GetPodsRequest, HandoverRequest, Leader, ListLeadersRequest, ListLeadersResult, Pods,
    ResignRequest, StringValue,
};

const RETRIES_MAX: i32 = 10;
const RETRY_INTERVAL_MS_MAX: i32 = 1000;

pub(super) struct Public {
    pub(super) node: Node,
}

#[tonic::async_trait]
impl Election for Public {
    async fn campaign(&self, request: Request<CampaignRequest>) -> Result<Response<CampaignResult>, Status> {
        measured(&self.node, "Campaign", self.run_for(request.into_inner())).await
    }

    async fn extend_elected_term(
        &self,
        request: Request<ExtendElectedTermRequest>,
    ) -> Result<Response<BoolValue>, Status> {
        measured(&self.node, "ExtendElectedTerm", self.extend(request.into_inner())).await
    }

    async fn resign(&self, request: Request<ResignRequest>) -> Result<Response<BoolValue>, Status> {
        let work = async {
            let ResignRequest { election, leader, kind } = request.into_inner();
            let election = names::of_kind(&kind, &election).map_err(invalid)?;
            let leader = names::candidate(&leader).map_err(invalid)?;
            self.change(&election, Command::Resign { election: election.clone(), leader }).await
        };
        measured(&self.node, "Resign", work).await
    }

    async fn handover(&self, request: Request<HandoverRequest>) -> Result<Response<BoolValue>, Status> {
        let work = async {
            let HandoverRequest { election, leader, term, kind } = request.into_inner();
            let election = names::of_kind(&kind, &election).map_err(invalid)?;
            let leader = names::candidate(&leader).map_err(invalid)?;
            let (ttl_ms, nonce) = (milliseconds(term)?, fresh_nonce());
            self.change(&election, Command::Handover { election: election.clone(), leader, ttl_ms, nonce })
                .await
        };
        measured(&self.node, "Handover", work).await
    }

    async fn get_leader(&self, request: Request<GetLeaderRequest>) -> Result<Response<StringValue>, Status> {
        let work = async {
            let GetLeaderRequest { election, kind } = request.into_inner();
            let election = names::of_kind(&kind, &election).map_err(invalid)?;
            let (seat, _) = read(&self.node, election.clone()).await?;
            let nobody = || Status::not_found(format!("nobody leads {election}"));
            Ok(StringValue { value: seat.leader.ok_or_else(nobody)? })
        };
        measured(&self.node, "GetLeader", work).await
    }

    async fn list_leaders(
        &self,
        request: Request<ListLeadersRequest>,
    ) -> Result<Response<ListLeadersResult>, Status> {
        let work = async {
            let kind = request.into_inner().kind;
            let kind = if kind.is_empty() { names::DEFAULT_KIND } else { &kind };
            let seats = list(&self.node).await?;
            let leaders = seats.into_iter().filter_map(|(name, seat, _)| {
                let (its_kind, election) = names::split(&name);
                let leads = seat.leader.filter(|_| its_kind == kind)?;
                Some(Leader { election: election.to_owned(), name: leads })
            });
            Ok(ListLeadersResult { leaders: leaders.collect() })
        };
        measured(&self.node, "ListLeaders", work).await
    }

    async fn get_pods(&self, _request: Request<GetPodsRequest>) -> Result<Response<Pods>, Status> {
        Err(Status::unimplemented("this agent knows no pods: ask Kubernetes"))
    }
}

impl Public {
    async fn run_for(&self, request: CampaignRequest) -> Result<CampaignResult, Status> {
        let CampaignRequest { election, candidate, term, kind } = request;
        let election = names::of_kind(&kind, &election).map_err(invalid)?;
        let command = Command::Campaign {
            election: election.clone(),
            candidate: names::candidate(&candidate).map_err(invalid)?,
            ttl_ms: milliseconds(term)?,
            nonce: fresh_nonce(),
        };
        let (elected, seat) = match propose(&self.node, command).await?.0 {
            Reply::Granted(seat, _) | Reply::Kept(seat) => (true, seat),
            Reply::Taken(seat) | Reply::Ended(seat) => (false, seat),
            Reply::Refused(refusal) => return Err(refused(&election, &refusal)),
        };
        let kind = names::split(&election).0.to_owned();
        Ok(CampaignResult { elected, leader: seat.leader.unwrap_or_default(), kind })
    }

    async fn extend(&self, request: ExtendElectedTermRequest) -> Result<BoolValue, Status> {
        let ExtendElectedTermRequest { election, leader, term, kind, retries, retry_interval } = request;
        if !(0..=RETRIES_MAX).contains(&retries) {
            return Err(Status::invalid_argument(format!(
                "{retries} retries are not between 0 and {RETRIES_MAX}"
            )));
        }
        if !(0..=RETRY_INTERVAL_MS_MAX).contains(&retry_interval) {
            return Err(Status::invalid_argument(format!(
                "a retry_interval of {retry_interval} ms is not between 0 and {RETRY_INTERVAL_MS_MAX}"
            )));
        }
        let election = names::of_kind(&kind, &election).map_err(invalid)?;
        let leader = names::candidate(&leader).map_err(invalid)?;
        let command = Command::Extend { election: election.clone(), leader, ttl_ms: milliseconds(term)? };
        let mut left = retries;
        loop {
            match self.change(&election, command.clone()).await {
                // Who does not lead will not by asking again; who could not be answered may be.
                Err(status) if left > 0 && is_passing(&status) => left -= 1,
                answer => return answer,
            }
            tokio::time::sleep(Duration::from_millis(retry_interval.unsigned_abs().into())).await;
        }
    }

    async fn change(&self, election: &str, command: Command) -> Result<BoolValue, Status> {
        match propose(&self.node, command).await?.0 {
            Reply::Granted(..) | Reply::Kept(_) | Reply::Ended(_) => Ok(BoolValue { value: true }),
            Reply::Taken(seat) => Err(not_found(election, &Refusal::NotLeader(seat))),
            Reply::Refused(refusal) => Err(not_found(election, &refusal)),
        }
    }
}

fn is_passing(status: &Status) -> bool {
    matches!(status.code(), tonic::Code::Unavailable | tonic::Code::DeadlineExceeded)
}

/// Clients of this shape know "does not lead" as NOT_FOUND.
fn not_found(election: &str, refusal: &Refusal) -> Status {
    let status = refused(election, refusal);
    match status.code() {
        tonic::Code::FailedPrecondition => Status::not_found(status.message()),
        _ => status,
    }
}

fn milliseconds(term: i32) -> Result<u64, Status> {
    let term = Duration::from_millis(u64::try_from(term).unwrap_or_default());
    names::term(term).map_err(invalid)
}

/// Zones and states of agents: nothing of that is here.
pub(super) struct Control;

#[tonic::async_trait]
impl crate::public::control_server::Control for Control {
    async fn get_status(&self, _request: Request<Empty>) -> Result<Response<AgentStatus>, Status> {
        Err(no_zones())
    }

    async fn set_status(&self, _request: Request<AgentStatus>) -> Result<Response<BoolValue>, Status> {
        Err(no_zones())
    }
}

fn no_zones() -> Status {
    Status::unimplemented("this agent has no zones; its status is at phalanx.election.v1.Admin and over HTTP")
}
