//! Cursors that name this worker although it no longer serves their partitions, and their release.
//!
//! A leave record expires and an embedded folder discards it, but a cursor stays. A worker that leaves therefore marks
//! the cursors that still name it as released, and the next owner knows about the clean leave however late it comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cursor::Cursor;
use super::io::{Condition, Effect, Event, Purpose, Ticket, Tickets, WriteError};
use super::types::{Entry, Holder, Key, Revision, Value};

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
    Unanswered(UnansweredSwap),
}

/// A write of a cursor, or the read that settles it, without an answer.
#[derive(Debug)]
pub(super) struct UnansweredSwap {
    pub(super) ticket: Ticket,
    pub(super) proposed: Cursor,
    /// The cursor before the write.
    pub(super) before: Option<SeenCursor>,
}

/// Cursors of partitions that this worker no longer serves, until they are released.
#[derive(Debug, Default)]
pub(super) struct UnreleasedCursors {
    seen: BTreeMap<Arc<str>, SeenCursor>,
    /// Requests by serial number.
    unanswered: BTreeMap<u64, (Arc<str>, UnansweredSwap)>,
    /// Serial numbers of release writes without an answer.
    releasing: BTreeSet<u64>,
}

impl UnreleasedCursors {
    /// Adds the cursor of a partition that this worker no longer serves.
    pub(super) fn add(&mut self, partition: &Arc<str>, last: LastCursor) {
        match last {
            LastCursor::Seen(seen) => drop(self.seen.insert(partition.clone(), seen)),
            LastCursor::Unanswered(swap) => {
                self.unanswered.insert(swap.ticket.serial, (partition.clone(), swap));
            }
        }
    }

    /// Forgets a partition that this worker serves again.
    pub(super) fn remove(&mut self, partition: &Arc<str>) {
        self.seen.remove(partition);
        self.unanswered.retain(|_, (name, _)| name != partition);
    }

    /// Notes the answer to a request that a partition did not wait for.
    pub(super) fn note(&mut self, event: &Event) {
        let (Event::Written { ticket, .. } | Event::Fetched { ticket, .. }) = event else { return };
        let Some((partition, swap)) = self.unanswered.remove(&ticket.serial) else { return };
        let seen = match event {
            Event::Written { result: Ok(written), .. } => {
                Some(SeenCursor { cursor: swap.proposed, revision: written.revision })
            }
            Event::Written { result: Err(WriteError::Failed), .. } => swap.before,
            Event::Fetched { result: Ok(Some(entry)), .. } => seen_cursor(entry),
            // Another worker has taken the cursor over, or the outcome is unknown.
            _ => None,
        };
        if let Some(seen) = seen {
            self.seen.insert(partition, seen);
        }
    }

    /// Sends the release of each cursor that names `me`. The write compares the revision that this worker saw as its
    /// own, so a late one fails as soon as any worker has taken the cursor over.
    pub(super) fn send(&mut self, me: Holder, tickets: &mut Tickets, out: &mut Vec<Effect>) {
        while self.releasing.len() < MAX_PARALLEL_RELEASES
            && let Some((partition, SeenCursor { cursor, revision })) = self.seen.pop_first()
        {
            if cursor.holder != me || cursor.released {
                continue;
            }
            let ticket = tickets.next(Purpose::ReleaseCursor);
            self.releasing.insert(ticket.serial);
            out.push(Effect::Write {
                ticket,
                key: Key::Cursor(partition),
                value: Value::Cursor(Arc::new(cursor.released())),
                condition: Condition::Revision(revision),
            });
        }
    }

    /// Notes the answer to a release write. A refused or unanswered one is given up: the leave record remains.
    pub(super) fn answered(&mut self, ticket: Ticket) {
        self.releasing.remove(&ticket.serial);
    }

    /// Whether a release write has no answer yet.
    pub(super) fn is_releasing(&self) -> bool {
        !self.releasing.is_empty()
    }

    /// Whether no cursor is left to release.
    pub(super) fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.unanswered.is_empty() && self.releasing.is_empty()
    }
}

fn seen_cursor(entry: &Entry) -> Option<SeenCursor> {
    match &entry.value {
        Value::Cursor(cursor) => Some(SeenCursor { cursor: (**cursor).clone(), revision: entry.revision }),
        _ => None,
    }
}
