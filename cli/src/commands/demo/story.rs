//! What happens in the demo, and when.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use phalanx_defender::collector::Collector;
use phalanx_defender::record::Chamber;
use phalanx_defender::traces::{Recording, Series};
use phalanx_defender::weights;
use phalanx_fab::{Fab, Indicator};
use tokio::task::JoinHandle;

use super::books::{self, Published};
use super::door::Door;
use super::fleet::Fleet;
use super::ground::Ground;
use super::lookout::{Lookout, Seen};
use super::summary::Summary;
use super::view::{Scene, Stage};

pub(super) const CHAMBERS: usize = 60;
pub(super) const DEFENDERS: u32 = 5;
/// After two were added.
const SCALED: u32 = 7;
/// How many runs the fab sends at once: less than there are chambers.
const AT_ONCE: usize = 8;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether it is done.
const LOOK: Duration = Duration::from_millis(20);

/// What was sent so far.
pub(super) type Sent = Arc<Mutex<Vec<Published>>>;

pub(super) fn lock(sent: &Sent) -> MutexGuard<'_, Vec<Published>> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where what happens is said.
pub(super) enum Voice {
    /// On standard output.
    Aloud,
    /// On standard error.
    Quietly,
    /// On a stage that somebody draws.
    OnStage(Arc<Stage>),
}

/// What the demo is made of.
pub(super) struct Story {
    pub(super) ground: Arc<Ground>,
    pub(super) door: Door,
    pub(super) processes: bool,
    pub(super) length: Duration,
    pub(super) seed: u64,
    pub(super) voice: Voice,
}

impl Story {
    /// Tells it from its beginning to its end.
    pub(super) async fn tell(self) -> Result<Summary> {
        let Self { ground, door, processes, length, seed, voice } = self;
        let fab = Arc::new(Fab::new(seed, CHAMBERS));
        let began = Instant::now();
        ground.store.put_metadata(&weights::import(&fab.chambers_csv(), Timestamp::now())?).await?;
        let lookout = Lookout::open(&ground).await?;
        let sent = Sent::default();
        if let Voice::OnStage(stage) = &voice {
            let usual = (chamber(&fab, 0)?, Indicator::ALL[0].name().into());
            let (lookout, store, sent) = (lookout.clone(), ground.store.clone(), sent.clone());
            stage.open(Scene { lookout, store, sent, usual });
        }
        let fleet = Fleet::new(ground.clone(), processes, door);
        let mut teller = Teller { began, voice, fleet, lookout, sent };
        teller.begin(processes).await?;

        // The runs come evenly over the time, with some left for the end.
        let runs = (length.as_secs_f64() * 1.1) as u64 + 10;
        let notifications = ground.backend.log(&ground.settings.log).await?;
        let collector = Collector::new(ground.store.clone(), notifications);
        let publishing =
            tokio::spawn(publish(fab.clone(), collector, runs, length.mul_f64(0.88), teller.sent.clone()));

        let at = |share: f64| tokio::time::sleep_until((began + length.mul_f64(share)).into());
        at(0.30).await;
        teller.progress();
        let dead = teller.crash(processes).await?;
        at(0.50).await;
        teller.progress();
        teller.grow(&dead).await?;
        at(0.65).await;
        teller.progress();
        teller.roll().await?;
        publishing.await.context("the fab ended early")??;
        teller.progress();
        teller.end(&fab, &ground, seed).await
    }
}

/// Carries the story out, and says what happens.
struct Teller {
    began: Instant,
    voice: Voice,
    fleet: Fleet,
    lookout: Lookout,
    sent: Sent,
}

impl Teller {
    fn say(&self, text: &str) {
        let line = format!("{:>5.1} s  {text}", self.began.elapsed().as_secs_f64());
        match &self.voice {
            Voice::Aloud => println!("{line}"),
            Voice::Quietly => eprintln!("{line}"),
            Voice::OnStage(stage) => stage.say(line),
        }
    }

    /// Waits until that is so of what is seen; what is amiss is said when it takes too long.
    async fn until(&self, is_so: impl Fn(&Seen) -> Result<(), String>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let amiss = match is_so(&self.lookout.seen()) {
                Ok(()) => return Ok(()),
                Err(amiss) => amiss,
            };
            if Instant::now() > deadline {
                bail!("after {} s {amiss}", PATIENCE.as_secs());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until so many have the same map and all its chambers.
    async fn settle(&self, size: u32) -> Result<()> {
        let pods = self.fleet.names();
        self.until(|seen| seen.settled(&pods, size as usize, CHAMBERS)).await
    }

    fn progress(&self) {
        let (seen, sent) = (self.lookout.seen(), lock(&self.sent));
        let (committed, alarms) = (seen.committed(&sent), seen.alarms().len());
        let latest =
            seen.alarms().next_back().map_or(String::new(), |latest| format!("; latest: {}", latest.message));
        self.say(&format!("{} runs sent, {committed} committed, {alarms} alarms{latest}", sent.len()));
    }

    async fn begin(&mut self, processes: bool) -> Result<()> {
        for _ in 0..DEFENDERS {
            self.fleet.start(DEFENDERS).await?;
        }
        self.settle(DEFENDERS).await?;
        let each = if processes { ", each a process of its own" } else { "" };
        self.say(&format!(
            "{CHAMBERS} chambers of a simulated fab on {DEFENDERS} defenders{each}: {}. A quarter of the chambers will go \
             wrong.",
            self.lookout.seen().loads()
        ));
        Ok(())
    }

    /// A defender dies without a word.
    async fn crash(&mut self, processes: bool) -> Result<String> {
        let leader = self.lookout.seen().leader();
        let follower = self.fleet.names().into_iter().find(|name| Some(name) != leader.as_ref());
        let Some(name) = follower else { bail!("every defender leads") };
        let lost = self.lookout.seen().chambers_of(&name);
        let (_, moved) = self.lookout.seen().publications();
        self.fleet.crash(&name).await;
        let died = Instant::now();
        let dies = if processes { "is killed with -9" } else { "dies" };
        self.say(&format!("CRASH    {name} {dies}; its {lost} chambers have no owner"));
        self.settle(DEFENDERS - 1).await?;
        let seen = self.lookout.seen();
        let others = match seen.publications().1 - moved {
            moved if moved == lost as u64 => "nothing else moved".to_owned(),
            moved => format!("{moved} chambers moved"),
        };
        self.say(&format!(
            "         after {:.1} s the others own them; {others}; {}",
            died.elapsed().as_secs_f64(),
            seen.loads()
        ));
        Ok(name)
    }

    /// The dead one comes back, and two more are added.
    async fn grow(&mut self, dead: &str) -> Result<()> {
        self.say(&format!("SCALE    {dead} is restarted, and two defenders are added: {SCALED}"));
        let (_, before) = self.lookout.seen().publications();
        let asked = Instant::now();
        self.fleet.scale(SCALED).await?;
        self.fleet.start_as(dead, SCALED).await?;
        for _ in DEFENDERS..SCALED {
            self.fleet.start(SCALED).await?;
        }
        self.settle(SCALED).await?;
        let seen = self.lookout.seen();
        self.say(&format!(
            "         after {:.1} s they have their share: {} of {CHAMBERS} chambers moved; {}",
            asked.elapsed().as_secs_f64(),
            seen.publications().1 - before,
            seen.loads()
        ));
        Ok(())
    }

    /// All are replaced, one by one: a new one waits as a standby and takes the id of the one that leaves.
    async fn roll(&mut self) -> Result<()> {
        self.say(&format!("ROLL-OUT all {SCALED} defenders are replaced one by one, the leader too"));
        let (began, before) = (Instant::now(), self.lookout.seen().version());
        for old in self.fleet.names() {
            let new = self.fleet.start(SCALED).await?;
            let stands_by = |seen: &Seen| match seen.stands_by(&new) {
                true => Ok(()),
                false => Err(format!("{new} does not stand by")),
            };
            self.until(stands_by).await?;
            self.fleet.stop(&old).await?;
            self.settle(SCALED).await?;
        }
        let took = began.elapsed().as_secs_f64();
        self.say(&match self.lookout.seen().version() - before {
            0 => format!("         done after {took:.1} s: 0 new maps, nothing moved"),
            maps => format!("         done after {took:.1} s: {maps} new maps"),
        });
        Ok(())
    }

    /// Waits for the last run, counts, and ends the fleet.
    async fn end(mut self, fab: &Fab, ground: &Ground, seed: u64) -> Result<Summary> {
        let sent = lock(&self.sent).clone();
        let committed = |seen: &Seen| match seen.committed(&sent) {
            all if all == sent.len() => Ok(()),
            some => Err(format!("{some} of {} runs are committed", sent.len())),
        };
        // What is missing is counted: it is no reason to say nothing of the rest.
        let _ = self.until(committed).await;
        let counted = books::count(fab, &*ground.store, &sent).await?;
        let (latencies, maps, moved) = {
            let seen = self.lookout.seen();
            let latency = |run: &Published| {
                Some(seen.committed_at(run)?.saturating_duration_since(run.at).as_secs_f64() * 1e3)
            };
            let (maps, moved) = seen.publications();
            (sent.iter().filter_map(latency).collect(), maps, moved)
        };
        for name in self.fleet.names().into_iter().rev() {
            self.fleet.stop(&name).await?;
        }
        let cache_hit_rate = self.fleet.cache_hit_rate();
        Ok(Summary { seed, maps, moved, latencies, cache_hit_rate, counted })
    }
}

/// The fab sends its runs: all chambers in turn, evenly over the time.
async fn publish(fab: Arc<Fab>, collector: Collector, runs: u64, time: Duration, sent: Sent) -> Result<()> {
    let began = Instant::now();
    let total = runs * CHAMBERS as u64;
    let mut under_way = VecDeque::<JoinHandle<Result<()>>>::new();
    for turn in 0..total {
        tokio::time::sleep_until((began + time.mul_f64(turn as f64 / total as f64)).into()).await;
        // Those of one chamber are further apart than this: they stay in their order.
        if under_way.len() == AT_ONCE
            && let Some(oldest) = under_way.pop_front()
        {
            oldest.await??;
        }
        let (run, number) = (turn / CHAMBERS as u64, (turn % CHAMBERS as u64) as usize);
        under_way.push_back(tokio::spawn(submit(fab.clone(), collector.clone(), run, number, sent.clone())));
    }
    for last in under_way {
        last.await??;
    }
    Ok(())
}

/// Sends one run of one chamber.
async fn submit(fab: Arc<Fab>, collector: Collector, run: u64, number: usize, sent: Sent) -> Result<()> {
    let made = tokio::task::spawn_blocking({
        let fab = fab.clone();
        move || {
            let run = fab.run(number, run);
            let series = run.traces.into_iter().map(|trace| Series {
                svid: trace.svid,
                timestamps: run.times_us.clone(),
                values: trace.values,
            });
            Recording::from_series(series).and_then(|recording| Ok((run.context, recording.to_chunks()?)))
        }
    });
    let (context, chunks) = made.await??;
    let chamber = chamber(&fab, number)?;
    let collected = collector.submit(&chamber, &context, Timestamp::now(), &chunks).await?;
    let entry = Published { number, run, chamber, sequence: collected.sequence, at: Instant::now() };
    lock(&sent).push(entry);
    Ok(())
}

fn chamber(fab: &Fab, number: usize) -> Result<Chamber> {
    let model = &fab.chambers()[number];
    Ok(Chamber::new(&model.tool, &model.name)?)
}
