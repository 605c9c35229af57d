//! For operators.

use std::time::Duration;

use tonic::{Request, Response, Status};

use super::native::leadership;
use super::{PATIENCE, ask, duration, invalid, measured, propose, read, refused};
use crate::leases::{Command, Reply};
use crate::names;
use crate::node::asking::Ask;
use crate::node::{Node, role};
use crate::proto::{
    EndLeadershipRequest, EndLeadershipResponse, GetStatusRequest, Member, RemoveMemberRequest,
    RemoveMemberResponse, Status as NodeStatus, admin_server,
};

pub(super) struct Admin {
    pub(super) node: Node,
}

#[tonic::async_trait]
impl admin_server::Admin for Admin {
    async fn get_status(&self, _request: Request<GetStatusRequest>) -> Result<Response<NodeStatus>, Status> {
        Ok(Response::new(status(&self.node)))
    }

    async fn end_leadership(
        &self,
        request: Request<EndLeadershipRequest>,
    ) -> Result<Response<EndLeadershipResponse>, Status> {
        let work = async {
            let EndLeadershipRequest { election, leader } = request.into_inner();
            let election = names::election(&election).map_err(invalid)?;
            // Looked up first, so that a request that arrives late cannot end a later leadership.
            let (seat, _) = read(&self.node, election.clone()).await?;
            match &seat.leader {
                Some(now) if leader.is_empty() || *now == leader => {}
                Some(now) => {
                    return Err(Status::failed_precondition(format!("{now} leads {election}, not {leader}")));
                }
                None => return Err(Status::failed_precondition(format!("nobody leads {election}"))),
            }
            let command = Command::End { election: election.clone(), epoch: seat.epoch };
            match propose(&self.node, command).await? {
                (
                    Reply::Granted(seat, _) | Reply::Taken(seat) | Reply::Kept(seat) | Reply::Ended(seat),
                    left,
                ) => Ok(EndLeadershipResponse { leadership: Some(leadership(election, seat, left)) }),
                (Reply::Refused(refusal), _) => Err(refused(&election, &refusal)),
            }
        };
        measured(&self.node, "EndLeadership", work).await
    }

    async fn remove_member(
        &self,
        request: Request<RemoveMemberRequest>,
    ) -> Result<Response<RemoveMemberResponse>, Status> {
        let work = async {
            ask(&self.node, Ask::Remove(request.into_inner().node_id), PATIENCE).await?;
            Ok(RemoveMemberResponse { members: status(&self.node).members })
        };
        measured(&self.node, "RemoveMember", work).await
    }
}

/// What a node is doing, and the others as it sees them.
pub(crate) fn status(node: &Node) -> NodeStatus {
    let metrics = node.metrics();
    let membership = metrics.membership_config.membership();
    let voters: Vec<u64> = membership.voter_ids().collect();
    let members = membership.nodes().map(|(id, member)| Member {
        node_id: *id,
        address: member.addr.clone(),
        voter: voters.contains(id),
        matched_index: metrics
            .replication
            .as_ref()
            .and_then(|nodes| nodes.get(id).copied().flatten())
            .map(|matched| matched.index),
    });
    let (elections, leases) = node.applied().counts();
    NodeStatus {
        node_id: node.id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        role: role(node, &metrics).to_owned(),
        leader_id: metrics.current_leader.unwrap_or_default(),
        term: metrics.current_term,
        last_log_index: metrics.last_log_index.unwrap_or_default(),
        applied_index: metrics.last_applied.map_or(0, |last| last.index),
        snapshot_index: metrics.snapshot.map_or(0, |last| last.index),
        members: members.collect(),
        elections: elections as u64,
        leases: leases as u64,
        since_quorum: metrics.millis_since_quorum_ack.map(|age| duration(Duration::from_millis(age))),
    }
}
