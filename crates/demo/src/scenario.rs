//! Scenario of the demo: its steps, and the runs that the fab sends.

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

use crate::audit::{SentRun, audit};
use crate::child_process::ChildCommand;
use crate::display::{DisplaySources, DisplayState};
use crate::environment::Environment;
use crate::fleet::Fleet;
use crate::fleet_watcher::{FleetSnapshot, FleetWatcher};
use crate::proxy::FleetProxy;
use crate::summary::Summary;

pub(crate) const CHAMBERS: usize = 60;
pub(crate) const DEFENDERS: u32 = 5;
/// Fleet size after the scale-up.
const SCALED_DEFENDERS: u32 = 7;
/// Number of runs that the fab sends concurrently; less than there are chambers.
const MAX_PARALLEL_RUNS: usize = 8;
/// Limit of one step.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval of a step.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Runs that were sent so far.
pub(crate) type SentRuns = Arc<Mutex<Vec<SentRun>>>;

pub(crate) fn lock(sent: &SentRuns) -> MutexGuard<'_, Vec<SentRun>> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Output of the scenario.
pub(crate) enum Output {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The terminal display.
    Display(Arc<DisplayState>),
}

/// Scenario of the demo.
pub(crate) struct Scenario {
    pub(crate) environment: Arc<Environment>,
    pub(crate) proxy: FleetProxy,
    /// Command of child processes, if the defenders are some.
    pub(crate) child_command: Option<ChildCommand>,
    pub(crate) length: Duration,
    pub(crate) seed: u64,
    pub(crate) output: Output,
}

impl Scenario {
    /// Runs it from its beginning to its end.
    pub(crate) async fn run(self) -> Result<Summary> {
        let Self { environment, proxy, child_command, length, seed, output } = self;
        let fab = Arc::new(Fab::new(seed, CHAMBERS));
        let began = Instant::now();
        environment.store.put_metadata(&weights::import(&fab.chambers_csv(), Timestamp::now())?).await?;
        let watcher = FleetWatcher::open(&environment).await?;
        let sent = SentRuns::default();
        if let Output::Display(display) = &output {
            let default_chart = (chamber(&fab, 0)?, Indicator::ALL[0].name().into());
            let (watcher, store, sent) = (watcher.clone(), environment.store.clone(), sent.clone());
            display.open(DisplaySources { watcher, store, sent, default_chart });
        }
        let fleet = Fleet::new(environment.clone(), child_command, proxy);
        let mut runner = ScenarioRunner { began, output, fleet, watcher, sent };
        runner.begin().await?;

        // The runs are spread evenly over the time, with some of it left for the end.
        let runs = (length.as_secs_f64() * 1.1) as u64 + 10;
        let notifications = environment.backend.log(&environment.settings.log).await?;
        let collector = Collector::new(environment.store.clone(), notifications);
        let publishing =
            tokio::spawn(publish(fab.clone(), collector, runs, length.mul_f64(0.88), runner.sent.clone()));

        let at = |share: f64| tokio::time::sleep_until((began + length.mul_f64(share)).into());
        at(0.30).await;
        runner.progress();
        let dead = runner.crash().await?;
        at(0.50).await;
        runner.progress();
        runner.scale_up(&dead).await?;
        at(0.65).await;
        runner.progress();
        runner.rolling_update().await?;
        publishing.await.context("the fab ended early")??;
        runner.progress();
        runner.end(&fab, &environment, seed).await
    }
}

/// Runs the steps of the scenario and reports them.
struct ScenarioRunner {
    began: Instant,
    output: Output,
    fleet: Fleet,
    watcher: FleetWatcher,
    sent: SentRuns,
}

impl ScenarioRunner {
    fn print_line(&self, text: &str) {
        let line = format!("{:>5.1} s  {text}", self.began.elapsed().as_secs_f64());
        match &self.output {
            Output::Stdout => println!("{line}"),
            Output::Stderr => eprintln!("{line}"),
            Output::Display(display) => display.push_line(line),
        }
    }

    /// Polls until the check of the fleet succeeds; its last error is returned after the time limit.
    async fn poll_until(&self, check: impl Fn(&FleetSnapshot) -> Result<(), String>) -> Result<()> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            let missing = match check(&self.watcher.snapshot()) {
                Ok(()) => return Ok(()),
                Err(missing) => missing,
            };
            if Instant::now() > deadline {
                bail!("after {} s {missing}", STEP_TIMEOUT.as_secs());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until `size` defenders have applied the same map and own all chambers.
    async fn settle(&self, size: u32) -> Result<()> {
        let pods = self.fleet.names();
        self.poll_until(|fleet| fleet.settled(&pods, size as usize, CHAMBERS)).await
    }

    fn progress(&self) {
        let (fleet, sent) = (self.watcher.snapshot(), lock(&self.sent));
        let (committed, alarms) = (fleet.committed(&sent), fleet.alarms().len());
        let latest = fleet
            .alarms()
            .next_back()
            .map_or(String::new(), |latest| format!("; latest: {}", latest.message));
        self.print_line(&format!("{} runs sent, {committed} committed, {alarms} alarms{latest}", sent.len()));
    }

    /// Starts the fleet.
    async fn begin(&mut self) -> Result<()> {
        for _ in 0..DEFENDERS {
            self.fleet.start(DEFENDERS).await?;
        }
        self.settle(DEFENDERS).await?;
        let each = if self.fleet.uses_processes() { ", each a process of its own" } else { "" };
        self.print_line(&format!(
            "{CHAMBERS} chambers of a simulated fab on {DEFENDERS} defenders{each}: {}. A quarter of the chambers will go \
             wrong.",
            self.watcher.snapshot().loads()
        ));
        Ok(())
    }

    /// Kills a defender and waits until the others own its chambers.
    async fn crash(&mut self) -> Result<String> {
        let leader = self.watcher.snapshot().leader();
        let follower = self.fleet.names().into_iter().find(|name| Some(name) != leader.as_ref());
        let Some(name) = follower else { bail!("every defender leads") };
        let lost = self.watcher.snapshot().chambers_of(&name);
        let (_, moved) = self.watcher.snapshot().publications();
        self.fleet.crash(&name).await;
        let died = Instant::now();
        let dies = if self.fleet.uses_processes() { "is killed with -9" } else { "dies" };
        self.print_line(&format!("CRASH    {name} {dies}; its {lost} chambers have no owner"));
        self.settle(DEFENDERS - 1).await?;
        let fleet = self.watcher.snapshot();
        let others = match fleet.publications().1 - moved {
            moved if moved == lost as u64 => "nothing else moved".to_owned(),
            moved => format!("{moved} chambers moved"),
        };
        self.print_line(&format!(
            "         after {:.1} s the others own them; {others}; {}",
            died.elapsed().as_secs_f64(),
            fleet.loads()
        ));
        Ok(name)
    }

    /// Restarts the killed defender and adds two.
    async fn scale_up(&mut self, dead: &str) -> Result<()> {
        self.print_line(&format!(
            "SCALE    {dead} is restarted, and two defenders are added: {SCALED_DEFENDERS}"
        ));
        let (_, before) = self.watcher.snapshot().publications();
        let asked = Instant::now();
        self.fleet.scale(SCALED_DEFENDERS).await?;
        self.fleet.start_as(dead, SCALED_DEFENDERS).await?;
        for _ in DEFENDERS..SCALED_DEFENDERS {
            self.fleet.start(SCALED_DEFENDERS).await?;
        }
        self.settle(SCALED_DEFENDERS).await?;
        let fleet = self.watcher.snapshot();
        self.print_line(&format!(
            "         after {:.1} s they have their share: {} of {CHAMBERS} chambers moved; {}",
            asked.elapsed().as_secs_f64(),
            fleet.publications().1 - before,
            fleet.loads()
        ));
        Ok(())
    }

    /// Replaces all defenders one by one: a new one waits as a standby and claims the id of the one that leaves.
    async fn rolling_update(&mut self) -> Result<()> {
        self.print_line(&format!(
            "ROLL-OUT all {SCALED_DEFENDERS} defenders are replaced one by one, the leader too"
        ));
        let (began, before) = (Instant::now(), self.watcher.snapshot().version());
        for old in self.fleet.names() {
            let new = self.fleet.start(SCALED_DEFENDERS).await?;
            let is_standby = |fleet: &FleetSnapshot| match fleet.is_standby(&new) {
                true => Ok(()),
                false => Err(format!("{new} does not stand by")),
            };
            self.poll_until(is_standby).await?;
            self.fleet.stop(&old).await?;
            self.settle(SCALED_DEFENDERS).await?;
        }
        let took = began.elapsed().as_secs_f64();
        self.print_line(&match self.watcher.snapshot().version() - before {
            0 => format!("         done after {took:.1} s: 0 new maps, nothing moved"),
            maps => format!("         done after {took:.1} s: {maps} new maps"),
        });
        Ok(())
    }

    /// Waits for the last run, audits, and shuts the fleet down.
    async fn end(mut self, fab: &Fab, environment: &Environment, seed: u64) -> Result<Summary> {
        let sent = lock(&self.sent).clone();
        let committed = |fleet: &FleetSnapshot| match fleet.committed(&sent) {
            all if all == sent.len() => Ok(()),
            some => Err(format!("{some} of {} runs are committed", sent.len())),
        };
        // The audit counts missing runs, so a timeout does not end the demo.
        let _ = self.poll_until(committed).await;
        let audit = audit(fab, &*environment.store, &sent).await?;
        let (latencies, maps, moved) = {
            let fleet = self.watcher.snapshot();
            let latency = |run: &SentRun| {
                Some(fleet.committed_at(run)?.saturating_duration_since(run.at).as_secs_f64() * 1e3)
            };
            let (maps, moved) = fleet.publications();
            (sent.iter().filter_map(latency).collect(), maps, moved)
        };
        for name in self.fleet.names().into_iter().rev() {
            self.fleet.stop(&name).await?;
        }
        let cache_hit_rate = self.fleet.cache_hit_rate();
        Ok(Summary { seed, maps, moved, latencies, cache_hit_rate, audit })
    }
}

/// Sends the runs of the fab: all chambers in turn, spread evenly over the time.
async fn publish(
    fab: Arc<Fab>,
    collector: Collector,
    runs: u64,
    time: Duration,
    sent: SentRuns,
) -> Result<()> {
    let began = Instant::now();
    let total = runs * CHAMBERS as u64;
    let mut in_progress = VecDeque::<JoinHandle<Result<()>>>::new();
    for turn in 0..total {
        tokio::time::sleep_until((began + time.mul_f64(turn as f64 / total as f64)).into()).await;
        // Runs of one chamber are further apart than this, so they stay in order.
        if in_progress.len() == MAX_PARALLEL_RUNS
            && let Some(oldest) = in_progress.pop_front()
        {
            oldest.await??;
        }
        let (run, number) = (turn / CHAMBERS as u64, (turn % CHAMBERS as u64) as usize);
        in_progress.push_back(tokio::spawn(submit(
            fab.clone(),
            collector.clone(),
            run,
            number,
            sent.clone(),
        )));
    }
    for last in in_progress {
        last.await??;
    }
    Ok(())
}

/// Sends one run of one chamber.
async fn submit(fab: Arc<Fab>, collector: Collector, run: u64, number: usize, sent: SentRuns) -> Result<()> {
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
    let entry = SentRun { number, run, chamber, sequence: collected.sequence, at: Instant::now() };
    lock(&sent).push(entry);
    Ok(())
}

fn chamber(fab: &Fab, number: usize) -> Result<Chamber> {
    let model = &fab.chambers()[number];
    Ok(Chamber::new(&model.tool, &model.name)?)
}
