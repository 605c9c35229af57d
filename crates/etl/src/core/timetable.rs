//! Which feed is read again when, and which has not completed for too long.

use std::collections::BTreeMap;
use std::time::Duration;

use super::schedule::Schedule;

/// What is wanted of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// When it is read.
    pub schedule: Schedule,
    /// Up to so much is added to each start, so that feeds and machines do not begin all at once.
    pub jitter: Duration,
    /// It is stale when its last completed run is longer ago.
    pub fresh_within: Duration,
}

/// What is known of a feed when the timetable is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Since when it is there; one that never completed is stale that much later.
    pub known_since: Duration,
    /// When its last run began.
    pub began: Option<Duration>,
    /// When its last completed run ended.
    pub completed: Option<Duration>,
    /// Whether a run is under way, running or paused.
    pub under_way: bool,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A run of this feed began, whoever wanted it.
    Began(String),
    /// It ended; `true` when it completed.
    Ended(String, bool),
    /// Time passed.
    Tick,
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start these, each after what it needs.
    Start(Vec<String>),
    /// This feed has not completed within its limit: say so loudly.
    Stale {
        /// Which.
        id: String,
        /// When it completed last; `None` where it never did.
        completed: Option<Duration>,
        /// The limit.
        limit: Duration,
    },
    /// It has completed again.
    Fresh(String),
}

/// Where a feed stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// What is wanted of it.
    pub plan: Plan,
    /// When it begins next; `None` where nothing is planned.
    pub next_start: Option<Duration>,
    /// What is known.
    pub past: Past,
    /// Whether it has not completed within its limit.
    pub is_stale: bool,
    /// How often it was planned.
    turns: u64,
}

/// The feeds and their times. Randomness comes from the seed.
#[derive(Clone, Debug)]
pub struct Timetable {
    feeds: BTreeMap<String, Feed>,
    seed: u64,
}

impl Timetable {
    /// Plans every feed: from when it began last, so that a start that was missed is made up for; at once, where it
    /// never ran.
    pub fn new(now: Duration, seed: u64, feeds: impl IntoIterator<Item = (String, Plan, Past)>) -> Self {
        let feeds = feeds.into_iter().map(|(id, plan, past)| {
            let due = match past.began {
                Some(began) => plan.schedule.next_after(began),
                None => plan.schedule.next_after(now).map(|_| now),
            };
            let mut feed = Feed { plan, next_start: None, past, is_stale: false, turns: 0 };
            feed.next_start = due.map(|due| due.max(now) + feed.jitter(seed, &id));
            (id, feed)
        });
        Self { feeds: feeds.collect(), seed }
    }

    /// Where each feed stands.
    pub fn feeds(&self) -> &BTreeMap<String, Feed> {
        &self.feeds
    }

    /// When [`Input::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        let stale = |feed: &Feed| (!feed.is_stale).then(|| feed.stale_at());
        self.feeds.values().flat_map(|feed| [feed.next_start, stale(feed)]).flatten().min()
    }

    /// Takes one input and appends what the shell must do.
    pub fn handle(&mut self, now: Duration, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Began(id) => {
                if let Some(feed) = self.feeds.get_mut(&id) {
                    (feed.past.began, feed.past.under_way) = (Some(now), true);
                    // Whoever wanted it: it need not begin again before its schedule says so, counted from here.
                    feed.plan_after(now, self.seed, &id);
                }
            }
            Input::Ended(id, completed) => {
                if let Some(feed) = self.feeds.get_mut(&id) {
                    feed.past.under_way = false;
                    if completed {
                        feed.past.completed = Some(now);
                        if std::mem::take(&mut feed.is_stale) {
                            out.push(Effect::Fresh(id));
                        }
                    }
                }
            }
            Input::Tick => self.tick(now, out),
        }
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let mut due = Vec::new();
        for (id, feed) in &mut self.feeds {
            if feed.next_start.is_some_and(|at| at <= now) {
                // A run that is still under way, or paused, is not doubled: the next turn comes.
                if !feed.past.under_way {
                    due.push(id.clone());
                }
                feed.turns += 1;
                feed.plan_after(now, self.seed, id);
            }
            if !feed.is_stale && feed.stale_at() <= now {
                feed.is_stale = true;
                let (completed, limit) = (feed.past.completed, feed.plan.fresh_within);
                out.push(Effect::Stale { id: id.clone(), completed, limit });
            }
        }
        if !due.is_empty() {
            out.push(Effect::Start(due));
        }
    }
}

impl Feed {
    /// When it becomes stale, unless it completes before.
    pub fn stale_at(&self) -> Duration {
        self.past.completed.unwrap_or(self.past.known_since).saturating_add(self.plan.fresh_within)
    }

    fn plan_after(&mut self, begin: Duration, seed: u64, id: &str) {
        let jitter = self.jitter(seed, id);
        self.next_start = self.plan.schedule.next_after(begin).map(|next| next + jitter);
    }

    fn jitter(&self, seed: u64, id: &str) -> Duration {
        // FNV-1a over all that makes this turn this one, stirred (splitmix64).
        let bytes = seed.to_le_bytes().into_iter().chain(self.turns.to_le_bytes()).chain(id.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.plan.jitter.mul_f64(((hash ^ hash >> 31) >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const START: Duration = Duration::from_secs(1_700_000_000);

    fn plan(schedule: &str, jitter: Duration, fresh_within: Duration) -> Plan {
        Plan { schedule: schedule.parse().unwrap(), jitter, fresh_within }
    }

    fn of(id: &str, plan: Plan, past: Past) -> (String, Plan, Past) {
        (id.to_owned(), plan, past)
    }

    fn tick(timetable: &mut Timetable, now: Duration) -> Vec<Effect> {
        let mut out = Vec::new();
        timetable.handle(now, Input::Tick, &mut out);
        out
    }

    fn ended(timetable: &mut Timetable, now: Duration, completed: bool) -> Vec<Effect> {
        let mut out = Vec::new();
        timetable.handle(now, Input::Began("cve".to_owned()), &mut out);
        timetable.handle(now, Input::Ended("cve".to_owned(), completed), &mut out);
        out
    }

    fn start(ids: &[&str]) -> Effect {
        Effect::Start(ids.iter().map(|&id| id.to_owned()).collect())
    }

    #[test]
    fn a_run_begun_by_hand_puts_the_scheduled_one_off() {
        let past = Past { known_since: START, ..Past::default() };
        let jitter = Duration::from_secs(300);
        let mut timetable = Timetable::new(START, 1, [of("cve", plan("2h", jitter, 1000 * HOUR), past)]);
        ended(&mut timetable, START, true);
        assert_eq!(tick(&mut timetable, START + HOUR), [], "it has just been read");
        assert_eq!(tick(&mut timetable, START + 2 * HOUR + jitter), [start(&["cve"])]);
    }

    #[test]
    fn what_never_ran_begins_at_once_and_then_as_scheduled() {
        let past = Past { known_since: START, ..Past::default() };
        let every = plan("2h", Duration::ZERO, 1000 * HOUR);
        let feeds = [of("cve", every.clone(), past), of("cwe", every, past)];
        let mut timetable = Timetable::new(START, 1, feeds);
        assert_eq!(timetable.next_deadline(), Some(START));
        assert_eq!(
            tick(&mut timetable, START),
            [start(&["cve", "cwe"])],
            "in one set, so that needs are met"
        );
        assert_eq!(tick(&mut timetable, START + HOUR), []);
        assert_eq!(timetable.next_deadline(), Some(START + 2 * HOUR));
        assert_eq!(tick(&mut timetable, START + 2 * HOUR), [start(&["cve", "cwe"])]);
    }

    #[test]
    fn a_start_missed_while_nobody_was_there_is_made_up_for_and_an_early_one_is_not() {
        let daily = plan("0 3 * * *", Duration::ZERO, 1000 * HOUR);
        let began =
            |ago: u32| Past { known_since: START, began: Some(START - ago * HOUR), ..Past::default() };
        let next =
            |past| Timetable::new(START, 1, [of("cve", daily.clone(), past)]).feeds()["cve"].next_start;
        // 1,700,000,000 is 22:13:20 UTC.
        assert_eq!(next(began(48)), Some(START));
        assert_eq!(next(began(2)), Some(START + Duration::from_secs(4 * 3600 + 46 * 60 + 40)));
    }

    #[test]
    fn jitter_delays_each_start_by_another_part_of_it_and_the_seed_says_which() {
        let jittered = plan("1h", HOUR, 1000 * HOUR);
        let delays = |seed| {
            let past = Past { known_since: START, ..Past::default() };
            let mut timetable = Timetable::new(START, seed, [of("cve", jittered.clone(), past)]);
            let mut delays = vec![timetable.next_deadline().unwrap() - START];
            for _ in 0..50 {
                let now = timetable.next_deadline().unwrap();
                assert_eq!(tick(&mut timetable, now), [start(&["cve"])]);
                delays.push(timetable.next_deadline().unwrap() - now - HOUR);
            }
            delays
        };
        let some = delays(1);
        assert_eq!(some, delays(1));
        assert_ne!(some, delays(2));
        assert!(some.iter().all(|delay| *delay < HOUR));
        let mean = some.iter().sum::<Duration>() / 51;
        assert!(mean > HOUR / 4 && mean < HOUR * 3 / 4, "{mean:?}");
    }

    #[test]
    fn a_run_that_takes_longer_than_its_interval_is_not_doubled() {
        let past = Past { known_since: START, under_way: true, ..Past::default() };
        let mut timetable =
            Timetable::new(START, 1, [of("cve", plan("1h", Duration::ZERO, 1000 * HOUR), past)]);
        assert_eq!(tick(&mut timetable, START), []);
        assert_eq!(tick(&mut timetable, START + HOUR), []);
        ended(&mut timetable, START + HOUR, true);
        assert_eq!(tick(&mut timetable, START + 2 * HOUR), [start(&["cve"])]);
    }

    #[test]
    fn a_feed_that_has_not_completed_within_its_limit_is_stale_once_until_it_completes() {
        let past = Past { known_since: START, ..Past::default() };
        let mut timetable =
            Timetable::new(START, 1, [of("cve", plan("never", Duration::ZERO, 3 * HOUR), past)]);
        assert_eq!(timetable.next_deadline(), Some(START + 3 * HOUR));
        assert_eq!(tick(&mut timetable, START + 2 * HOUR), []);
        let stale = |completed| Effect::Stale { id: "cve".to_owned(), completed, limit: 3 * HOUR };
        assert_eq!(tick(&mut timetable, START + 3 * HOUR), [stale(None)]);
        assert_eq!(tick(&mut timetable, START + 4 * HOUR), []);
        assert_eq!(timetable.next_deadline(), None);
        assert_eq!(
            ended(&mut timetable, START + 5 * HOUR, false),
            [],
            "a run that fails makes nothing fresh"
        );
        assert!(timetable.feeds()["cve"].is_stale);
        assert_eq!(ended(&mut timetable, START + 6 * HOUR, true), [Effect::Fresh("cve".to_owned())]);
        assert_eq!(tick(&mut timetable, START + 9 * HOUR), [stale(Some(START + 6 * HOUR))]);
    }

    #[test]
    fn a_feed_that_is_paused_for_good_becomes_stale_and_is_not_started() {
        let past = Past { known_since: START, completed: Some(START), ..Past::default() };
        let mut timetable = Timetable::new(START, 1, [of("cve", plan("1h", Duration::ZERO, 3 * HOUR), past)]);
        timetable.handle(START, Input::Began("cve".to_owned()), &mut Vec::new());
        let effects: Vec<_> = (1..=5).flat_map(|hour| tick(&mut timetable, START + hour * HOUR)).collect();
        assert_eq!(
            effects,
            [Effect::Stale { id: "cve".to_owned(), completed: Some(START), limit: 3 * HOUR }]
        );
    }
}
