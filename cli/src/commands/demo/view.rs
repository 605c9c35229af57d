//! The demo as a picture that moves: the fleet, what comes through, alarms, the chart of the worst chamber.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use phalanx_defender::record::{Alarm, Chamber, Flags, UChart};
use phalanx_defender::store::ChartStore;
use phalanx_spc::numeric;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use super::lookout::Lookout;
use super::picture::Picture;
use super::story::{self, Sent};
use crate::commands::charts::Point;
use crate::paint::shows_colours;

/// How often it is drawn.
const FRAME: Duration = Duration::from_millis(200);
/// How many seconds of throughput are shown.
const SECONDS: usize = 60;
/// How many points of the chart.
const POINTS: usize = 80;

/// What is drawn of.
pub(super) struct Scene {
    pub(super) lookout: Lookout,
    pub(super) store: Arc<dyn ChartStore>,
    pub(super) sent: Sent,
    /// The chart that is shown while no chamber has gone wrong.
    pub(super) usual: (Chamber, Arc<str>),
}

/// Where the story is told, and from where it is drawn.
#[derive(Default)]
pub(super) struct Stage {
    lines: Mutex<Vec<String>>,
    url: String,
    scene: Mutex<Option<Arc<Scene>>>,
}

impl Stage {
    /// Creates an empty stage that names the address of the demo.
    pub(super) fn new(url: String) -> Self {
        Self { url, ..Self::default() }
    }

    pub(super) fn say(&self, line: String) {
        lock(&self.lines).push(line);
    }

    /// What was said, for whoever reads it when nothing is drawn any more.
    pub(super) fn lines(&self) -> Vec<String> {
        lock(&self.lines).clone()
    }

    pub(super) fn open(&self, scene: Scene) {
        *lock(&self.scene) = Some(Arc::new(scene));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The terminal is as it was, whatever ends the drawing.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Draws until somebody presses q or Ctrl-C.
pub(super) async fn draw(stage: Arc<Stage>, length: Duration) -> Result<()> {
    let mut terminal = ratatui::try_init()?;
    let _restored = Restored;
    let mut film = Film {
        began: Instant::now(),
        length,
        colours: shows_colours(),
        rates: VecDeque::new(),
        counted: (Instant::now(), 0),
    };
    loop {
        let picture = film.take(&stage).await;
        terminal.draw(|frame| picture.render(frame))?;
        while event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else { continue };
            let interrupts = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if interrupts || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(());
            }
        }
        tokio::time::sleep(FRAME).await;
    }
}

/// What has to be remembered from picture to picture.
struct Film {
    began: Instant,
    length: Duration,
    colours: bool,
    /// Runs committed in each of the last seconds.
    rates: VecDeque<u64>,
    counted: (Instant, usize),
}

impl Film {
    async fn take(&mut self, stage: &Stage) -> Picture {
        let seconds = self.began.elapsed().min(self.length).as_secs();
        let mut picture = Picture {
            title: format!(
                "Phalanx demo, {seconds} of {} s  {}  q ends it",
                self.length.as_secs(),
                stage.url
            ),
            colours: self.colours,
            lines: lock(&stage.lines).clone(),
            ..Picture::default()
        };
        let scene = lock(&stage.scene).clone();
        let Some(scene) = scene else { return picture };
        let worst = {
            let (seen, sent) = (scene.lookout.seen(), story::lock(&scene.sent));
            picture.sent = sent.len();
            picture.committed = seen.committed(&sent);
            picture.members = seen.members();
            picture.alarm_count = seen.alarms().len();
            let latest = seen.alarms().rev().take(20);
            picture.alarms = latest.map(|alarm| (alarm.severity, shown(alarm))).collect();
            worst(seen.alarms())
        };
        let (what, (chamber, indicator)) = match worst {
            Some(worst) => ("worst chamber", worst),
            None => ("no chamber has gone wrong", scene.usual.clone()),
        };
        self.count(picture.committed);
        picture.rates = self.rates.iter().copied().collect();
        if let Ok(points) = scene.store.u_charts(&chamber, &indicator, None, POINTS).await {
            picture.points = points.into_iter().rev().map(|(point, ..)| read(&point)).collect();
            picture.chart = format!("{what}: {chamber} {indicator}");
        }
        picture
    }

    fn count(&mut self, committed: usize) {
        let (at, before) = self.counted;
        if at.elapsed() >= Duration::from_secs(1) {
            self.rates.push_back(committed.saturating_sub(before) as u64);
            self.counted = (Instant::now(), committed);
            if self.rates.len() > SECONDS {
                self.rates.pop_front();
            }
        }
    }
}

/// The chamber with the most alarms, and the chart that raised its last.
fn worst<'a>(alarms: impl DoubleEndedIterator<Item = &'a Alarm>) -> Option<(Chamber, Arc<str>)> {
    let mut counts = HashMap::<&Chamber, (usize, &Arc<str>)>::new();
    for alarm in alarms {
        let (count, last) = counts.entry(&alarm.chamber).or_insert((0, &alarm.indicator));
        (*count, *last) = (*count + 1, &alarm.indicator);
    }
    // Of several the first by name: it does not jump from one to the other.
    let (chamber, (_, indicator)) =
        counts.into_iter().max_by(|(a, (m, _)), (b, (n, _))| m.cmp(n).then_with(|| b.cmp(a)))?;
    Some((chamber.clone(), indicator.clone()))
}

/// An alarm in one line.
fn shown(alarm: &Alarm) -> String {
    let value = alarm.value.map_or_else(String::new, |value| format!(" {}", numeric::short(value)));
    format!("{} {}{value} ({})", alarm.chamber, alarm.indicator, alarm.rule)
}

fn read(point: &UChart) -> Point {
    let limits = point.limits;
    Point {
        value: point.value,
        center: limits.map(|limits| limits.center),
        lcl: limits.and_then(|limits| limits.lcl),
        ucl: limits.and_then(|limits| limits.ucl),
        learning: point.flags.has(Flags::LEARNING),
        violation: point.flags.has(Flags::VIOLATION),
    }
}
