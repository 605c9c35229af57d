//! Coming to hold the cursor: looking at it, waiting for its holder, taking it, making one where there is none.

use super::super::Guard;
use super::super::cursor::{Cursor, Position, Predecessor};
use super::super::handover::{Gainer, Verdict, may_take};
use super::super::io::{Condition, Effect, Last, LogInfo, Notice, Origin, Purpose, ReadError, Ticket};
use super::super::types::{Entry, Holder};
use super::reading::has_work;
use super::{Activity, Chamber, Context, Goal, Known, Then, known_of};

/// How far the stamps of a cursor made anew lie above the broker's time as far as it is known, in microseconds: what a
/// late writer may still bring was stamped by the broker's time at most.
const ABOVE_THE_LATE: u64 = 60_000_000;

impl Chamber {
    /// A bell rang: something may be there to read.
    pub(crate) fn rung(&mut self, ctx: &mut Context<'_>) {
        self.rung = true;
        self.early = 0;
        if self.activity == Activity::Resting && self.known.is_some() && self.survey.is_none() {
            self.proceed(ctx);
        }
    }

    /// Cursor and log were looked at, the log after the cursor.
    pub(crate) fn surveyed(
        &mut self,
        entry: Option<Entry>,
        log: Option<(LogInfo, Option<Last>)>,
        ctx: &mut Context<'_>,
    ) {
        self.survey = None;
        let found = entry.as_ref().and_then(known_of);
        if self.held
            && ctx.ground.config.keeps(Guard::HolderReadsCursor)
            && self.is_displaced(found.as_ref(), ctx.ground.me)
        {
            self.displace(ctx);
        }
        let waits = matches!(
            self.activity,
            Activity::Resting | Activity::HandingOver { .. } | Activity::Delayed { then: Then::Survey, .. }
        );
        if !waits {
            return;
        }
        if !self.held {
            let ours = found.as_ref().is_some_and(|found| found.cursor.holder == ctx.ground.me);
            self.left_solo &= ours;
            self.known = found;
            self.held = ours && !ctx.ground.config.keeps(Guard::RetakeAfterRegain);
        }
        let (info, last) = log.unzip();
        (self.log, self.last) = (info, last.flatten());
        let Some(known) = &self.known else {
            self.trace(ctx);
            return;
        };
        let work = match &self.log {
            None => !self.held,
            Some(info) => self.rung || has_work(known, info, self.last.as_ref(), ctx),
        };
        if work {
            self.proceed(ctx);
        } else {
            self.activity = Activity::Resting;
        }
    }

    /// Whether the cursor shows that somebody else has taken it. An older value than ours shows nothing.
    pub(super) fn is_displaced(&self, found: Option<&Known>, me: Holder) -> bool {
        let Some(ours) = &self.known else { return false };
        found.is_none_or(|found| {
            let mine = found.cursor.holder == me && found.cursor.take == ours.cursor.take;
            !mine && found.revision > ours.revision
        })
    }

    pub(super) fn displace(&mut self, ctx: &mut Context<'_>) {
        if matches!(self.activity, Activity::Running { .. }) {
            ctx.out.push(Effect::Cancel { partition: ctx.name.clone() });
        }
        self.held = false;
        self.remembers = false;
        self.activity = Activity::Resting;
        self.wants_survey = true;
    }

    /// Something is to be done: read, if the cursor is ours; otherwise take it, as soon as its holder has let go.
    pub(super) fn proceed(&mut self, ctx: &mut Context<'_>) {
        if self.held {
            self.read(true, ctx);
        } else {
            self.activity = Activity::HandingOver { since: ctx.ground.now };
            self.hand_over(ctx);
        }
    }

    /// Takes the cursor if its holder has let go.
    pub(crate) fn hand_over(&mut self, ctx: &mut Context<'_>) {
        let (Activity::HandingOver { since }, Some(known)) = (&self.activity, &self.known) else { return };
        let gainer = Gainer {
            me: ctx.ground.me,
            map: ctx.ground.map,
            config: ctx.ground.config,
            roster: ctx.ground.roster,
            clock: ctx.ground.clock,
            waited: ctx.ground.now.saturating_sub(*since),
        };
        match may_take(&known.cursor, &gainer) {
            Verdict::Wait => {}
            Verdict::ReadMap => *ctx.wants_map = true,
            Verdict::Take(predecessor) => self.take(predecessor, ctx),
        }
    }

    pub(super) fn take(&mut self, predecessor: Predecessor, ctx: &mut Context<'_>) {
        let Some(known) = &self.known else { return };
        if !ctx.ground.config.keeps(Guard::TakeFirst) {
            self.held = true;
            self.read(false, ctx);
            return;
        }
        let predecessor = match predecessor {
            Predecessor::Unclean if !ctx.ground.config.keeps(Guard::DeathsCount) => Predecessor::Clean,
            known => known,
        };
        let mut taken = known.cursor.taken(ctx.ground.me, ctx.ground.map.version, predecessor);
        if !ctx.ground.config.keeps(Guard::SoloFirst) && taken.wants_solo() {
            taken = Cursor { dead: Some("it was there too often".into()), ..taken };
        }
        if let Some(info) = self.log.filter(|info| info.stream != taken.stream) {
            taken = taken.replaced(info.stream);
            tell_replaced(&taken, ctx);
        }
        self.swap(taken, Goal::Take, ctx);
    }

    /// The log is not the one the cursor knows: everything in it is new.
    pub(super) fn replace(&mut self, stream: u64, ctx: &mut Context<'_>) {
        let Some(known) = &self.known else { return };
        let replaced = known
            .cursor
            .taken(ctx.ground.me, ctx.ground.map.version, Predecessor::Ourselves)
            .replaced(stream);
        tell_replaced(&replaced, ctx);
        self.clean_to = 0;
        self.swap(replaced, Goal::Take, ctx);
    }

    /// There is no cursor: ask the store how far this partition came, unless there is no log.
    pub(super) fn trace(&mut self, ctx: &mut Context<'_>) {
        if self.log.is_none() {
            self.create(None, ctx);
            return;
        }
        let ticket = ctx.ask(Purpose::Origin);
        ctx.out.push(Effect::ReadOrigin { ticket, partition: ctx.name.clone() });
        self.activity = Activity::Tracing(ticket);
    }

    /// The store says how far this partition came.
    pub(crate) fn traced(
        &mut self,
        ticket: Ticket,
        result: Result<Option<Origin>, ReadError>,
        ctx: &mut Context<'_>,
    ) {
        if self.activity != Activity::Tracing(ticket) {
            return;
        }
        match result {
            Ok(origin) => {
                self.store_failures = 0;
                self.create(origin, ctx);
            }
            Err(ReadError) => self.wait_for_store(Then::Survey, ctx),
        }
    }

    pub(super) fn create(&mut self, origin: Option<Origin>, ctx: &mut Context<'_>) {
        let info = self.log;
        let stream = info.map_or(0, |info| info.stream);
        let above = ctx.ground.config.keeps(Guard::OriginFromStore);
        let newest = origin.as_ref().map_or(Position::default(), |origin| origin.newest);
        let predecessor = match &origin {
            Some(origin) if above => origin.predecessor,
            Some(origin) => Some(origin.newest),
            None => None,
        };
        let same_log = origin.as_ref().is_some_and(|origin| origin.stream == stream);
        let go_on = predecessor.filter(|_| same_log);
        let generation =
            if above { ctx.ground.broker_time.max(newest.generation + 1) } else { newest.generation };
        let stamp = origin.as_ref().map_or(0, |origin| origin.stamp + 1);
        let stamp = stamp.max(ctx.ground.broker_time + ABOVE_THE_LATE);
        // A partition that nobody has seen before begins with what the log holds of it.
        let clean_to = match (&origin, info) {
            (None, Some(info)) if self.last.is_none() => info.last,
            (None, Some(info)) => info.first.saturating_sub(1),
            _ => 0,
        };
        let context =
            origin.as_ref().filter(|_| go_on.is_some() && above).map(|origin| origin.context.clone());
        let cursor = Cursor {
            position: Position { generation, sequence: go_on.map_or(0, |position| position.sequence) },
            base: predecessor,
            context: context.unwrap_or_else(|| "".into()),
            stream,
            stamp: if above { stamp } else { 0 },
            holder: ctx.ground.me,
            version: ctx.ground.map.version,
            take: 1,
            failures: 0,
            deaths: 0,
            solo: false,
            dead: None,
            judged: None,
            clean_to,
            released: false,
        };
        self.begin_swap(cursor, Condition::Absent, Goal::Take, ctx);
    }
}

fn tell_replaced(cursor: &Cursor, ctx: &mut Context<'_>) {
    let (partition, generation) = (ctx.name.clone(), cursor.position.generation);
    ctx.out.push(Effect::Notice(Notice::LogReplaced { partition, generation }));
}
