//! The same over HTTP, for probes, Prometheus and people: reading alone.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Json;
use axum::extract::State;
use phalanx_service::{ApiError, App, Kit, Probes, Readiness, Token};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::metrics::Metrics;
use crate::node::Node;
use crate::node::asking::{Answer, Ask};
use crate::server::status;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

pub(crate) fn app(node: Node, metrics: Arc<Metrics>) -> App {
    let own = OpenApiRouter::new()
        .routes(routes!(get_status))
        .routes(routes!(get_elections))
        .with_state(node.clone());
    let probes = Arc::new(AgentProbes { node, metrics });
    Kit::new("Phalanx Election Agent", env!("CARGO_PKG_VERSION"), probes, Token::none()).build(own)
}

struct AgentProbes {
    node: Node,
    metrics: Arc<Metrics>,
}

#[async_trait]
impl Probes for AgentProbes {
    fn live(&self) -> Result<(), String> {
        match &self.node.metrics().running_state {
            Ok(()) => Ok(()),
            Err(fatal) => Err(format!("replication: {fatal}")),
        }
    }

    async fn ready(&self) -> Readiness {
        let details = json!({ "nodeId": self.node.id(), "waitsFor": self.node.waits_for() });
        match self.node.in_touch() {
            Ok(()) => Readiness::ready(details),
            Err(reason) => Readiness::not_ready(json!({ "nodeId": self.node.id(), "reason": reason })),
        }
    }

    fn metrics(&self) -> String {
        self.metrics.text(&self.node)
    }
}

/// How a node is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct StatusBody {
    node_id: u64,
    version: String,
    /// `leader`, `follower`, `candidate`, `learner`, `joining` or `stopped`.
    role: String,
    /// Null if none is known.
    leader_id: Option<u64>,
    term: u64,
    last_log_index: u64,
    applied_index: u64,
    snapshot_index: u64,
    members: Vec<MemberBody>,
    elections: u64,
    leases: u64,
    /// On the leader: how long ago a majority answered.
    since_quorum_seconds: Option<f64>,
    /// What it waits for before it takes part.
    waits_for: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MemberBody {
    node_id: u64,
    address: String,
    voter: bool,
    /// On the leader: up to where this member has the log.
    matched_index: Option<u64>,
}

/// An election and who leads it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ElectionBody {
    election: String,
    /// Null if nobody leads.
    leader: Option<String>,
    epoch: u64,
    renewals: u64,
    revision: u64,
    expires_in_seconds: Option<f64>,
    /// It was asked to resign and ends with its term.
    ending: bool,
}

/// What this node is doing, and the others as it sees them.
#[utoipa::path(get, path = "/api/v1/status", tag = "election", responses((status = 200, body = StatusBody)))]
async fn get_status(State(node): State<Node>) -> Json<StatusBody> {
    let now = status(&node);
    let members = now.members.into_iter().map(|member| MemberBody {
        node_id: member.node_id,
        address: member.address,
        voter: member.voter,
        matched_index: member.matched_index,
    });
    Json(StatusBody {
        node_id: now.node_id,
        version: now.version,
        role: now.role,
        leader_id: Some(now.leader_id).filter(|leader| *leader != 0),
        term: now.term,
        last_log_index: now.last_log_index,
        applied_index: now.applied_index,
        snapshot_index: now.snapshot_index,
        members: members.collect(),
        elections: now.elections,
        leases: now.leases,
        since_quorum_seconds: node.metrics().millis_since_quorum_ack.map(|age| age as f64 / 1000.0),
        waits_for: node.waits_for(),
    })
}

/// Every election that there ever was, from whoever knows for certain.
#[utoipa::path(
    get,
    path = "/api/v1/elections",
    tag = "election",
    responses((status = 200, body = Vec<ElectionBody>), (status = 503, description = "no majority answers"))
)]
async fn get_elections(State(node): State<Node>) -> Result<Json<Vec<ElectionBody>>, ApiError> {
    let seats = match node.ask(Ask::List, PATIENCE).await {
        Ok(Answer::Seats(seats)) => seats,
        Ok(_) => return Err(ApiError::unavailable("the leader answered something else")),
        Err(miss) => return Err(ApiError::unavailable(miss.reason)),
    };
    let elections = seats.into_iter().map(|(election, seat, left)| ElectionBody {
        election,
        expires_in_seconds: left.filter(|_| seat.leader.is_some()).map(|left| left.as_secs_f64()),
        leader: seat.leader,
        epoch: seat.epoch,
        renewals: seat.renewals,
        revision: seat.revision,
        ending: seat.ending,
    });
    Ok(Json(elections.collect()))
}
