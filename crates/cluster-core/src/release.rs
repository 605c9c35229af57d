//! Cursors that name this worker although it no longer serves their partitions, and their release.
//!
//! A leave record expires and an embedded folder discards it, but a cursor stays. A worker that leaves therefore marks
//! the cursors that still name it as released, and the next owner knows about the clean leave however late it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cursor::Cursor;
use super::io::{Condition, Effect, Event, Purpose, RequestId, WriteError};
use super::outbox::Outbox;
use super::types::{Entry, Key, Revision, Value, WorkerIncarnation};

/// Maximum number of release writes without an answer.
const MAX_PARALLEL_RELEASES: usize = 256;

/// A cursor and the revision at which it was seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SeenCursor {
    pub(super) cursor: Cursor,
    pub(super) revision: Revision,
}

/// State of a cursor when this worker stops serving its partition.
#[derive(Debug)]
pub(super) enum LastCursor {
    /// The cursor as it was last seen.
    Seen(SeenCursor),
    /// A request about the cursor has no answer yet.
    Unanswered(UnansweredWrite),
    /// The cursor may name this worker; only a read shows it.
    Unknown,
}

/// A write of a cursor, or the read that settles it, without an answer.
#[derive(Debug)]
pub(super) struct UnansweredWrite {
    pub(super) request_id: RequestId,
    pub(super) proposed: Cursor,
    /// The cursor before the write.
    pub(super) before: Option<SeenCursor>,
}

/// Cursors of partitions that this worker no longer serves, until they are released.
#[derive(Debug, Default)]
pub(super) struct UnreleasedCursors {
    seen: BTreeMap<Arc<str>, SeenCursor>,
    /// Requests by serial number.
    unanswered: BTreeMap<u64, (Arc<str>, UnansweredWrite)>,
    /// Partitions whose cursor must be read before it can be released.
    unread: BTreeSet<Arc<str>>,
    /// Serial number of the read without an answer, and its partitions; none where this worker serves one again.
    reading: Option<(u64, Vec<Option<Arc<str>>>)>,
    /// Serial numbers of release writes without an answer.
    releasing: BTreeSet<u64>,
}

impl UnreleasedCursors {
    /// Adds the cursor of a partition that this worker no longer serves.
    pub(super) fn add(&mut self, partition: &Arc<str>, last: LastCursor) {
        match last {
            LastCursor::Seen(seen) => drop(self.seen.insert(partition.clone(), seen)),
            LastCursor::Unanswered(write) => {
                self.unanswered.insert(write.request_id.serial, (partition.clone(), write));
            }
            LastCursor::Unknown => drop(self.unread.insert(partition.clone())),
        }
    }

    /// Forgets a partition that this worker serves again.
    pub(super) fn remove(&mut self, partition: &Arc<str>) {
        self.seen.remove(partition);
        self.unread.remove(partition);
        self.unanswered.retain(|_, (name, _)| name != partition);
        for name in self.reading.iter_mut().flat_map(|(_, names)| names) {
            name.take_if(|name| name == partition);
        }
    }

    /// Notes the answer to a request that a partition did not wait for, or to a read of cursors.
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Written { request_id, .. } | Event::Fetched { request_id, .. } => {
                let Some((partition, write)) = self.unanswered.remove(&request_id.serial) else { return };
                let last = match event {
                    Event::Written { result: Ok(written), .. } => {
                        LastCursor::Seen(SeenCursor { cursor: write.proposed, revision: written.revision })
                    }
                    Event::Written { result: Err(WriteError::Failed), .. } => {
                        write.before.map_or(LastCursor::Unknown, LastCursor::Seen)
                    }
                    Event::Fetched { result: Ok(entry), .. } => return self.read(partition, entry.as_ref()),
                    _ => LastCursor::Unknown,
                };
                self.add(&partition, last);
            }
            Event::Cursors { request_id, result } => {
                let Some((_, partitions)) = self.reading.take_if(|(serial, _)| *serial == request_id.serial)
                else {
                    return;
                };
                match result {
                    Ok(entries) => {
                        for (partition, entry) in partitions.into_iter().zip(entries) {
                            partition.into_iter().for_each(|partition| self.read(partition, entry.as_ref()));
                        }
                    }
                    Err(_) => self.unread.extend(partitions.into_iter().flatten()),
                }
            }
            _ => {}
        }
    }

    fn read(&mut self, partition: Arc<str>, entry: Option<&Entry>) {
        if let Some(Entry { value: Value::Cursor(cursor), revision, .. }) = entry {
            let seen = SeenCursor { cursor: (**cursor).clone(), revision: *revision };
            self.seen.insert(partition, seen);
        }
    }

    /// Reads the cursors of unknown state and sends the release of each cursor that names `me`. The write compares the
    /// revision at which this worker was the owner, so a late one fails as soon as any worker has taken the cursor over.
    pub(super) fn send(&mut self, me: WorkerIncarnation, outbox: &mut Outbox) {
        if self.reading.is_none() && !self.unread.is_empty() {
            let partitions: Vec<_> = std::mem::take(&mut self.unread).into_iter().collect();
            let names = partitions.iter().cloned().map(Some).collect();
            let request_id = outbox
                .request(Purpose::ReadCursors, |request_id| Effect::ReadCursors { request_id, partitions });
            self.reading = Some((request_id.serial, names));
        }
        while self.releasing.len() < MAX_PARALLEL_RELEASES
            && let Some((partition, SeenCursor { cursor, revision })) = self.seen.pop_first()
        {
            // A cursor that names another worker is not this worker's to release.
            if cursor.owner != me || cursor.released {
                continue;
            }
            let released = Value::Cursor(Arc::new(cursor.released()));
            let request_id = outbox.write(
                Purpose::ReleaseCursor,
                Key::Cursor(partition),
                released,
                Condition::Revision(revision),
            );
            self.releasing.insert(request_id.serial);
        }
        invariant!(self.releasing.len() <= MAX_PARALLEL_RELEASES, "releases are bounded");
    }

    /// Notes the answer to a release write. A refused or unanswered one is given up: the leave record remains.
    pub(super) fn answered(&mut self, request_id: RequestId) {
        self.releasing.remove(&request_id.serial);
    }

    /// Whether each cursor that names `me` is released, or its release was given up.
    pub(super) fn is_done(&self, me: WorkerIncarnation) -> bool {
        let is_ours = |seen: &SeenCursor| seen.cursor.owner == me && !seen.cursor.released;
        self.releasing.is_empty()
            && self.reading.is_none()
            && self.unread.is_empty()
            && self.unanswered.is_empty()
            && !self.seen.values().any(is_ours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::tests::{cursor, holder};
    use crate::io::{ReadError, Written};

    /// The holder of the test cursor.
    const ME: (u32, u64) = (1, 1);

    fn me() -> WorkerIncarnation {
        holder(ME.0, ME.1)
    }

    fn name(number: usize) -> Arc<str> {
        format!("tool:{number}").into()
    }

    fn seen(revision: u64) -> LastCursor {
        LastCursor::Seen(SeenCursor { cursor: cursor(), revision: Revision(revision) })
    }

    fn entry(cursor: Cursor, revision: u64) -> Entry {
        Entry { value: Value::Cursor(Arc::new(cursor)), revision: Revision(revision), stored_at: 0 }
    }

    fn send(cursors: &mut UnreleasedCursors, outbox: &mut Outbox) -> Vec<Effect> {
        cursors.send(me(), outbox);
        outbox.take()
    }

    fn release(serial: u64, partition: &Arc<str>, revision: u64) -> Effect {
        Effect::Write {
            request_id: RequestId { purpose: Purpose::ReleaseCursor, serial },
            key: Key::Cursor(partition.clone()),
            value: Value::Cursor(Arc::new(cursor().released())),
            condition: Condition::Revision(Revision(revision)),
        }
    }

    #[test]
    fn releases_run_in_parallel_up_to_a_limit() {
        let (mut cursors, mut outbox) = (UnreleasedCursors::default(), Outbox::default());
        (0..MAX_PARALLEL_RELEASES + 2).for_each(|number| cursors.add(&name(number), seen(7)));
        assert_eq!(send(&mut cursors, &mut outbox).len(), MAX_PARALLEL_RELEASES);
        assert_eq!(send(&mut cursors, &mut outbox), []);
        cursors.answered(RequestId { purpose: Purpose::ReleaseCursor, serial: 3 });
        assert_eq!(send(&mut cursors, &mut outbox).len(), 1);
        (1..=outbox.last_serial())
            .for_each(|serial| cursors.answered(RequestId { purpose: Purpose::ReleaseCursor, serial }));
        assert_eq!(send(&mut cursors, &mut outbox).len(), 1);
        assert!(!cursors.is_done(me()));
        cursors.answered(RequestId { purpose: Purpose::ReleaseCursor, serial: outbox.last_serial() });
        assert!(cursors.is_done(me()));
    }

    #[test]
    fn an_unknown_cursor_is_read_again_until_there_is_an_answer() {
        let (mut cursors, mut outbox) = (UnreleasedCursors::default(), Outbox::default());
        (1..=3).for_each(|number| cursors.add(&name(number), LastCursor::Unknown));
        for serial in 1..=2 {
            let request_id = RequestId { purpose: Purpose::ReadCursors, serial };
            let partitions = vec![name(1), name(2), name(3)];
            assert_eq!(send(&mut cursors, &mut outbox), [Effect::ReadCursors { request_id, partitions }]);
            let foreign = Cursor { owner: holder(ME.0, ME.1 + 1), ..cursor() };
            let result = match serial {
                1 => Err(ReadError),
                _ => Ok(vec![Some(entry(cursor(), 7)), Some(entry(foreign, 8)), None]),
            };
            assert_eq!(send(&mut cursors, &mut outbox), [], "one read at a time");
            cursors.note(&Event::Cursors { request_id, result });
        }
        assert_eq!(send(&mut cursors, &mut outbox), [release(3, &name(1), 7)]);
    }

    #[test]
    fn a_partition_that_is_served_again_is_not_released() {
        let (mut cursors, mut outbox) = (UnreleasedCursors::default(), Outbox::default());
        cursors.add(&name(1), seen(7));
        cursors.add(&name(2), LastCursor::Unknown);
        cursors.add(&name(3), LastCursor::Unknown);
        cursors.remove(&name(1));
        cursors.remove(&name(3));
        let request_id = RequestId { purpose: Purpose::ReadCursors, serial: 1 };
        let partitions = vec![name(2)];
        assert_eq!(send(&mut cursors, &mut outbox), [Effect::ReadCursors { request_id, partitions }]);
        cursors.remove(&name(2));
        cursors.note(&Event::Cursors { request_id, result: Ok(vec![Some(entry(cursor(), 7))]) });
        assert_eq!(send(&mut cursors, &mut outbox), []);
        assert!(cursors.is_done(me()));
    }

    /// Returns the effects after a takeover that the partition did not wait for has this answer.
    fn sent_after(answer: Result<Written, WriteError>) -> Vec<Effect> {
        let (mut cursors, mut outbox) = (UnreleasedCursors::default(), Outbox::default());
        let request_id = outbox.read(Purpose::Cursor, Key::Cursor(name(1)));
        outbox.take();
        let before = Some(SeenCursor { cursor: cursor(), revision: Revision(6) });
        let write = UnansweredWrite { request_id, proposed: cursor(), before };
        cursors.add(&name(1), LastCursor::Unanswered(write));
        assert_eq!(send(&mut cursors, &mut outbox), []);
        assert!(!cursors.is_done(me()), "its answer is awaited");
        cursors.note(&Event::Written { request_id, result: answer });
        send(&mut cursors, &mut outbox)
    }

    #[test]
    fn the_answer_to_a_takeover_decides_what_is_released() {
        let written = Written { revision: Revision(9), stored_at: 0 };
        assert_eq!(sent_after(Ok(written)), [release(2, &name(1), 9)]);
        assert_eq!(sent_after(Err(WriteError::Failed)), [release(2, &name(1), 6)]);
        for unknown in [WriteError::Conflict, WriteError::Unknown] {
            assert!(matches!(sent_after(Err(unknown))[..], [Effect::ReadCursors { .. }]), "{unknown:?}");
        }
    }
}
