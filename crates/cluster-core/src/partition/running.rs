//! Running a message, and what follows: the commit, another attempt, or a dead letter.

use std::sync::Arc;

use super::super::Guard;
use super::super::config::Config;
use super::super::cursor::{ATTEMPTS, Position, Predecessor};
use super::super::io::{Effect, Message, Outcome, Purpose, Ticket, Work};
use super::{Activity, Chamber, Context, Goal, Known, RETRY, Then};

impl Chamber {
    /// A slot is free for the message that waits.
    pub(crate) fn start(&mut self, ctx: &mut Context<'_>) {
        let Activity::Ready { message, .. } = &self.activity else { return };
        let message = message.clone();
        match &self.known {
            Some(known) if self.wants_solo(ctx.ground.config) => {
                let alone = known.cursor.alone(message.sequence);
                self.swap(alone, Goal::Alone(message), ctx);
            }
            _ => self.run(message, ctx),
        }
    }

    pub(super) fn run(&mut self, message: Message, ctx: &mut Context<'_>) {
        let Some(work) = self.work(&message, ctx.ground.config) else { return };
        let ticket = ctx.ask(Purpose::Process);
        ctx.out.push(Effect::Process { ticket, partition: ctx.name.clone(), work: Box::new(work) });
        self.activity = Activity::Running { ticket, message };
    }

    pub(super) fn work(&self, message: &Message, config: &Config) -> Option<Work> {
        let cursor = &self.known.as_ref()?.cursor;
        let stamp = if config.keeps(Guard::StampKept) {
            cursor.next_stamp(message.stored_at)
        } else {
            message.stored_at
        };
        // Of a message that failed too often, the last attempt is counted already.
        let counted = cursor.failures + cursor.deaths;
        let is_last = cursor.dead.is_some() && counted >= ATTEMPTS;
        Some(Work {
            message: message.clone(),
            position: Position { sequence: message.sequence, ..cursor.position },
            committed: cursor.base,
            stream: cursor.stream,
            take: cursor.take,
            stamp,
            attempt: counted + u32::from(!is_last),
            fresh: !self.remembers && config.keeps(Guard::CacheDropped),
        })
    }

    /// A message was processed, or not.
    pub(crate) fn processed(&mut self, ticket: Ticket, outcome: Outcome, ctx: &mut Context<'_>) {
        let Activity::Running { ticket: asked, message } = &self.activity else { return };
        let Some(known) = self.known.as_ref().filter(|_| *asked == ticket) else { return };
        let message = message.clone();
        match outcome {
            Outcome::Done => {
                self.store_failures = 0;
                self.advance(message, Goal::Commit, ctx);
            }
            Outcome::Failed(reason) => {
                self.remembers = false;
                let failed = known.cursor.failed(message.sequence, &reason);
                self.swap(failed, Goal::Failure(message), ctx);
            }
            Outcome::Poison(reason) => {
                self.remembers = false;
                let condemned = known.cursor.condemned(message.sequence, &reason);
                if ctx.ground.config.keeps(Guard::DeadFirst) {
                    self.swap(condemned, Goal::Condemn(message), ctx);
                } else {
                    self.known = Some(Known { cursor: condemned, ..known.clone() });
                    self.bury(message, ctx);
                }
            }
            Outcome::Unavailable => {
                // What was written may still land: the next attempt needs a take of its own.
                self.remembers = false;
                let retaken =
                    known.cursor.taken(ctx.ground.me, ctx.ground.map.version, Predecessor::Ourselves);
                self.swap(retaken, Goal::Wait, ctx);
            }
        }
    }

    pub(super) fn advance(&mut self, message: Message, goal: fn(Message) -> Goal, ctx: &mut Context<'_>) {
        let (Some(work), Some(known)) = (self.work(&message, ctx.ground.config), &self.known) else { return };
        let next = known.cursor.advanced(message.sequence, message.context.clone(), work.stamp);
        let next = next.clean(self.clean_to);
        self.swap(next, goal(message), ctx);
    }

    pub(super) fn bury(&mut self, message: Message, ctx: &mut Context<'_>) {
        if !ctx.ground.config.keeps(Guard::DeadWritesState) {
            self.publish_dead(message, ctx);
            return;
        }
        let (Some(work), Some(reason)) = (self.work(&message, ctx.ground.config), self.reason()) else {
            return;
        };
        let ticket = ctx.ask(Purpose::Bury);
        ctx.out.push(Effect::Bury { ticket, partition: ctx.name.clone(), work: Box::new(work), reason });
        self.activity = Activity::Burying { ticket, message };
    }

    pub(super) fn publish_dead(&mut self, message: Message, ctx: &mut Context<'_>) {
        let (Some(mut work), Some(reason)) = (self.work(&message, ctx.ground.config), self.reason()) else {
            return;
        };
        if !ctx.ground.config.keeps(Guard::Generations) {
            work.position.generation = 0;
        }
        let ticket = ctx.ask(Purpose::PublishDead);
        ctx.out.push(Effect::PublishDead {
            ticket,
            partition: ctx.name.clone(),
            work: Box::new(work),
            reason,
        });
        self.activity = Activity::Publishing { ticket, message };
    }

    pub(super) fn reason(&self) -> Option<Arc<str>> {
        self.known.as_ref().and_then(|known| known.cursor.dead.clone())
    }

    /// A dead message was written down, or its letter is in the stream; if not, it is tried again.
    pub(crate) fn done(&mut self, ticket: Ticket, happened: bool, ctx: &mut Context<'_>) {
        match &self.activity {
            Activity::Burying { ticket: asked, message } if *asked == ticket => {
                let message = message.clone();
                if happened {
                    self.store_failures = 0;
                    self.publish_dead(message, ctx);
                } else {
                    self.wait_for_store(Then::Bury(message), ctx);
                }
            }
            Activity::Publishing { ticket: asked, message } if *asked == ticket => {
                let message = message.clone();
                if happened {
                    self.advance(message, Goal::Pass, ctx);
                } else {
                    self.delay(RETRY, Then::Publish(message), ctx);
                }
            }
            _ => {}
        }
    }
}
