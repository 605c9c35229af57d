//! Swapping the cursor, and finding out what became of a swap.

use std::sync::Arc;
use std::time::Duration;

use super::super::Guard;
use super::super::cursor::{Cursor, Position};
use super::super::io::{Condition, Effect, Notice, Purpose, ReadError, Ticket, WriteError, Written};
use super::super::types::{Entry, Key, Value};
use super::{Activity, Chamber, Context, Goal, Known, RETRY, Swap, Then, known_of};

impl Chamber {
    pub(super) fn swap(&mut self, proposed: Cursor, goal: Goal, ctx: &mut Context<'_>) {
        let Some(known) = &self.known else { return };
        let condition = Condition::Revision(known.revision);
        self.begin_swap(proposed, condition, goal, ctx);
    }

    pub(super) fn begin_swap(
        &mut self,
        proposed: Cursor,
        condition: Condition,
        goal: Goal,
        ctx: &mut Context<'_>,
    ) {
        let ticket = ctx.ask(Purpose::Cursor);
        ctx.out.push(Effect::Write {
            ticket,
            key: Key::Cursor(ctx.name.clone()),
            value: Value::Cursor(Arc::new(proposed.clone())),
            condition,
        });
        self.activity = Activity::Swapping(Box::new(Swap { ticket, proposed, condition, goal }));
    }

    /// A swap was answered.
    pub(crate) fn written(
        &mut self,
        ticket: Ticket,
        result: Result<Written, WriteError>,
        ctx: &mut Context<'_>,
    ) {
        let Activity::Swapping(swap) = &self.activity else { return };
        if swap.ticket != ticket {
            return;
        }
        let swap = swap.clone();
        match result {
            Ok(written) => self.reached(*swap, written, true, ctx),
            Err(WriteError::Failed) => self.delay(RETRY, Then::Swap(swap), ctx),
            Err(WriteError::Unknown) if !ctx.ground.config.keeps(Guard::SettleFirst) => match swap.goal {
                Goal::Commit(message) => self.activity = Activity::Ready { message, since: ctx.ground.now },
                _ => self.settle(swap, ctx),
            },
            Err(WriteError::Conflict | WriteError::Unknown) => {
                if ctx.ground.config.keeps(Guard::CacheDropped) {
                    self.remembers = false;
                }
                self.settle(swap, ctx);
            }
        }
    }

    /// Refused or unanswered: only the cursor itself tells what became of the swap.
    pub(super) fn settle(&mut self, mut swap: Box<Swap>, ctx: &mut Context<'_>) {
        swap.ticket = ctx.ask(Purpose::ReadCursor);
        ctx.out.push(Effect::Read { ticket: swap.ticket, key: Key::Cursor(ctx.name.clone()) });
        self.activity = Activity::Swapping(swap);
    }

    /// The cursor was read to see what became of a swap.
    pub(crate) fn fetched(
        &mut self,
        ticket: Ticket,
        result: Result<Option<Entry>, ReadError>,
        ctx: &mut Context<'_>,
    ) {
        let Activity::Swapping(swap) = &self.activity else { return };
        if swap.ticket != ticket {
            return;
        }
        let swap = swap.clone();
        let Ok(entry) = result else {
            self.delay(RETRY, Then::Settle(swap), ctx);
            return;
        };
        let found = entry.as_ref().and_then(known_of);
        let unchanged = match (swap.condition, &found) {
            (Condition::Absent, None) => true,
            (Condition::Revision(expected), Some(found)) => found.revision == expected,
            _ => false,
        };
        match found {
            Some(found) if found.cursor == swap.proposed => {
                let written = Written { revision: found.revision, stored_at: found.stored_at };
                self.reached(*swap, written, false, ctx);
            }
            _ if unchanged => self.begin_swap(swap.proposed, swap.condition, swap.goal, ctx),
            _ => self.displace(ctx),
        }
    }

    /// The cursor is what we wanted it to be.
    pub(super) fn reached(&mut self, swap: Swap, written: Written, certain: bool, ctx: &mut Context<'_>) {
        let Written { revision, stored_at } = written;
        let dead = swap.proposed.dead.is_some();
        let (failures, position) = (swap.proposed.failures, swap.proposed.position);
        self.known = Some(Known { cursor: swap.proposed, revision, stored_at });
        if std::mem::take(&mut self.must_retake) && swap.goal != Goal::Take {
            if matches!(swap.goal, Goal::Commit(_) | Goal::Pass(_)) {
                tell_committed(position, matches!(swap.goal, Goal::Pass(_)), ctx);
            }
            self.displace(ctx);
            return;
        }
        match swap.goal {
            Goal::Take => {
                self.held = true;
                self.left_solo = false;
                if ctx.ground.config.keeps(Guard::CacheDropped) {
                    self.remembers = false;
                }
                self.clean_to = 0;
                if self.log.is_some() {
                    self.read(true, ctx);
                } else {
                    let take = self.known.as_ref().map_or(0, |known| known.cursor.take);
                    ctx.out.push(Effect::Grant { partition: ctx.name.clone(), take });
                    self.activity = Activity::Resting;
                }
            }
            Goal::Alone(message) => self.run(message, ctx),
            Goal::Commit(_) => {
                self.remembers = certain || !ctx.ground.config.keeps(Guard::CacheDropped);
                tell_committed(position, false, ctx);
                self.read(false, ctx);
            }
            Goal::Pass(_) => {
                self.remembers = false;
                tell_committed(position, true, ctx);
                self.read(false, ctx);
            }
            Goal::Failure(message) if !dead => {
                let wait = Duration::from_secs(1 << (failures.clamp(1, 6) - 1));
                self.delay(wait, Then::Run(message), ctx);
            }
            Goal::Failure(message) | Goal::Condemn(message) => self.bury(message, ctx),
            Goal::Wait => self.wait_for_store(Then::Read, ctx),
            Goal::Clean => self.activity = Activity::Resting,
        }
    }
}

fn tell_committed(position: Position, dead: bool, ctx: &mut Context<'_>) {
    *ctx.processed += 1;
    let partition = ctx.name.clone();
    ctx.out.push(Effect::Notice(Notice::Committed { partition, position, dead }));
}
