//! Reading the log from the cursor's own sequence, and noticing what is not there any more.

use std::time::Duration;

use super::super::Guard;
use super::super::io::{Effect, Last, LogInfo, Message, Notice, Page, Purpose, ReadError, Ticket};
use super::{Activity, Chamber, Context, EARLY_BELL, Goal, Known, RETRY, Then};

impl Chamber {
    /// Reads two messages from the cursor's own sequence.
    pub(super) fn read(&mut self, leader: bool, ctx: &mut Context<'_>) {
        let Some(known) = &self.known else { return };
        let sequence = known.cursor.position.sequence;
        let from =
            if ctx.ground.config.keeps(Guard::ReadFromCursor) { sequence.max(1) } else { sequence + 1 };
        // Before the first commit nothing in the log can vouch for what was there before.
        let leader = leader || sequence == 0;
        let ticket = ctx.ask(Purpose::ReadLog);
        ctx.out.push(Effect::ReadLog { ticket, partition: ctx.name.clone(), from, leader });
        self.rung = false;
        self.activity = Activity::Reading { ticket, leader };
    }

    /// The log was read.
    pub(crate) fn page(&mut self, ticket: Ticket, result: Result<Page, ReadError>, ctx: &mut Context<'_>) {
        let Activity::Reading { ticket: asked, leader } = self.activity else { return };
        if asked != ticket {
            return;
        }
        let Ok(page) = result else {
            self.delay(RETRY, Then::Read, ctx);
            return;
        };
        let Some(known) = &self.known else { return };
        let cursor = &known.cursor;
        let sequence = cursor.position.sequence;
        let next = page.messages.iter().find(|message| message.sequence > sequence).cloned();
        if !ctx.ground.config.keeps(Guard::ReadFromCursor) {
            self.found(next, None, ctx);
            return;
        }
        // The same message may stand at the same sequence of another log.
        if let Some(info) = page.info.filter(|info| leader && info.stream != cursor.stream) {
            self.replace(info.stream, ctx);
            return;
        }
        let vouched = sequence > 0
            && page.messages.first().is_some_and(|first| {
                first.sequence == sequence && (cursor.context.is_empty() || first.context == cursor.context)
            });
        if vouched {
            let info = page.info.filter(|_| leader);
            self.found(next, info, ctx);
            return;
        }
        // Only the stream leader may say that something is not there.
        let Some(info) = page.info.filter(|_| leader) else {
            self.read(true, ctx);
            return;
        };
        if sequence > 0 && info.first <= sequence {
            self.replace(info.stream, ctx);
            return;
        }
        let read_to = cursor.read_to().max(self.clean_to);
        if info.first > read_to + 1 {
            ctx.out.push(Effect::Notice(Notice::Expired {
                partition: ctx.name.clone(),
                after: read_to,
                before: info.first,
            }));
        }
        self.clean_to = self.clean_to.max(info.first.saturating_sub(1));
        self.found(next, Some(info), ctx);
    }

    /// What comes after the cursor is known.
    pub(super) fn found(&mut self, next: Option<Message>, leader: Option<LogInfo>, ctx: &mut Context<'_>) {
        let Some(known) = &self.known else { return };
        if let Some(message) = next {
            self.early = EARLY_BELL.len();
            let known = Known { cursor: known.cursor.clone().judging(message.sequence), ..known.clone() };
            let dead = known.cursor.dead.is_some();
            self.known = Some(known);
            if dead {
                self.bury(message, ctx);
            } else {
                self.activity = Activity::Ready { message, since: ctx.ground.now };
            }
            return;
        }
        if self.rung {
            self.read(false, ctx);
            return;
        }
        if let Some(&wait) = EARLY_BELL.get(self.early) {
            self.early += 1;
            self.delay(wait, Then::Read, ctx);
            return;
        }
        match leader {
            Some(info) if is_dusty(known, &info, ctx) => {
                let clean = known.cursor.clean(info.last);
                self.swap(clean, Goal::Clean, ctx);
            }
            _ => self.activity = Activity::Resting,
        }
    }
}

/// Whether there is something to do for a partition, besides waiting for its next message.
pub(super) fn has_work(known: &Known, info: &LogInfo, last: Option<&Last>, ctx: &Context<'_>) -> bool {
    let cursor = &known.cursor;
    let committed = cursor.position.sequence;
    let unread = last.is_some_and(|last| last.sequence > committed);
    // What is committed must still be there, unless it has expired: otherwise the log has lost its tail.
    let holds_it = last.is_some_and(|last| {
        let same = cursor.context.is_empty() || last.context == cursor.context;
        last.sequence > committed || last.sequence == committed && same
    });
    let other_log = info.stream != cursor.stream || committed >= info.first && !holds_it;
    unread || other_log || cursor.dead.is_some() || is_dusty(known, info, ctx)
}

/// Whether it must be noted that nothing unread is there: it was not noted for long, or something may have expired.
fn is_dusty(known: &Known, info: &LogInfo, ctx: &Context<'_>) -> bool {
    let cursor = &known.cursor;
    let age = Duration::from_micros(ctx.ground.broker_time.saturating_sub(known.stored_at));
    let old = age >= ctx.ground.config.clean_interval && info.last > cursor.read_to();
    old || info.first > cursor.read_to() + 1
}
