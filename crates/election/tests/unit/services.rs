//! What a node answers to whoever speaks gRPC or HTTP with it.

use crate::alone;
use phalanx_election::METRICS;
use phalanx_election::agent::Agent;
use phalanx_election::proto;
use phalanx_election::proto::election_client::ElectionClient;
use phalanx_election::public::control_client::ControlClient;
use phalanx_election::public::election_client::ElectionClient as PublicClient;
use phalanx_election::public::{
    CampaignRequest, Empty, ExtendElectedTermRequest, GetLeaderRequest, GetPodsRequest, HandoverRequest,
    ListLeadersRequest, ResignRequest,
};
use phalanx_election::security::Security;
use tempfile::TempDir;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

struct Running {
    agent: Agent,
    channel: Channel,
    _folder: TempDir,
}

async fn start() -> Running {
    let (agent, folder) = alone::start(&Security::default()).await;
    let channel =
        Endpoint::from_shared(format!("http://{}", agent.grpc_addr())).expect("an address").connect_lazy();
    Running { agent, channel, _folder: folder }
}

fn campaign(candidate: &str, kind: &str) -> CampaignRequest {
    CampaignRequest {
        election: "e".to_owned(),
        candidate: candidate.to_owned(),
        term: 5000,
        kind: kind.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_public_agent_are_served() {
    let running = start().await;
    let mut client = PublicClient::new(running.channel.clone());
    let first = client.campaign(campaign("a", "")).await.expect("an answer").into_inner();
    assert_eq!((first.elected, &*first.leader, &*first.kind), (true, "a", "default"));
    let second = client.campaign(campaign("b", "default")).await.expect("an answer").into_inner();
    assert_eq!((second.elected, &*second.leader), (false, "a"));
    let other = client.campaign(campaign("b", "line")).await.expect("an answer").into_inner();
    assert_eq!((other.elected, &*other.kind), (true, "line"), "a kind is a world of its own");
    let extend = |leader: &str| ExtendElectedTermRequest {
        election: "e".to_owned(),
        leader: leader.to_owned(),
        term: 5000,
        retries: 3,
        retry_interval: 10,
        ..Default::default()
    };
    assert!(client.extend_elected_term(extend("a")).await.expect("extended").into_inner().value);
    assert_eq!(client.extend_elected_term(extend("b")).await.expect_err("not b's").code(), Code::NotFound);
    let handover =
        HandoverRequest { election: "e".to_owned(), leader: "c".to_owned(), term: 5000, kind: String::new() };
    assert!(client.handover(handover).await.expect("handed over").into_inner().value);
    let get = |election: &str| GetLeaderRequest { election: election.to_owned(), kind: String::new() };
    assert_eq!(client.get_leader(get("e")).await.expect("a leader").into_inner().value, "c");
    assert_eq!(client.get_leader(get("none")).await.expect_err("nobody").code(), Code::NotFound);
    let list =
        client.list_leaders(ListLeadersRequest { kind: String::new() }).await.expect("a list").into_inner();
    assert_eq!(list.leaders.iter().map(|one| (&*one.election, &*one.name)).collect::<Vec<_>>(), [("e", "c")]);
    let resign = |leader: &str| ResignRequest {
        election: "e".to_owned(),
        leader: leader.to_owned(),
        kind: String::new(),
    };
    assert_eq!(client.resign(resign("a")).await.expect_err("not a's").code(), Code::NotFound);
    assert!(client.resign(resign("c")).await.expect("resigned").into_inner().value);
    for (bad, field) in [
        (CampaignRequest { term: 999, ..campaign("a", "") }, "999 ms"),
        (CampaignRequest { election: String::new(), ..campaign("a", "") }, "election"),
        (CampaignRequest { candidate: String::new(), ..campaign("a", "") }, "candidate"),
        (campaign("a", "k/k"), "kind"),
    ] {
        let status = client.campaign(bad).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(field), "{status}");
    }
    assert_eq!(
        client.get_pods(GetPodsRequest::default()).await.expect_err("no pods").code(),
        Code::Unimplemented
    );
    let control = ControlClient::new(running.channel.clone()).get_status(Empty {}).await;
    assert_eq!(control.expect_err("no zones").code(), Code::Unimplemented);
}

#[tokio::test(flavor = "multi_thread")]
async fn both_shapes_speak_of_the_same_leases() {
    let running = start().await;
    let mut client = PublicClient::new(running.channel.clone());
    let mut native = ElectionClient::new(running.channel.clone());
    client.campaign(campaign("a", "line")).await.expect("elected");
    let seen = native
        .get_leader(proto::GetLeaderRequest { election: "line/e".to_owned() })
        .await
        .expect("an answer");
    assert_eq!((&*seen.get_ref().leader, seen.get_ref().epoch), ("a", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_has_no_leadership_is_told_so_in_words() {
    let running = start().await;
    let mut client = ElectionClient::new(running.channel.clone());
    let renew = |token: &str| proto::RenewLeadershipRequest { token: token.to_owned() };
    let status = client.renew_leadership(renew("nonsense")).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument);
    let unknown = format!("nobody-knows#{}", "0".repeat(32));
    assert_eq!(client.renew_leadership(renew(&unknown)).await.expect_err("refused").code(), Code::NotFound);
    let acquire = |candidate: &str, ttl: i64| proto::AcquireLeadershipRequest {
        election: "e".to_owned(),
        candidate: candidate.to_owned(),
        ttl: Some(prost_types::Duration { seconds: ttl, nanos: 0 }),
        ..Default::default()
    };
    let first = client.acquire_leadership(acquire("a", 10)).await.expect("an answer").into_inner();
    assert!(first.is_leader && !first.token.is_empty());
    assert_eq!(first.expires_in.map(|left| left.seconds), Some(10));
    let second = client.acquire_leadership(acquire("b", 10)).await.expect("an answer").into_inner();
    assert!(!second.is_leader && second.token.is_empty() && second.leader == "a");
    assert!(second.expires_in.is_some_and(|left| left.seconds < 10), "{second:?}");
    let newer = client.acquire_leadership(acquire("a", 10)).await.expect("an answer").into_inner();
    assert_eq!((newer.is_leader, newer.epoch), (true, 2), "a newer life of the same name");
    let status = client.renew_leadership(renew(&first.token)).await.expect_err("dead");
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.message(), "this leadership of e has ended: a leads now, in epoch 2");
    for wrong in [acquire("a", 0), acquire("a", 4000), acquire("", 10)] {
        let status = client.acquire_leadership(wrong).await.expect_err("refused");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_status_and_metrics_are_there() {
    let running = start().await;
    let mut client = PublicClient::new(running.channel.clone());
    client.campaign(campaign("a", "")).await.expect("elected");
    let mut health = tonic_health::pb::health_client::HealthClient::new(running.channel.clone());
    let mut watch = health
        .watch(tonic_health::pb::HealthCheckRequest { service: "phalanx.election.v1.Election".to_owned() })
        .await
        .expect("a watch")
        .into_inner();
    while watch.message().await.expect("goes on").expect("goes on").status
        != tonic_health::ServingStatus::Serving as i32
    {}
    let get = |path: &str| {
        let url = format!("{}{path}", running.agent.http_url());
        tokio::task::spawn_blocking(move || {
            ureq::get(&url).call().expect("200").body_mut().read_to_string().expect("a body")
        })
    };
    assert!(get("/health/live").await.expect("no panic").contains("ok"));
    assert!(get("/health/ready").await.expect("no panic").contains("ready"));
    let status = get("/api/v1/status").await.expect("no panic");
    assert!(status.contains("\"role\":\"leader\"") && status.contains("\"leases\":1"), "{status}");
    let elections = get("/api/v1/elections").await.expect("no panic");
    assert!(elections.contains("\"leader\":\"a\""), "{elections}");
    let metrics = get("/metrics").await.expect("no panic");
    for (name, _) in METRICS {
        assert!(metrics.contains(name), "{name} is not in {metrics}");
    }
    let document = include_str!("../../../../docs/election-agent.md");
    for (name, about) in METRICS {
        assert!(document.contains(&format!("| `{name}` | {about} |")), "{name} is not described");
    }
    running.agent.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_services_describe_themselves() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let running = start().await;
    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(running.channel.clone());
    let answers = client.server_reflection_info(futures_util::stream::iter([ask])).await;
    let answer =
        answers.expect("a stream").into_inner().message().await.expect("an answer").expect("an answer");
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("no list: {answer:?}")
    };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for name in [
        "phalanx.election.v1.Election",
        "phalanx.election.v1.Admin",
        "grpc.election_agent.v1.Election",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
}
