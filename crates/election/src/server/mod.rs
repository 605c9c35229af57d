//! The gRPC services of a node.

mod admin;
mod native;
mod peer;
mod public;

use std::future::Future;
use std::time::{Duration, Instant};

use phalanx_service::Shutdown;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::{Response, Status};

use crate::leases::{Refusal, Reply, Seat};
use crate::names::Invalid;
use crate::node::Node;
use crate::node::asking::{Answer, Ask, Miss};
use crate::proto::admin_server::AdminServer;
use crate::proto::election_server::ElectionServer;
use crate::proto::peer_server::PeerServer;
use crate::public::control_server::ControlServer;
use crate::public::election_server::ElectionServer as PublicElectionServer;
use crate::raft::network::PARCEL_MAX;
use crate::security;

pub(crate) use admin::status;

/// How long the leader's answer is waited for. Clients wait 5 s at most.
const PATIENCE: Duration = Duration::from_millis(4500);
/// The metadata of an error that says that nothing was done, and that it is safe to try again.
pub(crate) const OUTCOME: &str = "phalanx-outcome";
pub(crate) const NOT_DONE: &str = "not-done";

/// Serves until a stop is requested, and then ends what still runs.
pub(crate) async fn serve(
    node: Node,
    listener: TcpListener,
    shutdown: Shutdown,
) -> Result<(), security::Error> {
    let security = node.config().security.clone();
    let guard = security.guard();
    let (reporter, health) = tonic_health::server::health_reporter();
    tokio::spawn(report_health(node.clone(), reporter, shutdown.clone()));
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(crate::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors were made by the build");
    let native = native::Native { node: node.clone(), shutdown: shutdown.clone() };
    let peer = PeerServer::new(peer::Peer { node: node.clone() })
        .max_decoding_message_size(PARCEL_MAX)
        .max_encoding_message_size(PARCEL_MAX);
    let router = security
        .server()?
        .add_service(health)
        .add_service(reflection)
        .add_service(ElectionServer::with_interceptor(native, guard.clone()))
        .add_service(AdminServer::with_interceptor(admin::Admin { node: node.clone() }, guard.clone()))
        .add_service(PublicElectionServer::with_interceptor(
            public::Public { node: node.clone() },
            guard.clone(),
        ))
        .add_service(ControlServer::with_interceptor(public::Control, guard.clone()))
        .add_service(tonic::service::interceptor::InterceptedService::new(peer, guard));
    let until = async move { shutdown.requested().await };
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    // Accepting goes on whatever a single connection does: it ends only when it is told to.
    drop(router.serve_with_incoming_shutdown(incoming, until).await);
    Ok(())
}

/// The health service says whether this node is in touch with the others.
async fn report_health(node: Node, reporter: tonic_health::server::HealthReporter, shutdown: Shutdown) {
    use tonic_health::ServingStatus::{NotServing, Serving};
    let mut known = None;
    loop {
        let is_well = node.in_touch().is_ok();
        if known != Some(is_well) {
            known = Some(is_well);
            let status = if is_well { Serving } else { NotServing };
            for service in ["", "phalanx.election.v1.Election", "grpc.election_agent.v1.Election"] {
                reporter.set_service_status(service, status).await;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
            () = shutdown.requested() => return,
        }
    }
}

/// Answers and measures.
async fn measured<T>(
    node: &Node,
    method: &'static str,
    work: impl Future<Output = Result<T, Status>>,
) -> Result<Response<T>, Status> {
    let start = Instant::now();
    let answer = work.await;
    let code = answer.as_ref().map_or_else(Status::code, |_| tonic::Code::Ok);
    node.measured().answered(method, code, start.elapsed());
    answer.map(Response::new)
}

/// The leader's answer, or a status that says whether anything may have been done.
async fn ask(node: &Node, ask: Ask, patience: Duration) -> Result<Answer, Status> {
    match node.ask(ask, patience).await {
        Ok(Answer::Nonsense(reason)) => Err(Status::failed_precondition(reason)),
        Ok(answer) => Ok(answer),
        Err(Miss { in_doubt: true, reason }) => {
            Err(Status::deadline_exceeded(format!("{reason}: it may have been done, or may be yet")))
        }
        Err(Miss { reason, .. }) => Err(not_done(&reason)),
    }
}

/// Says that nothing was done.
fn not_done(reason: &str) -> Status {
    let mut status = Status::unavailable(format!("{reason}: nothing was done; ask again or another node"));
    status.metadata_mut().insert(OUTCOME, tonic::metadata::MetadataValue::from_static(NOT_DONE));
    status
}

async fn propose(node: &Node, command: crate::leases::Command) -> Result<(Reply, Option<Duration>), Status> {
    match ask(node, Ask::Propose(command), PATIENCE).await? {
        Answer::Reply(reply, left) => Ok((reply, left)),
        _ => Err(Status::internal("the leader answered something else")),
    }
}

async fn read(node: &Node, election: String) -> Result<(Seat, Option<Duration>), Status> {
    match ask(node, Ask::Read(election), PATIENCE).await? {
        Answer::Seat(seat, left) => Ok((seat.unwrap_or_default(), left)),
        _ => Err(Status::internal("the leader answered something else")),
    }
}

async fn list(node: &Node) -> Result<Vec<(String, Seat, Option<Duration>)>, Status> {
    match ask(node, Ask::List, PATIENCE).await? {
        Answer::Seats(seats) => Ok(seats),
        _ => Err(Status::internal("the leader answered something else")),
    }
}

/// Why a leadership was neither kept nor ended, for people.
fn refused(election: &str, refusal: &Refusal) -> Status {
    match refusal {
        Refusal::Unknown => Status::not_found(format!("there never was an election {election}")),
        Refusal::Full => Status::resource_exhausted(format!(
            "there are {} elections already, and each is remembered for ever; use names again",
            crate::leases::ELECTIONS_MAX
        )),
        Refusal::Ending(seat) => Status::failed_precondition(format!(
            "{} was asked to resign as leader of {election}: it is not renewed any more",
            seat.leader.as_deref().unwrap_or_default()
        )),
        Refusal::NotLeader(seat) => Status::failed_precondition(match &seat.leader {
            Some(leader) => format!(
                "this leadership of {election} has ended: {leader} leads now, in epoch {}",
                seat.epoch
            ),
            None => format!(
                "this leadership of {election} has ended: nobody leads now, the last epoch was {}",
                seat.epoch
            ),
        }),
    }
}

fn invalid(error: Invalid) -> Status {
    Status::invalid_argument(error.to_string())
}

fn duration(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: duration.subsec_nanos() as i32,
    }
}
