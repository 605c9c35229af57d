//! The checker of histories is checked itself: it accepts what a lease may do and refuses what it may not.

use crate::checker::{Act, Op, check};

const TERM: u64 = 1000;

fn op(called: u64, answered: u64, act: Act) -> Op {
    Op { called, answered: Some(answered), act }
}

fn open(called: u64, act: Act) -> Op {
    Op { called, answered: None, act }
}

#[track_caller]
fn accepted(history: &[Op]) {
    assert_eq!(check(TERM, history), Ok(()));
}

#[track_caller]
fn refused(history: &[Op], at: Act) {
    assert_eq!(check(TERM, history).map_err(|op| op.act), Err(at));
}

#[test]
fn a_lease_may_be_taken_kept_given_back_and_run_out() {
    accepted(&[
        op(0, 10, Act::Granted(1, 1)),
        op(5, 20, Act::Taken(1, 1)),
        op(30, 40, Act::Kept(1, 1)),
        op(50, 60, Act::SawLeader(1, 1)),
        op(70, 80, Act::Released(1, 1)),
        op(75, 90, Act::Granted(2, 2)),
        op(1080, 1090, Act::SawNobody(2)),
        op(1100, 1110, Act::NotKept(2, 2)),
        op(1120, 1130, Act::Granted(3, 3)),
    ]);
}

#[test]
fn what_was_not_answered_may_have_happened_late_or_never() {
    let maybe =
        [open(0, Act::MaybeGranted(1)), op(500, 510, Act::SawLeader(1, 1)), op(520, 530, Act::Taken(1, 1))];
    accepted(&maybe);
    accepted(&[open(0, Act::MaybeGranted(1)), op(500, 510, Act::Granted(2, 1))]);
    accepted(&[
        op(0, 10, Act::Granted(1, 1)),
        open(20, Act::MaybeReleased(1, 1)),
        op(100, 110, Act::Granted(2, 2)),
    ]);
}

#[test]
fn a_call_that_asks_again_may_be_granted_a_lease_that_expires_before_its_answer() {
    let seen = op(100, 110, Act::SawLeader(1, 1));
    let granted = |answered| [op(0, answered, Act::MaybeGranted(1)), op(0, answered, Act::Granted(1, 2))];
    let [besides, answer] = granted(1500);
    accepted(&[besides, answer, seen]);
    refused(&[answer, seen], seen.act);
    // It happens before the answer, not after it.
    let [besides, answer] = granted(50);
    refused(&[besides, answer, seen], seen.act);
}

#[test]
fn two_at_once_are_refused() {
    refused(&[op(0, 10, Act::Granted(1, 1)), op(20, 30, Act::Granted(2, 2))], Act::Granted(2, 2));
}

#[test]
fn an_epoch_that_is_used_again_is_refused() {
    let history =
        [op(0, 10, Act::Granted(1, 1)), op(20, 30, Act::Released(1, 1)), op(40, 50, Act::Granted(2, 1))];
    refused(&history, Act::Granted(2, 1));
}

#[test]
fn a_look_at_an_older_leader_is_refused() {
    refused(
        &[
            op(0, 10, Act::Granted(1, 1)),
            op(20, 30, Act::Released(1, 1)),
            op(40, 50, Act::Granted(2, 2)),
            op(60, 70, Act::SawLeader(1, 1)),
        ],
        Act::SawLeader(1, 1),
    );
}

#[test]
fn keeping_what_another_has_is_refused() {
    refused(
        &[op(0, 10, Act::Granted(1, 1)), op(1020, 1030, Act::Granted(2, 2)), op(1040, 1050, Act::Kept(1, 1))],
        Act::Kept(1, 1),
    );
}

#[test]
fn an_end_before_the_term_is_over_is_refused() {
    let kept = [op(0, 10, Act::Granted(1, 1)), op(600, 610, Act::Kept(1, 1))];
    let early = op(1400, 1410, Act::SawNobody(1));
    refused(&[kept[0], kept[1], early], early.act);
    accepted(&[kept[0], kept[1], op(1600, 1610, Act::SawNobody(1))]);
}

#[test]
fn a_leader_that_nobody_can_have_granted_is_refused() {
    refused(&[op(0, 10, Act::SawLeader(7, 3))], Act::SawLeader(7, 3));
}

#[test]
fn a_loss_within_ones_own_term_is_refused() {
    refused(&[op(0, 10, Act::Granted(1, 1)), op(20, 30, Act::NotKept(1, 1))], Act::NotKept(1, 1));
}
