//! The cursor: the committed position of a partition's log, and its owner. Every change of it is a function here.
//!
//! A commit is a compare-and-swap of this value, so it acknowledges and fences in one write. A takeover raises the fencing
//! token; from then on the previous owner cannot commit.

use std::sync::Arc;

use super::types::{FencingToken, LogId, Sequence, Version, WorkerIncarnation, WriteTimestamp, next_number};

/// The number of failures, or of failures and worker crashes together, after which a message is dead-lettered or isolated.
pub const MAX_ATTEMPTS: u32 = 3;

/// A place in the log that is never used twice: a recreated log has other positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Grows when the log is replaced, or when the cursor was lost.
    pub generation: u64,
    /// The sequence in the log.
    pub sequence: Sequence,
}

impl Position {
    /// Returns the position of a message.
    pub const fn new(generation: u64, sequence: Sequence) -> Self {
        Self { generation, sequence }
    }

    /// Returns the generation after that of this position.
    pub(super) fn next_generation(self) -> u64 {
        next_number(self.generation, "generation")
    }
}

/// The committed position of a partition, and the worker that may commit next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The last committed message.
    pub position: Position,
    /// The position of the last committed handler state, in any generation.
    pub state_position: Option<Position>,
    /// The id of the last committed message, if it has one.
    pub message_id: Option<Arc<str>>,
    /// The log of the position; none without a log.
    pub log_id: Option<LogId>,
    /// The write timestamp of the last committed results; it only grows.
    pub write_timestamp: WriteTimestamp,
    /// The worker that may commit.
    pub owner: WorkerIncarnation,
    /// The version of the map that assigned the partition to the owner.
    pub version: Version,
    /// Grows with every takeover and every attempt.
    pub fencing_token: FencingToken,
    /// The number of failures of the next message.
    pub failures: u32,
    /// The number of owners that crashed or were replaced while the next message was pending.
    pub worker_crashes: u32,
    /// Whether the current or last attempt at the next message is isolated.
    pub isolated: bool,
    /// The reason to dead-letter the next message.
    pub dead_letter_reason: Option<Arc<str>>,
    /// The message that the last four fields belong to, if known. It may expire before it is dead-lettered.
    pub counted_sequence: Option<Sequence>,
    /// The sequence up to which the log was seen to hold nothing unread of this partition.
    pub watermark: Sequence,
    /// Whether the holder left cleanly and nothing of its work is under way: the next owner may take over immediately.
    pub released: bool,
}

/// The way in which the previous owner gave up the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousOwner {
    /// It is this worker, in the same incarnation.
    SameWorker,
    /// It finished its work and released the cursor.
    Released,
    /// It crashed, or was replaced without a release.
    Crashed,
}

impl Cursor {
    /// Returns the cursor after a takeover. From then on only the new owner can commit.
    #[must_use]
    pub fn taken_over(&self, by: WorkerIncarnation, version: Version, predecessor: PreviousOwner) -> Self {
        invariant!(version >= self.version, "a takeover under {version} follows one under {}", self.version);
        let mut taken = Self {
            owner: by,
            version,
            fencing_token: self.fencing_token.next(),
            isolated: false,
            released: false,
            ..self.clone()
        };
        if predecessor == PreviousOwner::Crashed {
            taken.worker_crashes += 1;
            if self.isolated && taken.dead_letter_reason.is_none() {
                taken.dead_letter_reason = Some("its worker crashed while it was processed isolated".into());
            }
        }
        invariant!(taken.fencing_token > self.fencing_token, "a takeover raises the fencing token");
        invariant!(taken.position == self.position, "a takeover commits nothing");
        taken
    }

    /// Returns the cursor for another log, or for one that lost messages: everything in it is unread.
    #[must_use]
    pub fn for_new_log(&self, log_id: LogId) -> Self {
        let generation = self.position.next_generation();
        invariant!(generation > self.position.generation, "a new log has a new generation");
        Self {
            position: Position { generation, sequence: Sequence::START },
            message_id: None,
            log_id: Some(log_id),
            failures: 0,
            worker_crashes: 0,
            isolated: false,
            dead_letter_reason: None,
            counted_sequence: None,
            watermark: Sequence::START,
            released: false,
            ..self.clone()
        }
    }

    /// Resets the counters unless they belong to the message at `sequence`.
    #[must_use]
    pub fn counting_for(self, sequence: Sequence) -> Self {
        if self.counted_sequence.is_none_or(|judged| judged == sequence) {
            return self;
        }
        Self {
            failures: 0,
            worker_crashes: 0,
            isolated: false,
            dead_letter_reason: None,
            counted_sequence: None,
            ..self
        }
    }

    /// Returns the write timestamp of the next message: the broker's time, but always above the last timestamp.
    pub fn next_write_timestamp(&self, stored_at: u64) -> WriteTimestamp {
        self.write_timestamp.next().max(WriteTimestamp(stored_at))
    }

    /// Returns the cursor after a commit of the next message. An empty message id counts as none.
    #[must_use]
    pub fn committed(
        &self,
        sequence: Sequence,
        message_id: Arc<str>,
        write_timestamp: WriteTimestamp,
    ) -> Self {
        let position = Position { sequence, ..self.position };
        invariant!(position > self.position, "{position:?} is after {:?}", self.position);
        Self {
            position,
            state_position: Some(position),
            message_id: Some(message_id).filter(|id| !id.is_empty()),
            write_timestamp,
            failures: 0,
            worker_crashes: 0,
            isolated: false,
            dead_letter_reason: None,
            counted_sequence: None,
            watermark: self.watermark.max(sequence),
            released: false,
            ..self.clone()
        }
    }

    /// Returns the cursor after one more failure of the next message; too many failures dead-letter it. The next attempt
    /// has its own fencing token, so late rows of this attempt never count as rows of the next.
    #[must_use]
    pub fn with_failure(&self, sequence: Sequence, reason: &Arc<str>) -> Self {
        invariant!(sequence > self.position.sequence, "a committed message does not fail");
        invariant!(self.failures < MAX_ATTEMPTS, "a message fails at most {MAX_ATTEMPTS} times");
        let failures = self.failures + 1;
        let dead = (failures >= MAX_ATTEMPTS).then(|| reason.clone());
        Self {
            failures,
            dead_letter_reason: dead,
            isolated: false,
            counted_sequence: Some(sequence),
            fencing_token: self.fencing_token.next(),
            released: false,
            ..self.clone()
        }
    }

    /// Returns the cursor that dead-letters the next message.
    #[must_use]
    pub fn with_dead_letter(&self, sequence: Sequence, reason: &Arc<str>) -> Self {
        invariant!(sequence > self.position.sequence, "a committed message is not dead-lettered");
        let dead = Some(reason.clone());
        Self {
            dead_letter_reason: dead,
            isolated: false,
            counted_sequence: Some(sequence),
            released: false,
            ..self.clone()
        }
    }

    /// Returns the cursor for an isolated attempt at the next message.
    #[must_use]
    pub fn with_isolation(&self, sequence: Sequence) -> Self {
        invariant!(sequence > self.position.sequence, "a committed message is not isolated");
        invariant!(self.dead_letter_reason.is_none(), "a dead letter is not attempted again");
        Self { isolated: true, counted_sequence: Some(sequence), released: false, ..self.clone() }
    }

    /// Whether the next attempt must be isolated, because the message has too many failures and worker crashes.
    pub fn needs_isolation(&self) -> bool {
        self.failures + self.worker_crashes >= MAX_ATTEMPTS
    }

    /// Returns the cursor after the log was seen to hold nothing unread up to `sequence`.
    #[must_use]
    pub fn with_watermark(&self, sequence: Sequence) -> Self {
        Self { watermark: self.watermark.max(sequence), released: false, ..self.clone() }
    }

    /// Marks the cursor as released by its holder, which leaves.
    #[must_use]
    pub fn released(&self) -> Self {
        Self { released: true, isolated: false, ..self.clone() }
    }

    /// Returns the sequence up to which nothing unread can be in the log.
    pub fn consumed_to(&self) -> Sequence {
        self.watermark.max(self.position.sequence)
    }

    /// Whether `id` can be the id of the last committed message.
    pub(super) fn names(&self, id: &str) -> bool {
        self.message_id.as_deref().is_none_or(|known| known == id)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::types::{Incarnation, WorkerId};

    pub(crate) fn holder(id: u32, incarnation: u64) -> WorkerIncarnation {
        WorkerIncarnation { id: WorkerId(id), incarnation: Incarnation(incarnation) }
    }

    pub(crate) fn cursor() -> Cursor {
        let position = Position::new(1, Sequence(7));
        Cursor {
            position,
            state_position: Some(position),
            message_id: Some("run-7".into()),
            log_id: Some(LogId(11)),
            write_timestamp: WriteTimestamp(100),
            owner: holder(1, 1),
            version: Version(1),
            fencing_token: FencingToken(4),
            failures: 0,
            worker_crashes: 0,
            isolated: false,
            dead_letter_reason: None,
            counted_sequence: None,
            watermark: Sequence(7),
            released: false,
        }
    }

    #[test]
    fn every_rewrite_of_a_released_cursor_clears_the_mark() {
        let released = Cursor { isolated: true, ..cursor() }.released();
        assert_eq!((released.released, released.isolated), (true, false));
        let reason: Arc<str> = "no such record".into();
        for (rewrite, rewritten) in [
            ("takeover", released.taken_over(holder(2, 9), Version(3), PreviousOwner::Released)),
            ("replaced log", released.for_new_log(LogId(12))),
            ("commit", released.committed(Sequence(8), "run-8".into(), WriteTimestamp(101))),
            ("failure", released.with_failure(Sequence(8), &reason)),
            ("dead letter", released.with_dead_letter(Sequence(8), &reason)),
            ("isolated attempt", released.with_isolation(Sequence(8))),
            ("watermark", released.with_watermark(Sequence(9))),
        ] {
            assert!(!rewritten.released, "{rewrite}");
        }
    }

    #[test]
    fn a_takeover_from_a_crashed_worker_counts_a_crash_and_one_after_a_release_does_not() {
        let dead = cursor().taken_over(holder(2, 9), Version(3), PreviousOwner::Crashed);
        assert_eq!(
            (dead.fencing_token, dead.version, dead.owner, dead.worker_crashes),
            (FencingToken(5), Version(3), holder(2, 9), 1)
        );
        for (owner, clean) in
            [(holder(2, 9), PreviousOwner::Released), (cursor().owner, PreviousOwner::SameWorker)]
        {
            assert_eq!(cursor().taken_over(owner, Version(3), clean).worker_crashes, 0);
        }
    }

    #[test]
    fn three_failures_dead_letter_and_three_failures_and_crashes_isolate() {
        let reason: Arc<str> = "no such record".into();
        let twice = cursor().with_failure(Sequence(8), &reason).with_failure(Sequence(8), &reason);
        assert_eq!((twice.dead_letter_reason.clone(), twice.needs_isolation()), (None, false));
        assert_eq!(twice.with_failure(Sequence(8), &reason).dead_letter_reason, Some(reason));
        let mixed = twice.taken_over(holder(2, 9), Version(3), PreviousOwner::Crashed);
        assert_eq!((mixed.dead_letter_reason.clone(), mixed.needs_isolation()), (None, true));
    }

    #[test]
    fn only_a_crash_while_isolated_dead_letters() {
        let alone = Cursor { worker_crashes: 3, ..cursor() }.with_isolation(Sequence(8));
        let clean = alone.taken_over(holder(2, 9), Version(3), PreviousOwner::Released);
        assert_eq!((clean.dead_letter_reason, clean.isolated), (None, false));
        let crowded = Cursor { worker_crashes: 5, ..cursor() };
        assert_eq!(
            crowded.taken_over(holder(2, 9), Version(3), PreviousOwner::Crashed).dead_letter_reason,
            None
        );
        assert!(
            alone.taken_over(holder(2, 9), Version(3), PreviousOwner::Crashed).dead_letter_reason.is_some()
        );
    }

    #[test]
    fn every_attempt_has_its_own_fencing_token() {
        let failed = cursor().with_failure(Sequence(8), &"no such record".into());
        assert_eq!((failed.fencing_token, failed.owner), (FencingToken(5), cursor().owner));
    }

    #[test]
    fn a_dead_letter_reason_belongs_to_one_message() {
        let condemned = cursor().with_dead_letter(Sequence(8), &"a corrupt blob".into());
        assert_eq!(condemned.clone().counting_for(Sequence(8)), condemned);
        let next = condemned.counting_for(Sequence(9));
        assert_eq!((next.dead_letter_reason, next.counted_sequence), (None, None));
    }

    #[test]
    fn a_commit_resets_the_counters_of_the_last_message() {
        let judged = Cursor { failures: 2, worker_crashes: 2, isolated: true, ..cursor() };
        let advanced = judged.committed(Sequence(9), "run-9".into(), WriteTimestamp(130));
        assert_eq!((advanced.failures, advanced.worker_crashes, advanced.isolated), (0, 0, false));
        assert_eq!(advanced.state_position, Some(Position::new(1, Sequence(9))));
        assert_eq!((advanced.write_timestamp, advanced.watermark), (WriteTimestamp(130), Sequence(9)));
    }

    #[test]
    fn write_timestamps_grow_although_the_clock_of_the_broker_steps_back() {
        assert_eq!(
            (cursor().next_write_timestamp(500), cursor().next_write_timestamp(20)),
            (WriteTimestamp(500), WriteTimestamp(101))
        );
    }

    #[test]
    fn a_replaced_log_starts_at_its_beginning_and_keeps_the_handler_state() {
        let replaced = cursor().for_new_log(LogId(12));
        assert_eq!(replaced.position, Position::new(2, Sequence::START));
        assert_eq!(
            (replaced.state_position, replaced.log_id, replaced.write_timestamp),
            (cursor().state_position, Some(LogId(12)), WriteTimestamp(100))
        );
    }
}
