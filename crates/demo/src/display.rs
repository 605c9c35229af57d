//! Terminal display: the fleet, the throughput, alarms, and the chart of the chamber with the most alarms.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use phalanx_defender::record::{Alarm, Chamber, Flags, UChart};
use phalanx_defender::store::ChartStore;
use phalanx_service::Shutdown;
use phalanx_spc::numeric;
use phalanx_terminal::{Point, shows_colors};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use crate::fleet_watcher::FleetWatcher;
use crate::frame::FrameData;
use crate::scenario::{self, SentRuns};

/// Interval between frames.
const FRAME_INTERVAL: Duration = Duration::from_millis(200);
/// Number of seconds of throughput that are shown.
const MAX_SECONDS: usize = 60;
/// Number of points of the chart.
const MAX_POINTS: usize = 80;

/// Sources of the display.
pub(crate) struct DisplaySources {
    pub(crate) watcher: FleetWatcher,
    pub(crate) store: Arc<dyn ChartStore>,
    pub(crate) sent: SentRuns,
    /// Chart that is shown while there are no alarms.
    pub(crate) default_chart: (Chamber, Arc<str>),
}

/// Lines of the scenario and sources, shared by the scenario and the display.
#[derive(Default)]
pub(crate) struct DisplayState {
    lines: Mutex<Vec<String>>,
    url: String,
    sources: Mutex<Option<Arc<DisplaySources>>>,
}

impl DisplayState {
    /// Creates an empty state with the URL of the demo.
    pub(crate) fn new(url: String) -> Self {
        Self { url, ..Self::default() }
    }

    pub(crate) fn push_line(&self, line: String) {
        lock(&self.lines).push(line);
    }

    /// Returns all lines, to print them after the display has closed.
    pub(crate) fn lines(&self) -> Vec<String> {
        lock(&self.lines).clone()
    }

    /// Sets the sources.
    pub(crate) fn open(&self, sources: DisplaySources) {
        *lock(&self.sources) = Some(Arc::new(sources));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Restores the terminal when it is dropped.
struct TerminalGuard;

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Draws until it is canceled, and requests a stop when the user presses q, Esc or Ctrl-C.
pub(crate) async fn draw(state: &DisplayState, length: Duration, shutdown: &Shutdown) -> Result<Infallible> {
    let mut terminal = ratatui::try_init()?;
    let _guard = TerminalGuard;
    let mut builder = FrameBuilder {
        began: Instant::now(),
        length,
        colors: shows_colors(),
        rates: VecDeque::new(),
        counted: (Instant::now(), 0),
    };
    loop {
        let data = builder.next_frame(state).await;
        terminal.draw(|frame| data.render(frame))?;
        while event::poll(Duration::ZERO)? {
            let Event::Key(key) = event::read()? else { continue };
            let interrupts = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if interrupts || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                shutdown.request();
            }
        }
        tokio::time::sleep(FRAME_INTERVAL).await;
    }
}

/// State that is kept between frames.
struct FrameBuilder {
    began: Instant,
    length: Duration,
    colors: bool,
    /// Runs committed in each of the last seconds.
    rates: VecDeque<u64>,
    counted: (Instant, usize),
}

impl FrameBuilder {
    async fn next_frame(&mut self, state: &DisplayState) -> FrameData {
        let seconds = self.began.elapsed().min(self.length).as_secs();
        let mut data = FrameData {
            title: format!(
                "Phalanx demo, {seconds} of {} s  {}  q ends it",
                self.length.as_secs(),
                state.url
            ),
            colors: self.colors,
            lines: lock(&state.lines).clone(),
            ..FrameData::default()
        };
        let sources = lock(&state.sources).clone();
        let Some(sources) = sources else { return data };
        let worst = {
            let (fleet, sent) = (sources.watcher.snapshot(), scenario::lock(&sources.sent));
            data.sent = sent.len();
            data.committed = fleet.committed(&sent);
            data.members = fleet.members();
            data.alarm_count = fleet.alarms().len();
            let latest = fleet.alarms().rev().take(20);
            data.alarms = latest.map(|alarm| (alarm.severity, alarm_line(alarm))).collect();
            most_alarming(fleet.alarms())
        };
        let (what, (chamber, indicator)) = match worst {
            Some(worst) => ("worst chamber", worst),
            None => ("no chamber has gone wrong", sources.default_chart.clone()),
        };
        self.count(data.committed);
        data.rates = self.rates.iter().copied().collect();
        if let Ok(points) = sources.store.u_charts(&chamber, &indicator, None, MAX_POINTS).await {
            data.points = points.into_iter().rev().map(|(point, ..)| plot_point(&point)).collect();
            data.chart = format!("{what}: {chamber} {indicator}");
        }
        data
    }

    fn count(&mut self, committed: usize) {
        let (at, before) = self.counted;
        if at.elapsed() >= Duration::from_secs(1) {
            self.rates.push_back(committed.saturating_sub(before) as u64);
            self.counted = (Instant::now(), committed);
            if self.rates.len() > MAX_SECONDS {
                self.rates.pop_front();
            }
        }
    }
}

/// Returns the chamber with the most alarms, and the chart that raised its last.
fn most_alarming<'a>(alarms: impl DoubleEndedIterator<Item = &'a Alarm>) -> Option<(Chamber, Arc<str>)> {
    let mut counts = HashMap::<&Chamber, (usize, &Arc<str>)>::new();
    for alarm in alarms {
        let (count, last) = counts.entry(&alarm.chamber).or_insert((0, &alarm.indicator));
        (*count, *last) = (*count + 1, &alarm.indicator);
    }
    // Of several the first by name, so that the display does not jump between them.
    let (chamber, (_, indicator)) =
        counts.into_iter().max_by(|(a, (m, _)), (b, (n, _))| m.cmp(n).then_with(|| b.cmp(a)))?;
    Some((chamber.clone(), indicator.clone()))
}

/// Returns an alarm in one line.
fn alarm_line(alarm: &Alarm) -> String {
    let value = alarm.value.map_or_else(String::new, |value| format!(" {}", numeric::short(value)));
    format!("{} {}{value} ({})", alarm.chamber, alarm.indicator, alarm.rule)
}

fn plot_point(point: &UChart) -> Point {
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
