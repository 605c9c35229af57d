//! The cursor: how far a partition's log is committed, and by whom. Every change of it is a function here.
//!
//! Committing is the compare-and-swap of this value: acknowledgement and fence in one. Whoever *takes* it raises the
//! take, and from then on its predecessor can commit nothing.

use std::sync::Arc;

use super::types::{Holder, Version};

/// After this many failures, or failures and deaths together, a message is judged.
pub const ATTEMPTS: u32 = 3;

/// A place in the log that is never used twice: also a log that was made anew has other positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Grows when the log is replaced, or when the cursor was lost.
    pub generation: u64,
    /// The sequence in the log; 0 is before the first message.
    pub sequence: u64,
}

/// How far a partition is committed, and who may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The last committed message.
    pub position: Position,
    /// Where the chart state to go on from was written: the last committed position, in whichever generation.
    pub base: Option<Position>,
    /// The id of the last committed message.
    pub context: Arc<str>,
    /// Which log this is: the time it was made.
    pub stream: u64,
    /// The time stamp of the last committed rows; it only grows.
    pub stamp: u64,
    /// Who may commit.
    pub holder: Holder,
    /// The map by which it took.
    pub version: Version,
    /// Grows with every taking.
    pub take: u64,
    /// How often the next message failed.
    pub failures: u32,
    /// How often a holder died or was displaced with the next message before it.
    pub deaths: u32,
    /// The next message runs, or ran, with nothing beside it.
    pub solo: bool,
    /// The next message is condemned, and why.
    pub dead: Option<Arc<str>>,
    /// Which message the last four are about, where that is known: it may expire before its verdict is carried out.
    pub judged: Option<u64>,
    /// Up to here the log was seen to hold nothing unread of this partition.
    pub clean_to: u64,
    /// Whether the holder left cleanly and nothing of its work is under way: the next owner may take over immediately.
    pub released: bool,
}

/// How the last holder let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predecessor {
    /// It is we ourselves, in the same life.
    Ourselves,
    /// It finished what it did and said so.
    Clean,
    /// It died, or was displaced.
    Unclean,
}

impl Cursor {
    /// Takes the cursor: from now on nobody else can commit.
    #[must_use]
    pub fn taken(&self, by: Holder, version: Version, predecessor: Predecessor) -> Self {
        let take = self.take + 1;
        let mut taken = Self { holder: by, version, take, solo: false, released: false, ..self.clone() };
        if predecessor == Predecessor::Unclean {
            taken.deaths += 1;
            if self.solo && taken.dead.is_none() {
                taken.dead = Some("its worker died while it ran alone".into());
            }
        }
        taken
    }

    /// The log is another one, or does not hold what it held: everything in it is new.
    #[must_use]
    pub fn replaced(&self, stream: u64) -> Self {
        Self {
            position: Position { generation: self.position.generation + 1, sequence: 0 },
            context: "".into(),
            stream,
            failures: 0,
            deaths: 0,
            solo: false,
            dead: None,
            judged: None,
            clean_to: 0,
            released: false,
            ..self.clone()
        }
    }

    /// Nothing is held against the message at `sequence` that was another one's fault.
    #[must_use]
    pub fn judging(self, sequence: u64) -> Self {
        if self.judged.is_none_or(|judged| judged == sequence) {
            return self;
        }
        Self { failures: 0, deaths: 0, solo: false, dead: None, judged: None, ..self }
    }

    /// The stamp of the next message: the broker's time, and above the last one whatever the broker's clock does.
    pub fn next_stamp(&self, stored_at: u64) -> u64 {
        stored_at.max(self.stamp + 1)
    }

    /// The next message is committed.
    #[must_use]
    pub fn advanced(&self, sequence: u64, context: Arc<str>, stamp: u64) -> Self {
        let position = Position { sequence, ..self.position };
        Self {
            position,
            base: Some(position),
            context,
            stamp,
            failures: 0,
            deaths: 0,
            solo: false,
            dead: None,
            judged: None,
            clean_to: self.clean_to.max(sequence),
            released: false,
            ..self.clone()
        }
    }

    /// The next message failed once more; too many failures condemn it. The next attempt has a take of its own, so that
    /// rows of this one, which may still be on their way, never count as that one's.
    #[must_use]
    pub fn failed(&self, sequence: u64, reason: &Arc<str>) -> Self {
        let failures = self.failures + 1;
        let dead = (failures >= ATTEMPTS).then(|| reason.clone());
        Self {
            failures,
            dead,
            solo: false,
            judged: Some(sequence),
            take: self.take + 1,
            released: false,
            ..self.clone()
        }
    }

    /// The next message is condemned.
    #[must_use]
    pub fn condemned(&self, sequence: u64, reason: &Arc<str>) -> Self {
        let dead = Some(reason.clone());
        Self { dead, solo: false, judged: Some(sequence), released: false, ..self.clone() }
    }

    /// The next message runs with nothing beside it.
    #[must_use]
    pub fn alone(&self, sequence: u64) -> Self {
        Self { solo: true, judged: Some(sequence), released: false, ..self.clone() }
    }

    /// Whether the next message must run with nothing beside it: it has been there too often when something went wrong.
    pub fn wants_solo(&self) -> bool {
        self.failures + self.deaths >= ATTEMPTS
    }

    /// The log was seen to hold nothing unread up to `sequence`.
    #[must_use]
    pub fn clean(&self, sequence: u64) -> Self {
        Self { clean_to: self.clean_to.max(sequence), released: false, ..self.clone() }
    }

    /// Marks the cursor as released by its holder, which leaves.
    #[must_use]
    pub fn released(&self) -> Self {
        Self { released: true, solo: false, ..self.clone() }
    }

    /// Up to here nothing unread can have been there.
    pub fn read_to(&self) -> u64 {
        self.clean_to.max(self.position.sequence)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::types::{Incarnation, WorkerId};

    pub(crate) fn holder(id: u32, incarnation: u64) -> Holder {
        Holder { id: WorkerId(id), incarnation: Incarnation(incarnation) }
    }

    pub(crate) fn cursor() -> Cursor {
        let position = Position { generation: 1, sequence: 7 };
        Cursor {
            position,
            base: Some(position),
            context: "run-7".into(),
            stream: 11,
            stamp: 100,
            holder: holder(1, 1),
            version: Version(1),
            take: 4,
            failures: 0,
            deaths: 0,
            solo: false,
            dead: None,
            judged: None,
            clean_to: 7,
            released: false,
        }
    }

    #[test]
    fn every_rewrite_of_a_released_cursor_clears_the_mark() {
        let released = Cursor { solo: true, ..cursor() }.released();
        assert_eq!((released.released, released.solo), (true, false));
        let reason: Arc<str> = "no such T-chart".into();
        for (rewrite, rewritten) in [
            ("takeover", released.taken(holder(2, 9), Version(3), Predecessor::Clean)),
            ("replaced log", released.replaced(12)),
            ("commit", released.advanced(8, "run-8".into(), 101)),
            ("failure", released.failed(8, &reason)),
            ("dead letter", released.condemned(8, &reason)),
            ("isolated attempt", released.alone(8)),
            ("watermark", released.clean(9)),
        ] {
            assert!(!rewritten.released, "{rewrite}");
        }
    }

    #[test]
    fn a_take_from_the_dead_adds_a_death_and_a_clean_one_none() {
        let dead = cursor().taken(holder(2, 9), Version(3), Predecessor::Unclean);
        assert_eq!((dead.take, dead.version, dead.holder, dead.deaths), (5, Version(3), holder(2, 9), 1));
        for clean in [Predecessor::Clean, Predecessor::Ourselves] {
            assert_eq!(cursor().taken(holder(2, 9), Version(3), clean).deaths, 0);
        }
    }

    #[test]
    fn three_failures_condemn_and_three_of_both_kinds_ask_for_a_run_alone() {
        let reason: Arc<str> = "no such T-chart".into();
        let twice = cursor().failed(8, &reason).failed(8, &reason);
        assert_eq!((twice.dead.clone(), twice.wants_solo()), (None, false));
        assert_eq!(twice.failed(8, &reason).dead, Some(reason));
        let mixed = twice.taken(holder(2, 9), Version(3), Predecessor::Unclean);
        assert_eq!((mixed.dead.clone(), mixed.wants_solo()), (None, true));
    }

    #[test]
    fn only_a_death_alone_condemns() {
        let alone = Cursor { deaths: 3, ..cursor() }.alone(8);
        let clean = alone.taken(holder(2, 9), Version(3), Predecessor::Clean);
        assert_eq!((clean.dead, clean.solo), (None, false));
        let crowded = Cursor { deaths: 5, ..cursor() };
        assert_eq!(crowded.taken(holder(2, 9), Version(3), Predecessor::Unclean).dead, None);
        assert!(alone.taken(holder(2, 9), Version(3), Predecessor::Unclean).dead.is_some());
    }

    #[test]
    fn every_attempt_has_a_take_of_its_own() {
        let failed = cursor().failed(8, &"no such T-chart".into());
        assert_eq!((failed.take, failed.holder), (5, cursor().holder));
    }

    #[test]
    fn a_verdict_is_for_the_message_it_was_passed_on() {
        let condemned = cursor().condemned(8, &"a corrupt blob".into());
        assert_eq!(condemned.clone().judging(8), condemned);
        let next = condemned.judging(9);
        assert_eq!((next.dead, next.judged), (None, None));
    }

    #[test]
    fn an_advance_forgets_what_was_held_against_the_last_message() {
        let judged = Cursor { failures: 2, deaths: 2, solo: true, ..cursor() };
        let advanced = judged.advanced(9, "run-9".into(), 130);
        assert_eq!((advanced.failures, advanced.deaths, advanced.solo), (0, 0, false));
        assert_eq!(advanced.base, Some(Position { generation: 1, sequence: 9 }));
        assert_eq!((advanced.stamp, advanced.clean_to), (130, 9));
    }

    #[test]
    fn stamps_grow_although_the_clock_of_the_broker_steps_back() {
        assert_eq!((cursor().next_stamp(500), cursor().next_stamp(20)), (500, 101));
    }

    #[test]
    fn a_replaced_log_starts_anew_and_keeps_the_chart_state() {
        let replaced = cursor().replaced(12);
        assert_eq!(replaced.position, Position { generation: 2, sequence: 0 });
        assert_eq!((replaced.base, replaced.stream, replaced.stamp), (cursor().base, 12, 100));
    }
}
