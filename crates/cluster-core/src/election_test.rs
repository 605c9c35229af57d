use super::*;
use crate::cursor::tests::holder;
use crate::facts::tests::healthy_facts;
use crate::io::Effect;
use crate::roster::tests::beat_of;
use crate::types::Heartbeat;

struct Fixture {
    election: Election,
    facts: Facts,
    outbox: Outbox,
}

impl Fixture {
    /// Returns worker 2, which has watched for ten seconds and hears worker 1.
    fn new() -> Self {
        let mut facts = healthy_facts(10);
        facts.identity = Some(holder(2, 9));
        facts.watching_since = Some(crate::roster::tests::healthy_clock(0).now());
        facts.roster.record_heartbeat(
            holder(1, 5).id,
            &beat_of(holder(1, 5)),
            false,
            facts.now,
            &facts.clock,
        );
        Self { election: Election::new(), facts, outbox: Outbox::default() }
    }

    fn campaign(&mut self) -> Vec<Effect> {
        self.election.campaign(&self.facts, &mut self.outbox);
        self.outbox.take()
    }

    fn watched(&mut self, lease: Option<(Lease, u64)>) -> ElectionOutcome {
        let entry = lease.map(|(lease, revision)| entry(lease, revision));
        self.election.watched(entry.as_ref(), &self.facts)
    }

    fn written(&mut self, serial: u64, result: Result<u64, WriteError>) -> (ElectionOutcome, Vec<Effect>) {
        let result = result.map(|revision| Written { revision: Revision(revision), stored_at: 0 });
        let request_id = RequestId { purpose: Purpose::Lease, serial };
        let outcome = self.election.written(request_id, result, &self.facts, &mut self.outbox);
        (outcome, self.outbox.take())
    }

    fn fetched(&mut self, serial: u64, found: Option<(Lease, u64)>) -> ElectionOutcome {
        let request_id = RequestId { purpose: Purpose::ReadLease, serial };
        let found = found.map(|(lease, revision)| entry(lease, revision));
        self.election.fetched(request_id, Ok(found), &self.facts)
    }
}

fn entry(lease: Lease, revision: u64) -> Entry {
    Entry { value: Value::Lease(lease), revision: Revision(revision), stored_at: 0 }
}

fn lease(worker: WorkerIncarnation, epoch: u64, renewals: u64) -> Lease {
    Lease { holder: worker, epoch: Epoch(epoch), renewals }
}

fn write(serial: u64, lease: Lease, condition: Condition) -> Effect {
    let request_id = RequestId { purpose: Purpose::Lease, serial };
    Effect::Write { request_id, key: Key::Lease, value: Value::Lease(lease), condition }
}

#[test]
fn a_vacant_lease_is_created_with_an_epoch_above_every_seen_one() {
    let mut fixture = Fixture::new();
    fixture.election.note_epoch(Epoch(6));
    assert_eq!(fixture.campaign(), [write(1, lease(holder(2, 9), 7, 0), Condition::Absent)]);
    assert_eq!(fixture.campaign(), [], "one request at a time");
    assert_eq!(fixture.written(1, Ok(20)), (ElectionOutcome::Won(Epoch(7)), vec![]));
}

#[test]
fn the_holder_renews_its_own_revision_every_five_seconds() {
    let mut fixture = Fixture::new();
    fixture.campaign();
    fixture.written(1, Ok(20));
    assert_eq!(fixture.campaign(), [], "it is not time yet");
    assert_eq!(fixture.election.next_deadline(), Some(Time::from_secs(15)));
    fixture.facts.now = Time::from_secs(15);
    let renewed = lease(holder(2, 9), 1, 1);
    assert_eq!(fixture.campaign(), [write(2, renewed, Condition::Revision(Revision(20)))]);
    assert_eq!(fixture.written(2, Ok(21)), (ElectionOutcome::Nothing, vec![]));
}

#[test]
fn a_lease_of_a_live_worker_is_not_taken_over() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.watched(Some((lease(holder(1, 5), 3, 0), 20))), ElectionOutcome::Nothing);
    assert_eq!(fixture.campaign(), []);
    assert_eq!(fixture.election.leader(), Some(holder(1, 5)));
}

#[test]
fn a_lease_is_taken_over_by_compare_and_swap_from_a_worker_that_left_or_restarted() {
    let left = Heartbeat { left: true, ..beat_of(holder(1, 5)) };
    for heartbeat in [left, beat_of(holder(1, 6))] {
        let mut fixture = Fixture::new();
        fixture.watched(Some((lease(holder(1, 5), 3, 0), 20)));
        fixture.facts.roster.record_heartbeat(
            holder(1, 5).id,
            &heartbeat,
            false,
            fixture.facts.now,
            &fixture.facts.clock,
        );
        let taken = lease(holder(2, 9), 4, 0);
        assert_eq!(fixture.campaign(), [write(1, taken, Condition::Revision(Revision(20)))], "{heartbeat:?}");
    }
}

#[test]
fn an_earlier_incarnation_of_the_own_id_frees_the_lease_and_a_later_one_does_not() {
    for (incarnation, requests) in [(8, 1), (10, 0)] {
        let mut fixture = Fixture::new();
        fixture.watched(Some((lease(holder(2, incarnation), 3, 0), 20)));
        assert_eq!(fixture.campaign().len(), requests, "incarnation {incarnation}");
    }
}

#[test]
fn a_write_without_an_answer_is_settled_by_a_read() {
    for (found, outcome) in [
        (Some((lease(holder(2, 9), 1, 0), 20)), ElectionOutcome::Won(Epoch(1))),
        (Some((lease(holder(1, 5), 2, 0), 21)), ElectionOutcome::Nothing),
        (None, ElectionOutcome::Nothing),
    ] {
        let mut fixture = Fixture::new();
        fixture.campaign();
        let request_id = RequestId { purpose: Purpose::ReadLease, serial: 2 };
        let read = Effect::Read { request_id, key: Key::Lease };
        assert_eq!(fixture.written(1, Err(WriteError::Unknown)), (ElectionOutcome::Nothing, vec![read]));
        assert_eq!(fixture.fetched(2, found.clone()), outcome, "{found:?}");
    }
}

#[test]
fn another_holder_with_a_newer_revision_ends_the_leadership() {
    let mut fixture = Fixture::new();
    fixture.campaign();
    fixture.written(1, Ok(20));
    let other = lease(holder(1, 5), 2, 0);
    assert_eq!(fixture.watched(Some((other.clone(), 19))), ElectionOutcome::Nothing, "an old value");
    assert_eq!(fixture.watched(Some((other, 21))), ElectionOutcome::Lost);
}

#[test]
fn a_leader_resigns_exactly_the_revision_that_it_wrote() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.election.resign(&fixture.facts.config, &mut fixture.outbox), None);
    fixture.campaign();
    fixture.written(1, Ok(20));
    let request_id = RequestId { purpose: Purpose::Resign, serial: 2 };
    assert_eq!(fixture.election.resign(&fixture.facts.config, &mut fixture.outbox), Some(request_id));
    let deleted = Effect::Delete { request_id, key: Key::Lease, revision: Revision(20) };
    assert_eq!(fixture.outbox.take(), [deleted]);
}

#[test]
fn with_an_election_agent_the_leadership_ends_a_term_after_the_sending_of_the_last_renewal() {
    let mut fixture = Fixture::new();
    fixture.facts.config.lease_expiry = LeaseExpiry::AfterTerm(fixture.facts.config.lease_term);
    fixture.campaign();
    fixture.facts.now = Time::from_secs(12);
    fixture.written(1, Ok(20));
    assert_eq!(fixture.election.tick(Time::from_secs(19)), ElectionOutcome::Nothing);
    assert_eq!(fixture.election.tick(Time::from_secs(20)), ElectionOutcome::Lost);
}

#[test]
fn a_worker_that_may_not_lead_never_asks() {
    let mut fixture = Fixture::new();
    fixture.facts.config.controller_enabled = false;
    assert_eq!(fixture.campaign(), []);
}
