//! What happens in the demo, and when.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use phalanx_cluster::Role;
use phalanx_defender::collector::Collector;
use phalanx_defender::record::Chamber;
use phalanx_defender::traces::{Recording, Series};
use phalanx_defender::weights;
use phalanx_fab::Fab;

use super::books::{self, Published};
use super::fleet::Fleet;
use super::ground::Ground;
use super::summary::Summary;
use super::view::{Scene, Stage};

const CHAMBERS: usize = 60;
const DEFENDERS: u32 = 5;
/// After two were added.
const SCALED: u32 = 7;
/// How long the end may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where what happens is said.
pub(super) enum Voice {
    /// On standard output.
    Aloud,
    /// On standard error.
    Quietly,
    /// On a stage that somebody draws.
    OnStage(Arc<Stage>),
}

/// Says what happens: lines for people.
struct Teller {
    began: Instant,
    voice: Voice,
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
}

/// How many maps there were, and what moved with them.
#[derive(Default)]
struct Maps {
    newest: u64,
    count: u64,
    moved: u64,
}

impl Maps {
    fn look(&mut self, fleet: &Fleet) {
        if let Some(map) = fleet.map().filter(|map| map.version.0 > self.newest) {
            if self.newest > 0 {
                self.count += 1;
                self.moved += map.moved as u64;
            }
            self.newest = map.version.0;
        }
    }
}

pub(super) async fn tell(ground: Ground, length: Duration, seed: u64, voice: Voice) -> Result<Summary> {
    let teller = Teller { began: Instant::now(), voice };
    let fab = Arc::new(Fab::new(seed, CHAMBERS));
    let mut fleet = Fleet::new(ground)?;
    let chambers = weights::import(&fab.chambers_csv(), Timestamp::now())?;
    fleet.store().put_metadata(&chambers).await?;
    let published = Arc::new(Mutex::new(Vec::<Published>::new()));
    if let Voice::OnStage(stage) = &teller.voice {
        let (roster, log) = (fleet.roster.clone(), fleet.log.clone());
        stage.open(Scene { roster, log, store: fleet.store().clone(), published: published.clone() });
    }
    for number in 0..DEFENDERS {
        let url = fleet.start(DEFENDERS).await?;
        match &teller.voice {
            Voice::OnStage(stage) if number == 0 => stage.serves(&url),
            Voice::OnStage(_) => {}
            _ if number == 0 => eprintln!("{url}"),
            _ => {}
        }
    }
    settle(&fleet, DEFENDERS as usize).await?;
    let mut maps = Maps::default();
    maps.look(&fleet);
    teller.say(&format!(
        "{CHAMBERS} chambers of a simulated fab on {DEFENDERS} defenders: {}. A quarter of the chambers will go wrong.",
        loads(&fleet)
    ));

    // The runs come evenly over the time, with some left for the end.
    let runs = (length.as_secs_f64() * 1.1) as u64 + 10;
    let sending = length.mul_f64(0.88);
    let collector = fleet.members[0].defender.collector().clone();
    let publishing = tokio::spawn(publish(fab.clone(), collector, runs, sending, published.clone()));

    let at = |share: f64| tokio::time::sleep_until((teller.began + length.mul_f64(share)).into());
    at(0.30).await;
    progress(&teller, &fleet, &published);
    let dead = crash(&teller, &mut fleet, &mut maps).await?;
    at(0.50).await;
    progress(&teller, &fleet, &published);
    grow(&teller, &mut fleet, dead, &mut maps).await?;
    at(0.65).await;
    progress(&teller, &fleet, &published);
    roll(&teller, &mut fleet, &mut maps).await?;
    publishing.await.context("the fab ended early")??;
    progress(&teller, &fleet, &published);

    let sent = published.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let deadline = Instant::now() + PATIENCE;
    while fleet.committed() < sent.len() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    maps.look(&fleet);
    let latencies = latencies(&fleet, &sent);
    let counted = books::count(&fab, &**fleet.store(), &sent).await?;
    for member in (0..fleet.members.len()).rev() {
        fleet.stop(member).await;
    }
    fleet.clear().await?;
    let cache_hit_rate = fleet.cache_hit_rate();
    Ok(Summary { seed, maps: maps.count, moved: maps.moved, latencies, cache_hit_rate, counted })
}

/// Waits until so many have the same map and all its chambers.
async fn settle(fleet: &Fleet, size: usize) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let statuses: Vec<_> = fleet.members.iter().map(|member| member.defender.handle().status()).collect();
        let owned: usize = statuses.iter().map(|status| status.assignment.len()).sum();
        let holders = statuses.iter().filter(|status| status.holder.is_some()).count();
        let idle =
            statuses.iter().filter(|status| status.holder.is_some() && status.assignment.is_empty()).count();
        if holders >= size && owned == CHAMBERS && idle == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "{holders} of {size} defenders own {owned} of {CHAMBERS} chambers after {} s",
                PATIENCE.as_secs()
            );
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How evenly the weight is spread.
fn loads(fleet: &Fleet) -> String {
    let Some(map) = fleet.map() else { return "no map yet".to_owned() };
    let mut weights = HashMap::<_, u64>::new();
    for assignment in map.assignments.values() {
        *weights.entry(assignment.owner).or_default() += assignment.weight;
    }
    let mean = weights.values().sum::<u64>() as f64 / map.workers.len().max(1) as f64;
    let part = |weight: Option<&u64>| weight.map_or(0.0, |weight| 100.0 * *weight as f64 / mean);
    let (low, high) = (part(weights.values().min()), part(weights.values().max()));
    format!("loads from {low:.0} to {high:.0} % of the mean")
}

fn progress(teller: &Teller, fleet: &Fleet, published: &Mutex<Vec<Published>>) {
    let sent = published.lock().unwrap_or_else(PoisonError::into_inner).len();
    let alarms = fleet.log.alarms.lock().unwrap_or_else(PoisonError::into_inner);
    let latest = alarms.last().map_or(String::new(), |latest| format!("; latest: {}", latest.message));
    teller.say(&format!(
        "{sent} runs sent, {} committed, {} alarms{latest}",
        fleet.committed(),
        alarms.len()
    ));
}

/// A defender dies without a word.
async fn crash(teller: &Teller, fleet: &mut Fleet, maps: &mut Maps) -> Result<String> {
    let place = fleet.members.iter().position(|member| member.defender.handle().role() != Role::Leader);
    let Some(place) = place else { bail!("every defender leads") };
    let lost = fleet.members[place].defender.handle().assignment().len();
    let name = fleet.crash(place);
    let died = Instant::now();
    teller.say(&format!("CRASH    {name} dies; its {lost} chambers have no owner"));
    settle(fleet, DEFENDERS as usize - 1).await?;
    maps.look(fleet);
    teller.say(&format!(
        "         after {:.1} s the others own them; nothing else moved; {}",
        died.elapsed().as_secs_f64(),
        loads(fleet)
    ));
    Ok(name)
}

/// The dead one comes back, and two more are added.
async fn grow(teller: &Teller, fleet: &mut Fleet, dead: String, maps: &mut Maps) -> Result<()> {
    teller.say(&format!("SCALE    {dead} is restarted, and two defenders are added: {SCALED}"));
    let before = maps.moved;
    let asked = Instant::now();
    fleet.members[0].defender.handle().scale(Some(SCALED)).await?;
    fleet.start_as(dead, SCALED).await?;
    for _ in DEFENDERS..SCALED {
        fleet.start(SCALED).await?;
    }
    settle(fleet, SCALED as usize).await?;
    maps.look(fleet);
    teller.say(&format!(
        "         after {:.1} s they have their share: {} of {CHAMBERS} chambers moved; {}",
        asked.elapsed().as_secs_f64(),
        maps.moved - before,
        loads(fleet)
    ));
    Ok(())
}

/// All are replaced, one by one: a new one waits as a standby and takes the id of the one that leaves.
async fn roll(teller: &Teller, fleet: &mut Fleet, maps: &mut Maps) -> Result<()> {
    let size = SCALED;
    teller.say(&format!("ROLL-OUT all {size} defenders are replaced one by one, the leader too"));
    let (began, before) = (Instant::now(), maps.newest);
    for _ in 0..size {
        fleet.start(size).await?;
        let newcomer = &fleet.members[fleet.members.len() - 1];
        let standing_by = newcomer.defender.handle().wait_until(|status| status.role == Role::Standby);
        if tokio::time::timeout(PATIENCE, standing_by).await.is_err() {
            bail!("{} does not stand by", newcomer.name);
        }
        fleet.stop(0).await;
        settle(fleet, size as usize).await?;
        maps.look(fleet);
    }
    teller.say(&format!(
        "         done after {:.1} s: {} new maps, nothing moved",
        began.elapsed().as_secs_f64(),
        maps.newest - before
    ));
    Ok(())
}

/// The fab sends its runs: all chambers in turn, evenly over the time.
async fn publish(
    fab: Arc<Fab>,
    collector: Collector,
    runs: u64,
    time: Duration,
    published: Arc<Mutex<Vec<Published>>>,
) -> Result<()> {
    let began = Instant::now();
    let total = runs * CHAMBERS as u64;
    for turn in 0..total {
        let (run, number) = (turn / CHAMBERS as u64, (turn % CHAMBERS as u64) as usize);
        tokio::time::sleep_until((began + time.mul_f64(turn as f64 / total as f64)).into()).await;
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
        let at = &fab.chambers()[number];
        let chamber = Chamber::new(&at.tool, &at.name)?;
        let collected = collector.submit(&chamber, &context, Timestamp::now(), &chunks).await?;
        let entry = Published { number, run, chamber, sequence: collected.sequence, at: Instant::now() };
        published.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }
    Ok(())
}

/// From publication to commit, in milliseconds.
fn latencies(fleet: &Fleet, sent: &[Published]) -> Vec<f64> {
    let committed = fleet.log.committed.lock().unwrap_or_else(PoisonError::into_inner);
    sent.iter()
        .filter_map(|one| {
            let at = committed.get(&(one.chamber.clone(), one.sequence))?;
            Some(at.saturating_duration_since(one.at).as_secs_f64() * 1e3)
        })
        .collect()
}
