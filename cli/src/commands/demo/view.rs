//! The demo as a picture that moves: the fleet, what comes through, alarms, the chart of the worst chamber.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use phalanx_cluster::{Handle, Role};
use phalanx_defender::record::{Alarm, Chamber, Flags, Severity, UChart};
use phalanx_defender::store::ChartStore;
use phalanx_fsm::State as _;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};

use super::books::Published;
use super::fleet::Log;
use crate::commands::charts::{Point, rows};
use crate::paint::Paint;

/// How often it is drawn.
const FRAME: Duration = Duration::from_millis(200);
/// How many seconds of throughput are shown.
const SECONDS: usize = 60;
/// How many points of the chart.
const POINTS: usize = 80;

/// Who is there, by name.
pub(super) type Roster = Arc<Mutex<Vec<(String, Handle)>>>;

/// What is drawn of.
pub(super) struct Scene {
    pub(super) roster: Roster,
    pub(super) log: Arc<Log>,
    pub(super) store: Arc<dyn ChartStore>,
    pub(super) published: Arc<Mutex<Vec<Published>>>,
}

/// Where the story is told, and from where it is drawn.
#[derive(Default)]
pub(super) struct Stage {
    lines: Mutex<Vec<String>>,
    url: Mutex<String>,
    scene: Mutex<Option<Arc<Scene>>>,
}

impl Stage {
    pub(super) fn say(&self, line: String) {
        lock(&self.lines).push(line);
    }

    pub(super) fn serves(&self, url: &str) {
        url.clone_into(&mut lock(&self.url));
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
    let mut film =
        Film { began: Instant::now(), length, rates: VecDeque::new(), counted: (Instant::now(), 0) };
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
    /// Runs committed in each of the last seconds.
    rates: VecDeque<u64>,
    counted: (Instant, usize),
}

/// What is drawn.
#[derive(Default)]
struct Picture {
    title: String,
    lines: Vec<String>,
    members: Vec<Member>,
    published: usize,
    committed: usize,
    rates: Vec<u64>,
    alarms: Vec<(Severity, String)>,
    alarm_count: usize,
    chart: Option<(String, Vec<Point>)>,
}

struct Member {
    name: String,
    id: String,
    state: &'static str,
    role: &'static str,
    chambers: usize,
    /// Its load over the mean.
    load: f64,
}

impl Film {
    async fn take(&mut self, stage: &Stage) -> Picture {
        let seconds = self.began.elapsed().as_secs();
        let url = lock(&stage.url).clone();
        let mut picture = Picture {
            title: format!(" Phalanx demo, {seconds} of {} s, {url} (q ends it) ", self.length.as_secs()),
            lines: lock(&stage.lines).clone(),
            ..Picture::default()
        };
        let scene = lock(&stage.scene).clone();
        let Some(scene) = scene else { return picture };
        picture.published = lock(&scene.published).len();
        picture.committed = lock(&scene.log.committed).len();
        self.count(picture.committed);
        picture.rates = self.rates.iter().copied().collect();
        picture.members = members(&lock(&scene.roster));
        let alarms = lock(&scene.log.alarms).clone();
        picture.alarm_count = alarms.len();
        picture.alarms =
            alarms.iter().rev().take(20).map(|alarm| (alarm.severity, alarm.message.clone())).collect();
        if let Some((chamber, indicator)) = worst(&alarms)
            && let Ok(points) = scene.store.u_charts(&chamber, &indicator, None, POINTS).await
        {
            let points = points.into_iter().rev().map(|(point, ..)| read(&point)).collect();
            picture.chart = Some((format!(" {chamber} {indicator} "), points));
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
fn worst(alarms: &[Alarm]) -> Option<(Chamber, Arc<str>)> {
    let mut counts = HashMap::<&Chamber, usize>::new();
    for alarm in alarms {
        *counts.entry(&alarm.chamber).or_default() += 1;
    }
    // Of several the first by name: it does not jump from one to the other.
    let (chamber, _) = counts.into_iter().max_by(|(a, m), (b, n)| m.cmp(n).then_with(|| b.cmp(a)))?;
    let last = alarms.iter().rev().find(|alarm| alarm.chamber == *chamber)?;
    Some((chamber.clone(), last.indicator.clone()))
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

fn members(roster: &[(String, Handle)]) -> Vec<Member> {
    let statuses: Vec<_> = roster.iter().map(|(name, handle)| (name, handle.status())).collect();
    let map = statuses.iter().filter_map(|(_, status)| status.map.clone()).max_by_key(|map| map.version);
    let mut weights = HashMap::<u32, u64>::new();
    for assignment in map.iter().flat_map(|map| map.assignments.values()) {
        *weights.entry(assignment.owner.0).or_default() += assignment.weight;
    }
    let workers = map.map_or(1, |map| map.workers.len().max(1));
    let mean = weights.values().sum::<u64>() as f64 / workers as f64;
    let member = |(name, status): (&String, phalanx_cluster::Status)| {
        let id = status.holder.map(|holder| holder.id.0);
        let weight = id.and_then(|id| weights.get(&id)).copied().unwrap_or_default() as f64;
        Member {
            name: name.clone(),
            id: id.map_or_else(|| "-".to_owned(), |id| format!("defender-{id}")),
            state: status.state.name(),
            role: match status.role {
                Role::Leader => "leader",
                Role::Follower => "follower",
                Role::Standby => "standby",
                Role::Candidate => "candidate",
            },
            chambers: status.assignment.len(),
            load: if mean > 0.0 { weight / mean } else { 0.0 },
        }
    };
    statuses.into_iter().map(member).collect()
}

fn style(paint: Paint) -> Style {
    match paint {
        Paint::Plain => Style::new(),
        Paint::Bold => Style::new().add_modifier(Modifier::BOLD),
        Paint::Faint => Style::new().fg(Color::DarkGray),
        Paint::Good => Style::new().fg(Color::Green),
        Paint::Warning => Style::new().fg(Color::Yellow),
        Paint::Bad => Style::new().fg(Color::Red),
    }
}

impl Picture {
    fn render(&self, frame: &mut Frame<'_>) {
        let [title, upper, middle, lower] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(11),
            Constraint::Min(8),
            Constraint::Length(9),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.title.as_str()).bold(), title);
        let [fleet, flow] =
            Layout::horizontal([Constraint::Percentage(62), Constraint::Percentage(38)]).areas(upper);
        self.fleet(frame, fleet);
        self.flow(frame, flow);
        let [chart, alarms] =
            Layout::horizontal([Constraint::Percentage(62), Constraint::Percentage(38)]).areas(middle);
        self.worst(frame, chart);
        self.alarms(frame, alarms);
        let shown = lower.height.saturating_sub(2) as usize;
        let lines: Vec<Line<'_>> = self
            .lines
            .iter()
            .skip(self.lines.len().saturating_sub(shown))
            .map(|line| line.as_str().into())
            .collect();
        frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" what happens ")), lower);
    }

    fn fleet(&self, frame: &mut Frame<'_>, area: Rect) {
        fn row(member: &Member) -> Row<'_> {
            let bar = "█".repeat((member.load * 10.0).round().clamp(0.0, 20.0) as usize);
            Row::new([
                Cell::new(member.name.as_str()),
                Cell::new(member.id.as_str()),
                Cell::new(member.state).style(style(Paint::of_state(member.state))),
                Cell::new(member.role),
                Cell::new(member.chambers.to_string()),
                Cell::new(format!("{:>4.0} % {bar}", 100.0 * member.load)),
            ])
        }
        let widths = [
            Constraint::Length(8),
            Constraint::Length(11),
            Constraint::Length(12),
            Constraint::Length(9),
            Constraint::Length(8),
            Constraint::Min(10),
        ];
        let header = Row::new(["pod", "id", "state", "role", "chambers", "load of the mean"]).bold();
        let table = Table::new(self.members.iter().map(row), widths).header(header);
        frame.render_widget(table.block(Block::bordered().title(" the fleet ")), area);
    }

    fn flow(&self, frame: &mut Frame<'_>, area: Rect) {
        let block = Block::bordered().title(" runs ");
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let [counts, rates] = Layout::vertical([Constraint::Length(2), Constraint::Min(1)]).areas(inner);
        let now = self.rates.last().copied().unwrap_or_default();
        let waiting = self.published.saturating_sub(self.committed);
        let text = format!(
            "{} sent, {} committed, {waiting} in work\n{now} a second",
            self.published, self.committed
        );
        frame.render_widget(Paragraph::new(text), counts);
        frame.render_widget(Sparkline::default().data(&self.rates).style(style(Paint::Good)), rates);
    }

    fn worst(&self, frame: &mut Frame<'_>, area: Rect) {
        let title = self.chart.as_ref().map_or(" no alarms yet ", |(name, _)| name);
        let block = Block::bordered().title(format!(" the worst chamber:{title}"));
        let inner = block.inner(area);
        frame.render_widget(block, area);
        let Some((_, points)) = &self.chart else { return };
        let width = usize::from(inner.width.saturating_sub(16));
        let points = &points[points.len().saturating_sub(width)..];
        let lines = rows(points, usize::from(inner.height)).into_iter().map(|row| {
            let cells =
                row.cells.into_iter().map(|(paint, mark)| Span::styled(mark.to_string(), style(paint)));
            Line::from_iter([Span::raw(format!("{} ┤", row.label))].into_iter().chain(cells))
        });
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inner);
    }

    fn alarms(&self, frame: &mut Frame<'_>, area: Rect) {
        let lines = self.alarms.iter().map(|(severity, message)| {
            Line::styled(message.as_str(), style(Paint::of_severity(severity.name())))
        });
        let block = Block::bordered().title(format!(" {} alarms, the latest first ", self.alarm_count));
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    #[test]
    fn the_picture_shows_fleet_runs_chart_alarms_and_story() {
        let member = |name: &str, role, load| Member {
            name: name.to_owned(),
            id: format!("defender-{name}"),
            state: "STABLE",
            role,
            chambers: 12,
            load,
        };
        let point = Point { value: Some(1.0), ucl: Some(0.5), violation: true, ..Point::default() };
        let picture = Picture {
            title: "the title".to_owned(),
            lines: (0..30).map(|number| format!("line {number}")).collect(),
            members: vec![member("0", "leader", 1.1), member("1", "follower", 0.9)],
            published: 120,
            committed: 117,
            rates: vec![1, 5, 9],
            alarms: vec![(Severity::Critical, "power is above its limit".to_owned())],
            alarm_count: 1,
            chart: Some((" etch-01:A power ".to_owned(), vec![point; 30])),
        };
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
        terminal.draw(|frame| picture.render(frame)).unwrap();
        let text = terminal.backend().to_string();
        for part in [
            "the title",
            "defender-1",
            "STABLE",
            "leader",
            "110 %",
            "120 sent, 117 committed, 3 in work",
            "9 a second",
            "power is above its limit",
            "etch-01:A power",
            "XXX",
            "upper 0.5",
            "line 29",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("line 2 "), "the oldest lines make room");
        // However small the terminal is.
        for (width, height) in [(1, 1), (20, 5), (300, 100)] {
            Terminal::new(TestBackend::new(width, height))
                .unwrap()
                .draw(|frame| picture.render(frame))
                .unwrap();
        }
    }
}
