//! Decides whether a cursor may be taken over: the new owner waits only for the owner that the cursor names.
//!
//! No list of former owners is needed, across any number of versions: the cursor names the last owner, and only that one
//! could still be at work.

use std::time::Duration;

use super::cursor::{Cursor, PreviousOwner};
use super::facts::Facts;

/// The decision of a new owner about a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakeoverDecision {
    /// Take it now.
    TakeOver(PreviousOwner),
    /// The holder may still be at work.
    Wait,
    /// Another worker follows a newer map: read it first.
    ReadMap,
}

/// Decides whether this worker, the new owner, may take over `cursor`, for which it has waited this long.
pub(super) fn decide_takeover(cursor: &Cursor, waited: Duration, facts: &Facts) -> TakeoverDecision {
    let Facts { config, roster, clock, .. } = facts;
    let (me, map) = (facts.me(), facts.serving_map());
    let holder = cursor.owner;
    if cursor.version > map.version {
        return TakeoverDecision::ReadMap;
    }
    if cursor.released {
        return TakeoverDecision::TakeOver(PreviousOwner::Released);
    }
    if holder == me {
        return TakeoverDecision::TakeOver(PreviousOwner::SameWorker);
    }
    let gone = || {
        TakeoverDecision::TakeOver(if roster.has_left(holder) {
            PreviousOwner::Released
        } else {
            PreviousOwner::Crashed
        })
    };
    if holder.id == me.id {
        return gone();
    }
    let seen = roster.get(holder.id);
    if let Some(seen) = seen {
        if seen.incarnation > holder.incarnation || roster.has_left(holder) {
            return gone();
        }
        if seen.incarnation == holder.incarnation {
            if seen.applied_version == map.version {
                return TakeoverDecision::TakeOver(PreviousOwner::Released);
            }
            if seen.applied_version > map.version {
                return facts.policy().on_newer_report();
            }
        }
    }
    // Out of the map and silent for as long as the fence takes: it has stopped itself. One that only became surplus
    // is out of the map too, and still finishes what it does; one that has just begun may not have been heard yet.
    let heard = seen.is_some_and(|seen| seen.incarnation == holder.incarnation);
    let silence = roster.time_since_heartbeat(holder.id, clock).filter(|_| heard).unwrap_or(waited);
    let silent = silence >= config.fence_after();
    if !map.workers.contains(&holder.id) && silent || waited >= config.process_timeout {
        return TakeoverDecision::TakeOver(PreviousOwner::Crashed);
    }
    TakeoverDecision::Wait
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::cursor::tests::{cursor, holder};
    use crate::facts::tests::healthy_facts;
    use crate::roster::tests::beat_of;
    use crate::types::{
        AssignmentMap, Epoch, Heartbeat, Lifecycle, Revision, Time, Version, Weight, WorkerId,
        WorkerIncarnation,
    };

    fn map(version: u64) -> AssignmentMap {
        AssignmentMap {
            version: Version(version),
            epoch: Epoch(1),
            lifecycle: Lifecycle::Stable,
            workers: BTreeSet::from([WorkerId(1), WorkerId(2)]),
            assignments: BTreeMap::new(),
            fleet_size: None,
            moved: 0,
            moved_weight: Weight(0),
            lower_bound_weight: Weight(0),
        }
    }

    fn facts(map: &AssignmentMap) -> Facts {
        let map = Some((map.clone().into(), Revision(1)));
        Facts { identity: Some(holder(2, 9)), map, ..healthy_facts(5) }
    }

    /// Returns the decision of worker 2, at version 3, about a cursor that worker 1 owns since version 1.
    fn verdict(beat: Option<Heartbeat>, map: &AssignmentMap, waited: u64) -> TakeoverDecision {
        let mut facts = facts(map);
        if let Some(beat) = beat {
            facts.roster.record_heartbeat(WorkerId(1), &beat, false, Time::from_secs(5), &facts.clock);
        }
        decide_takeover(&cursor(), Duration::from_secs(waited), &facts)
    }

    fn applied(version: u64) -> Heartbeat {
        Heartbeat { applied_version: Version(version), ..beat_of(holder(1, 1)) }
    }

    #[test]
    fn it_waits_for_the_holder_to_report_exactly_its_version() {
        assert_eq!(verdict(Some(applied(2)), &map(3), 0), TakeoverDecision::Wait);
        assert_eq!(
            verdict(Some(applied(3)), &map(3), 0),
            TakeoverDecision::TakeOver(PreviousOwner::Released)
        );
        assert_eq!(verdict(Some(applied(4)), &map(3), 0), TakeoverDecision::ReadMap);
    }

    #[test]
    fn it_does_not_wait_for_an_owner_that_left_restarted_or_timed_out() {
        let left = Heartbeat { left: true, ..beat_of(holder(1, 1)) };
        assert_eq!(verdict(Some(left), &map(3), 0), TakeoverDecision::TakeOver(PreviousOwner::Released));
        assert_eq!(
            verdict(Some(beat_of(holder(1, 2))), &map(3), 0),
            TakeoverDecision::TakeOver(PreviousOwner::Crashed)
        );
        assert_eq!(
            verdict(Some(applied(2)), &map(3), 30),
            TakeoverDecision::TakeOver(PreviousOwner::Crashed)
        );
    }

    #[test]
    fn one_that_is_out_of_the_map_is_waited_for_only_while_it_is_heard() {
        let without = AssignmentMap { workers: BTreeSet::from([WorkerId(2)]), ..map(3) };
        assert_eq!(verdict(Some(applied(2)), &without, 0), TakeoverDecision::Wait);
        assert_eq!(verdict(None, &without, 0), TakeoverDecision::Wait);
        assert_eq!(verdict(None, &without, 5), TakeoverDecision::TakeOver(PreviousOwner::Crashed));
        assert_eq!(verdict(Some(beat_of(holder(1, 0))), &without, 0), TakeoverDecision::Wait);
        assert_eq!(verdict(None, &map(3), 0), TakeoverDecision::Wait);
    }

    /// Returns the verdict of worker 2, at version 3, for a released cursor of `holder`.
    fn verdict_for_released(holder: WorkerIncarnation, version: u64) -> TakeoverDecision {
        let released = Cursor { owner: holder, version: Version(version), ..cursor() }.released();
        decide_takeover(&released, Duration::ZERO, &facts(&map(3)))
    }

    #[test]
    fn a_released_cursor_is_taken_over_immediately_and_cleanly() {
        // Another worker without a leave record, an earlier incarnation of this id, and this incarnation itself.
        for former in [holder(1, 1), holder(2, 8), holder(2, 9)] {
            assert_eq!(
                verdict_for_released(former, 1),
                TakeoverDecision::TakeOver(PreviousOwner::Released),
                "{former:?}"
            );
        }
        assert_eq!(
            verdict_for_released(holder(1, 1), 4),
            TakeoverDecision::ReadMap,
            "a newer map comes first"
        );
    }

    #[test]
    fn a_cursor_of_a_newer_map_is_never_taken() {
        assert_eq!(verdict(Some(applied(0)), &map(0), 99), TakeoverDecision::ReadMap);
    }
}
