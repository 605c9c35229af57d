use super::*;
use crate::facts::tests::healthy_facts;
use crate::io::Effect;
use crate::types::{Claim, Pod, Value};

const ID: WorkerId = WorkerId(4);
const DEAD: Incarnation = Incarnation(100);

struct Fixture {
    suspects: Suspects,
    facts: Facts,
    outbox: Outbox,
}

impl Fixture {
    fn new() -> Self {
        Self { suspects: Suspects::default(), facts: healthy_facts(30), outbox: Outbox::default() }
    }

    fn suspect(&mut self) -> Vec<Effect> {
        self.suspects.suspect(ID, DEAD, &self.facts, &mut self.outbox);
        self.outbox.take()
    }

    fn fetched(
        &mut self,
        request_id: RequestId,
        result: Result<Option<Entry>, ReadError>,
    ) -> (Option<(WorkerId, Entry)>, Vec<Effect>) {
        let heartbeat = self.suspects.fetched(request_id, result, &self.facts, &mut self.outbox);
        (heartbeat, self.outbox.take())
    }

    fn free(&mut self) -> Vec<Effect> {
        self.suspects.free_for_standby(Time::from_secs(32), &mut self.outbox);
        self.outbox.take()
    }
}

fn request(purpose: Purpose, serial: u64) -> RequestId {
    RequestId { purpose, serial }
}

fn read_claim(serial: u64) -> Effect {
    Effect::Read { request_id: request(Purpose::SuspectClaim, serial), key: Key::Claim(ID) }
}

fn read_heartbeat(serial: u64) -> Effect {
    Effect::Read { request_id: request(Purpose::SuspectHeartbeat, serial), key: Key::Heartbeat(ID) }
}

fn claim(stored_at: u64, renewals: u64) -> Entry {
    let pod = Pod { name: "pod".into(), uid: "uid".into() };
    Entry { value: Value::Claim(Claim { pod, renewals }), revision: Revision(7), stored_at }
}

#[test]
fn the_claim_is_read_then_the_heartbeat_then_exactly_that_claim_is_freed() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.suspect(), [read_claim(1)]);
    assert_eq!(fixture.suspect(), [], "one check at a time");
    let claimed = fixture.fetched(request(Purpose::SuspectClaim, 1), Ok(Some(claim(100, 0))));
    assert_eq!(claimed, (None, vec![read_heartbeat(2)]));
    assert!(!fixture.suspects.is_confirmed_dead(ID, Time::from_secs(30)));
    assert_eq!(fixture.fetched(request(Purpose::SuspectHeartbeat, 2), Ok(None)), (None, vec![]));
    assert!(fixture.suspects.is_confirmed_dead(ID, Time::from_secs(30)));
    let freed = Effect::Delete {
        request_id: request(Purpose::FreeId, 3),
        key: Key::Claim(ID),
        revision: Revision(7),
    };
    assert_eq!(fixture.free(), [freed]);
    assert_eq!(fixture.free(), [], "an id is freed once");
    assert_eq!(fixture.suspects.next_deadline(), Some(Time::from_secs(32)));
    assert!(!fixture.suspects.is_confirmed_dead(ID, Time::from_secs(31)), "a standby has its time");
    assert!(fixture.suspects.is_confirmed_dead(ID, Time::from_secs(32)));
}

#[test]
fn an_error_starts_the_check_again() {
    let mut fixture = Fixture::new();
    fixture.suspect();
    assert_eq!(
        fixture.fetched(request(Purpose::SuspectClaim, 1), Err(ReadError)),
        (None, vec![read_claim(2)])
    );
    fixture.fetched(request(Purpose::SuspectClaim, 2), Ok(None));
    let again = fixture.fetched(request(Purpose::SuspectHeartbeat, 3), Err(ReadError));
    assert_eq!(again, (None, vec![read_claim(4)]));
    assert!(!fixture.suspects.has_confirmed());
}

#[test]
fn the_heartbeat_that_was_read_is_returned() {
    let mut fixture = Fixture::new();
    fixture.suspect();
    fixture.fetched(request(Purpose::SuspectClaim, 1), Ok(None));
    let entry = Entry { revision: Revision(9), ..claim(0, 0) };
    let (heartbeat, effects) =
        fixture.fetched(request(Purpose::SuspectHeartbeat, 2), Ok(Some(entry.clone())));
    assert_eq!((heartbeat, effects), (Some((ID, entry)), vec![]));
}

#[test]
fn the_claim_of_a_successor_is_not_freed_and_a_renewed_one_is() {
    for (found, freed) in [(claim(101, 0), 0), (claim(101, 3), 1), (claim(100, 0), 1)] {
        let mut fixture = Fixture::new();
        fixture.suspect();
        fixture.fetched(request(Purpose::SuspectClaim, 1), Ok(Some(found.clone())));
        fixture.fetched(request(Purpose::SuspectHeartbeat, 2), Ok(None));
        assert_eq!(fixture.free().len(), freed, "{found:?}");
    }
}

#[test]
fn the_check_of_a_worker_that_is_heard_again_ends() {
    let mut fixture = Fixture::new();
    fixture.suspect();
    fixture.suspects.retain(|_| false);
    assert_eq!(fixture.fetched(request(Purpose::SuspectClaim, 1), Ok(None)), (None, vec![]));
    assert_eq!(fixture.suspect(), [read_claim(2)]);
}
