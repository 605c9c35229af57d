//! What a node counts.

use std::time::Duration;

use prometheus::{
    Encoder as _, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};

use crate::leases::{Command, Reply};
use crate::node::Node;

/// Every metric, with what it says. Counters count since the process started.
pub const NAMES: &[(&str, &str)] = &[
    ("election_agent_raft_term", "the term of the replication"),
    ("election_agent_raft_is_leader", "1 on the node that leads the replication"),
    ("election_agent_raft_leader_changes_total", "how often this node saw another leader or term"),
    ("election_agent_raft_log_index", "the last entry of the log"),
    ("election_agent_raft_applied_index", "the last entry that was applied"),
    ("election_agent_raft_snapshot_index", "the last entry that the snapshot has"),
    ("election_agent_raft_members", "how many nodes vote"),
    ("election_agent_raft_quorum_age_seconds", "on the leader: how long ago a majority answered"),
    ("election_agent_elections", "elections that there ever were"),
    ("election_agent_leases", "elections that have a leader"),
    (
        "election_agent_lease_events_total",
        "what this node applied to leases, what it applies again at its start included, by event: granted, renewed, released, expired, ended, handed_over",
    ),
    ("election_agent_requests_total", "requests, by method and gRPC code"),
    ("election_agent_request_duration_seconds", "how long requests took, by method"),
    ("election_agent_watches", "streams of WatchLeader that are open"),
];

/// From half a millisecond, what a write to a quick disk takes, to the longest patience.
const BUCKETS: &[f64] =
    &[0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// The metrics of one node.
pub(crate) struct Metrics {
    registry: Registry,
    term: IntGauge,
    is_leader: IntGauge,
    leader_changes: IntCounter,
    log_index: IntGauge,
    applied_index: IntGauge,
    snapshot_index: IntGauge,
    members: IntGauge,
    quorum_age: prometheus::Gauge,
    elections: IntGauge,
    leases: IntGauge,
    events: IntCounterVec,
    requests: IntCounterVec,
    durations: HistogramVec,
    watches: IntGauge,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let gauge = |name: &str| add(&registry, IntGauge::with_opts(opts(name)));
        Self {
            term: gauge("election_agent_raft_term"),
            is_leader: gauge("election_agent_raft_is_leader"),
            leader_changes: add(
                &registry,
                IntCounter::with_opts(opts("election_agent_raft_leader_changes_total")),
            ),
            log_index: gauge("election_agent_raft_log_index"),
            applied_index: gauge("election_agent_raft_applied_index"),
            snapshot_index: gauge("election_agent_raft_snapshot_index"),
            members: gauge("election_agent_raft_members"),
            quorum_age: add(
                &registry,
                prometheus::Gauge::with_opts(opts("election_agent_raft_quorum_age_seconds")),
            ),
            elections: gauge("election_agent_elections"),
            leases: gauge("election_agent_leases"),
            events: add(&registry, IntCounterVec::new(opts("election_agent_lease_events_total"), &["event"])),
            requests: add(
                &registry,
                IntCounterVec::new(opts("election_agent_requests_total"), &["method", "code"]),
            ),
            durations: add(
                &registry,
                HistogramVec::new(
                    HistogramOpts::from(opts("election_agent_request_duration_seconds"))
                        .buckets(BUCKETS.to_vec()),
                    &["method"],
                ),
            ),
            watches: gauge("election_agent_watches"),
            registry,
        }
    }

    /// Another node leads, or the same in another term.
    pub(crate) fn leader_changed(&self) {
        self.leader_changes.inc();
    }

    /// A command was applied here.
    pub(crate) fn applied(&self, command: &Command, reply: &Reply) {
        let event = match (command, reply) {
            (Command::Handover { .. }, Reply::Granted(..)) => "handed_over",
            // A request that was repeated begins a term of the lease it got.
            (_, Reply::Granted(seat, _)) if seat.renewals > 0 => "renewed",
            (_, Reply::Granted(..)) => "granted",
            (_, Reply::Kept(_)) => "renewed",
            (Command::Expire { .. }, Reply::Ended(_)) => "expired",
            (Command::End { .. }, Reply::Ended(_)) => "ended",
            (_, Reply::Ended(_)) => "released",
            (_, Reply::Taken(_) | Reply::Refused(_)) => return,
        };
        self.events.with_label_values(&[event]).inc();
    }

    /// A request was answered.
    pub(crate) fn answered(&self, method: &'static str, code: tonic::Code, took: Duration) {
        self.requests.with_label_values(&[method, &format!("{code:?}")]).inc();
        self.durations.with_label_values(&[method]).observe(took.as_secs_f64());
    }

    /// How many streams are open; the caller counts itself out again.
    pub(crate) fn watches(&self) -> &IntGauge {
        &self.watches
    }

    /// All of it, with what the node says at this moment.
    pub(crate) fn text(&self, node: &Node) -> String {
        let metrics = node.metrics();
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.term.set(number(metrics.current_term));
        self.is_leader.set(i64::from(metrics.state == openraft::ServerState::Leader));
        self.log_index.set(number(metrics.last_log_index.unwrap_or_default()));
        self.applied_index.set(number(metrics.last_applied.map_or(0, |last| last.index)));
        self.snapshot_index.set(number(metrics.snapshot.map_or(0, |last| last.index)));
        self.members.set(number(metrics.membership_config.membership().voter_ids().count() as u64));
        self.quorum_age.set(metrics.millis_since_quorum_ack.unwrap_or_default() as f64 / 1000.0);
        let (elections, leases) = node.applied().counts();
        self.elections.set(number(elections as u64));
        self.leases.set(number(leases as u64));
        let mut text = Vec::new();
        // Writing into memory does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8(text).unwrap_or_default()
    }
}

fn opts(name: &str) -> Opts {
    let about = NAMES.iter().find(|(known, _)| *known == name).map(|(_, about)| *about);
    Opts::new(name, about.expect("every metric is described"))
}

fn add<M: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<M>,
) -> M {
    let metric = made.expect("names and labels are fixed and right");
    registry.register(Box::new(metric.clone())).expect("every metric is registered once");
    metric
}
