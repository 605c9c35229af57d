use super::*;

const TTL: u64 = 10_000;

fn acquire(candidate: &str, attempt: u64, nonce: u64) -> Command {
    Command::Acquire {
        election: "e".to_owned(),
        candidate: candidate.to_owned(),
        ttl_ms: TTL,
        epoch_min: 0,
        attempt,
        if_revision: None,
        nonce: Nonce(nonce, 0),
    }
}

fn renew(nonce: u64) -> Command {
    Command::Renew { election: "e".to_owned(), nonce: Nonce(nonce, 0) }
}

fn release(nonce: u64) -> Command {
    Command::Release { election: "e".to_owned(), nonce: Nonce(nonce, 0) }
}

fn expire(epoch: u64, renewals: u64, raft_term: u64) -> Command {
    Command::Expire { election: "e".to_owned(), mark: Mark { epoch, renewals }, raft_term }
}

fn granted(reply: &Reply) -> (u64, u64) {
    match reply {
        Reply::Granted(seat, nonce) => (seat.epoch, nonce.0),
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn a_lease_that_has_not_ended_is_nobody_elses() {
    let mut leases = Leases::default();
    assert_eq!(granted(&leases.apply(1, &acquire("a", 7, 1))), (1, 1));
    let Reply::Taken(seat) = leases.apply(1, &acquire("b", 8, 2)) else { panic!("b got it") };
    assert_eq!(seat.leader.as_deref(), Some("a"));
    assert!(matches!(leases.apply(1, &release(2)), Reply::Refused(Refusal::NotLeader(_))));
    assert!(matches!(leases.apply(1, &release(1)), Reply::Ended(_)));
    assert_eq!(granted(&leases.apply(1, &acquire("b", 8, 3))), (2, 3));
}

#[test]
fn an_attempt_repeated_gives_the_same_lease_and_begins_a_term() {
    let mut leases = Leases::default();
    let first = leases.apply(1, &acquire("a", 7, 1));
    let again = leases.apply(1, &acquire("a", 7, 2));
    assert_eq!(granted(&again), granted(&first), "the same epoch and secret");
    assert_eq!(leases.seat("e").unwrap().renewals, 1);
    // The term that began with the first request is over: the second one began another.
    assert!(matches!(leases.apply(1, &expire(1, 0, 1)), Reply::Refused(_)));
    assert!(matches!(leases.apply(1, &renew(1)), Reply::Kept(_)));
}

#[test]
fn a_newer_life_of_a_name_takes_its_lease_and_the_older_ones_secret_is_dead() {
    let mut leases = Leases::default();
    leases.apply(1, &acquire("a", 7, 1));
    assert_eq!(granted(&leases.apply(1, &acquire("a", 8, 2))), (2, 2));
    assert!(matches!(leases.apply(1, &renew(1)), Reply::Refused(Refusal::NotLeader(_))));
    assert_eq!(
        granted(&leases.apply(1, &acquire("a", 0, 3))),
        (3, 3),
        "without a number each request is a life"
    );
    assert_eq!(granted(&leases.apply(1, &acquire("a", 0, 4))), (4, 4));
}

#[test]
fn an_expiry_ends_only_the_very_term_that_was_counted_by_the_leader_that_counts() {
    let mut leases = Leases::default();
    leases.apply(1, &acquire("a", 7, 1));
    leases.apply(1, &renew(1));
    for wrong in [expire(1, 0, 1), expire(2, 1, 1), expire(1, 1, 2)] {
        assert!(matches!(leases.apply(1, &wrong), Reply::Refused(_)), "{wrong:?}");
        assert_eq!(leases.seat("e").unwrap().leader.as_deref(), Some("a"));
    }
    assert!(matches!(leases.apply(2, &expire(1, 1, 2)), Reply::Ended(_)));
    assert_eq!(leases.seat("e").unwrap().leader, None);
    assert!(matches!(leases.apply(2, &renew(1)), Reply::Refused(Refusal::NotLeader(_))), "too late");
}

#[test]
fn epochs_grow_over_every_way_a_lease_can_end_and_are_at_least_what_is_asked_for() {
    let mut leases = Leases::default();
    let mut last = 0;
    for round in 1..=20u64 {
        let (epoch, nonce) = granted(&leases.apply(1, &acquire("a", round, round)));
        assert!(epoch > last);
        last = epoch;
        match round % 3 {
            0 => leases.apply(1, &release(nonce)),
            1 => leases.apply(1, &expire(epoch, 0, 1)),
            _ => leases.apply(1, &Command::Resign { election: "e".to_owned(), leader: "a".to_owned() }),
        };
    }
    let ask = Command::Acquire {
        election: "e".to_owned(),
        candidate: "b".to_owned(),
        ttl_ms: TTL,
        epoch_min: 1000,
        attempt: 0,
        if_revision: None,
        nonce: Nonce(9, 9),
    };
    assert_eq!(granted(&leases.apply(1, &ask)).0, 1000);
}

#[test]
fn whoever_is_asked_to_resign_keeps_its_term_and_gets_no_other() {
    let mut leases = Leases::default();
    leases.apply(1, &acquire("a", 7, 1));
    let end = |epoch: u64| Command::End { election: "e".to_owned(), epoch };
    assert!(matches!(leases.apply(1, &end(2)), Reply::Refused(Refusal::NotLeader(_))));
    assert!(matches!(leases.apply(1, &end(1)), Reply::Ended(_)));
    assert!(matches!(leases.apply(1, &renew(1)), Reply::Refused(Refusal::Ending(_))));
    assert!(matches!(leases.apply(1, &acquire("a", 7, 1)), Reply::Taken(_)), "nor by asking again");
    assert!(matches!(leases.apply(1, &acquire("b", 8, 2)), Reply::Taken(_)), "it may still act");
    leases.apply(1, &expire(1, 0, 1));
    assert_eq!(granted(&leases.apply(1, &acquire("b", 8, 2))), (2, 2));
}

#[test]
fn names_hold_where_there_are_no_secrets() {
    let mut leases = Leases::default();
    let campaign = |candidate: &str, nonce: u64| Command::Campaign {
        election: "e".to_owned(),
        candidate: candidate.to_owned(),
        ttl_ms: TTL,
        nonce: Nonce(nonce, 0),
    };
    let extend =
        |leader: &str| Command::Extend { election: "e".to_owned(), leader: leader.to_owned(), ttl_ms: 2000 };
    assert_eq!(leases.apply(1, &extend("a")), Reply::Refused(Refusal::Unknown));
    assert_eq!(granted(&leases.apply(1, &campaign("a", 1))), (1, 1));
    assert!(matches!(leases.apply(1, &campaign("b", 2)), Reply::Taken(_)));
    assert!(matches!(leases.apply(1, &campaign("a", 3)), Reply::Kept(_)), "one's own is kept");
    assert!(matches!(leases.apply(1, &extend("b")), Reply::Refused(Refusal::NotLeader(_))));
    assert!(
        matches!(leases.apply(1, &extend("a")), Reply::Kept(seat) if seat.ttl_ms == 2000 && seat.epoch == 1)
    );
    let handover = Command::Handover {
        election: "e".to_owned(),
        leader: "b".to_owned(),
        ttl_ms: TTL,
        nonce: Nonce(4, 0),
    };
    assert_eq!(granted(&leases.apply(1, &handover)).0, 2);
    assert!(matches!(leases.apply(1, &extend("a")), Reply::Refused(Refusal::NotLeader(_))));
}

#[test]
fn revisions_grow_with_every_change_and_with_nothing_else() {
    let mut leases = Leases::default();
    leases.apply(1, &acquire("a", 7, 1));
    let before = leases.clone();
    for idle in [acquire("b", 1, 5), renew(9), release(9), expire(5, 5, 1)] {
        leases.apply(1, &idle);
        assert_eq!(leases, before, "{idle:?}");
    }
    leases.apply(1, &renew(1));
    assert_eq!(leases.revision(), before.revision() + 1);
    assert_eq!(leases.seat("e").unwrap().revision, leases.revision());
}

#[test]
fn there_is_an_end_to_elections_but_not_for_those_that_are_there() {
    let mut leases = Leases::default();
    for number in 0..ELECTIONS_MAX {
        leases.elections.insert(format!("e{number}"), Record::default());
    }
    let more = |name: &str| Command::Campaign {
        election: name.to_owned(),
        candidate: "a".to_owned(),
        ttl_ms: TTL,
        nonce: Nonce(1, 1),
    };
    assert_eq!(leases.apply(1, &more("one-more")), Reply::Refused(Refusal::Full));
    assert_eq!(granted(&leases.apply(1, &more("e7"))).0, 1);
}

#[test]
fn a_request_that_comes_late_changes_nothing() {
    let mut leases = Leases::default();
    let seen = |attempt: u64, revision: u64| match acquire("a", attempt, attempt) {
        Command::Acquire { election, candidate, ttl_ms, epoch_min, attempt, nonce, .. } => {
            let if_revision = Some(revision);
            Command::Acquire { election, candidate, ttl_ms, epoch_min, attempt, if_revision, nonce }
        }
        other => other,
    };
    // One try is answered, another of the same arrives when all is over.
    assert_eq!(granted(&leases.apply(1, &seen(7, 0))), (1, 7));
    assert_eq!(granted(&leases.apply(1, &seen(7, 0))), (1, 7), "the answer was lost");
    leases.apply(1, &release(7));
    assert!(matches!(leases.apply(1, &seen(7, 0)), Reply::Taken(seat) if seat.leader.is_none()));
    // Nor does it end a newer life of the same name.
    let now = leases.seat("e").unwrap().revision;
    assert_eq!(granted(&leases.apply(1, &seen(8, now))), (2, 8));
    assert!(matches!(leases.apply(1, &seen(7, 0)), Reply::Taken(_)));
    assert!(matches!(leases.apply(1, &renew(8)), Reply::Kept(_)));
}
