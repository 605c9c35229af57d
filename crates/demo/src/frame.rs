//! Rendering of one frame, which depends only on its data and the size of the terminal.

use phalanx_defender::record::Severity;
use phalanx_terminal::{ColorRole, Point, plot_lines};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Sparkline, Table};

use crate::fleet_watcher::Member;

/// Smallest size with framed panels and a panel for the throughput.
const FRAMED_MIN_SIZE: (u16, u16) = (110, 34);

/// Data of one frame.
#[derive(Default)]
pub(crate) struct FrameData {
    pub(crate) title: String,
    /// Whether colors are shown.
    pub(crate) colors: bool,
    /// Lines of the scenario, the latest last.
    pub(crate) lines: Vec<String>,
    pub(crate) members: Vec<Member>,
    pub(crate) sent: usize,
    pub(crate) committed: usize,
    /// Runs committed in each of the last seconds.
    pub(crate) rates: Vec<u64>,
    /// Alarms, the latest first.
    pub(crate) alarms: Vec<(Severity, String)>,
    pub(crate) alarm_count: usize,
    /// Title of the chart, and its points.
    pub(crate) chart: String,
    pub(crate) points: Vec<Point>,
}

impl FrameData {
    pub(crate) fn render(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        if area.width >= FRAMED_MIN_SIZE.0 && area.height >= FRAMED_MIN_SIZE.1 {
            self.render_framed(frame, area);
        } else {
            self.render_compact(frame, area);
        }
    }

    /// Renders two columns of framed panels, and the lines below.
    fn render_framed(&self, frame: &mut Frame<'_>, area: Rect) {
        let fleet_height = self.fleet_height() + 2;
        let [title, upper, middle, lower] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(fleet_height),
            Constraint::Min(8),
            Constraint::Length(10),
        ])
        .areas(area);
        frame.render_widget(Paragraph::new(self.title.as_str()).style(self.style(ColorRole::Bold)), title);
        let columns = Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)]);
        let [fleet, flow] = columns.areas(upper);
        let [chart, alarms] = columns.areas(middle);
        let inner = self.panel(frame, fleet, " fleet ", Borders::ALL);
        self.fleet(frame, inner);
        let inner = self.panel(frame, flow, " runs ", Borders::ALL);
        self.flow(frame, inner);
        self.chart(frame, chart, Borders::ALL);
        self.alarms(frame, alarms, Borders::ALL);
        let inner = self.panel(frame, lower, " what happens ", Borders::ALL);
        self.scenario_lines(frame, inner);
    }

    /// Renders panels below each other, under rules; if there is too little room, the lines stay.
    fn render_compact(&self, frame: &mut Frame<'_>, area: Rect) {
        let [title, flow, fleet, middle, lower] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Max(self.fleet_height() + 1),
            Constraint::Fill(1),
            Constraint::Length((area.height / 4).clamp(3, 7)),
        ])
        .areas(area);
        frame.render_widget(Paragraph::new(self.title.as_str()).style(self.style(ColorRole::Bold)), title);
        frame.render_widget(Paragraph::new(self.counts().join(", ")), flow);
        let inner = self.panel(frame, fleet, " fleet ", Borders::TOP);
        self.fleet(frame, inner);
        let [chart, alarms] = Layout::horizontal([Constraint::Percentage(60), Constraint::Percentage(40)])
            .spacing(1)
            .areas(middle);
        self.chart(frame, chart, Borders::TOP);
        self.alarms(frame, alarms, Borders::TOP);
        let inner = self.panel(frame, lower, " what happens ", Borders::TOP);
        self.scenario_lines(frame, inner);
    }

    /// Returns the height of the fleet: its heading and a line per defender, with room for eight so that it does not jump.
    fn fleet_height(&self) -> u16 {
        1 + u16::try_from(self.members.len()).unwrap_or(u16::MAX).clamp(8, 20)
    }

    /// Draws a panel and returns the area within it.
    fn panel(&self, frame: &mut Frame<'_>, area: Rect, title: &str, borders: Borders) -> Rect {
        let block = Block::new().borders(borders).border_style(self.style(ColorRole::Faint));
        let style = self.style(ColorRole::Bold).fg(Color::Reset);
        let block = block.title(Span::styled(title.to_owned(), style));
        let inner = block.inner(area);
        frame.render_widget(block, area);
        inner
    }

    fn style(&self, paint: ColorRole) -> Style {
        match paint {
            ColorRole::Plain => Style::new(),
            ColorRole::Bold => Style::new().add_modifier(Modifier::BOLD),
            _ if !self.colors => Style::new(),
            ColorRole::Faint => Style::new().fg(Color::DarkGray),
            ColorRole::Good => Style::new().fg(Color::Green),
            ColorRole::Warning => Style::new().fg(Color::Yellow),
            ColorRole::Bad => Style::new().fg(Color::Red),
        }
    }

    fn counts(&self) -> [String; 2] {
        let now = self.rates.last().copied().unwrap_or_default();
        let waiting = self.sent.saturating_sub(self.committed);
        let counts = format!("{} runs sent, {} committed, {waiting} in work", self.sent, self.committed);
        [counts, format!("{now} a second")]
    }

    fn fleet(&self, frame: &mut Frame<'_>, area: Rect) {
        let row = |member: &Member| {
            let bar = "█".repeat((member.load * 10.0).round().clamp(0.0, 20.0) as usize);
            Row::new([
                Cell::new(member.pod.clone()),
                Cell::new(member.id.clone()),
                Cell::new(member.state.clone()).style(self.style(ColorRole::of_state(&member.state))),
                Cell::new(member.role),
                Cell::new(format!("{:>8}", member.chambers)),
                Cell::new(format!("{:>4.0} % {bar}", 100.0 * member.load)),
            ])
        };
        let widths = [
            Constraint::Length(7),
            Constraint::Length(11),
            Constraint::Length(12),
            Constraint::Length(8),
            Constraint::Length(8),
            Constraint::Min(10),
        ];
        let header = Row::new(["pod", "id", "state", "role", "chambers", "load, of the mean"]);
        let table = Table::new(self.members.iter().map(row), widths)
            .header(header.style(self.style(ColorRole::Bold)));
        frame.render_widget(table, area);
    }

    fn flow(&self, frame: &mut Frame<'_>, area: Rect) {
        let [counts, rates] = Layout::vertical([Constraint::Length(2), Constraint::Min(1)]).areas(area);
        frame.render_widget(Paragraph::new(self.counts().join("\n")), counts);
        let shown = self.rates.len().saturating_sub(usize::from(rates.width));
        let sparkline = Sparkline::default().data(&self.rates[shown..]).style(self.style(ColorRole::Good));
        frame.render_widget(sparkline, rates);
    }

    fn chart(&self, frame: &mut Frame<'_>, area: Rect, borders: Borders) {
        let title = match self.chart.as_str() {
            "" => " nothing was measured yet ".to_owned(),
            chart => format!(" {chart} "),
        };
        let inner = self.panel(frame, area, &title, borders);
        let points = &self.points;
        // All labels have the same length.
        let label = plot_lines(points, usize::from(inner.height))
            .first()
            .map_or(0, |row| row.label.chars().count() + 2);
        let width = usize::from(inner.width).saturating_sub(label);
        let points = &points[points.len().saturating_sub(width)..];
        let lines = plot_lines(points, usize::from(inner.height)).into_iter().map(|row| {
            let cells =
                row.cells.into_iter().map(|(paint, mark)| Span::styled(mark.to_string(), self.style(paint)));
            Line::from_iter([Span::raw(format!("{} ┤", row.label))].into_iter().chain(cells))
        });
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), inner);
    }

    fn alarms(&self, frame: &mut Frame<'_>, area: Rect, borders: Borders) {
        let title = match self.alarm_count {
            0 => " no alarms yet ".to_owned(),
            1 => " 1 alarm ".to_owned(),
            many => format!(" {many} alarms, the latest first "),
        };
        let inner = self.panel(frame, area, &title, borders);
        let line = |(severity, alarm): &(Severity, String)| {
            Line::styled(alarm.clone(), self.style(ColorRole::of_severity(severity.name())))
        };
        frame.render_widget(Paragraph::new(self.alarms.iter().map(line).collect::<Vec<_>>()), inner);
    }

    fn scenario_lines(&self, frame: &mut Frame<'_>, area: Rect) {
        let lines: Vec<String> = self.lines.iter().flat_map(|line| wrapped(line, 18, area.width)).collect();
        let latest = lines.iter().skip(lines.len().saturating_sub(usize::from(area.height)));
        frame.render_widget(
            Paragraph::new(latest.map(|line| Line::from(line.as_str())).collect::<Vec<_>>()),
            area,
        );
    }
}

/// Breaks the text between words into lines of that width; those after the first are indented.
fn wrapped(text: &str, indent: usize, width: u16) -> Vec<String> {
    let width = usize::from(width);
    let indent = if width > 2 * indent { indent } else { 0 };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let margin = if lines.is_empty() { 0 } else { indent };
        let room = width.saturating_sub(margin).max(1);
        let end = rest.char_indices().nth(room).map_or(rest.len(), |(end, _)| end);
        // A word that is longer than a line is cut.
        let cut = match rest[..end].rfind(' ') {
            Some(space) if end < rest.len() && !rest[..space].trim().is_empty() => space,
            _ => end,
        };
        lines.push(format!("{}{}", " ".repeat(margin), rest[..cut].trim_end()));
        rest = rest[cut..].trim_start();
    }
    lines
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn data() -> FrameData {
        let member = |name: &str, role, load| Member {
            pod: format!("pod-{name}"),
            id: format!("defender-{name}"),
            state: "STABLE".to_owned(),
            role,
            chambers: 12,
            load,
        };
        let point = Point { value: Some(1.0), ucl: Some(0.5), violation: true, ..Point::default() };
        FrameData {
            title: "the title".to_owned(),
            colors: true,
            lines: (0..30).map(|number| format!("{number:>5}.0 s  line {number}")).collect(),
            members: vec![
                member("0", "leader", 1.1),
                member("1", "follower", 0.9),
                Member { state: "silent 4 s".to_owned(), ..member("2", "", 0.9) },
            ],
            sent: 120,
            committed: 117,
            rates: vec![1, 5, 9],
            alarms: vec![(Severity::Critical, "etch-01:A power 7 (limits)".to_owned())],
            alarm_count: 1,
            chart: "worst chamber: etch-01:A power".to_owned(),
            points: vec![point; 80],
        }
    }

    fn drawn(data: &FrameData, width: u16, height: u16) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| data.render(frame)).unwrap();
        terminal
    }

    #[test]
    fn fleet_runs_chart_alarms_and_story_have_room_on_any_usual_terminal() {
        for (width, height) in [(80, 24), (100, 30), (120, 40), (200, 60)] {
            let text = drawn(&data(), width, height).backend().to_string();
            // A long line goes on in the next: what matters is that all of it is there.
            let words: String =
                text.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
            for part in [
                "the title",
                "defender-1",
                "STABLE",
                "silent 4 s",
                "leader",
                "110 %",
                "120 runs sent, 117 committed, 3 in work",
                "9 a second",
                "worst chamber: etch-01:A power",
                "XXX",
                "upper 0.5",
                "1 alarm",
                "line 29",
                "line 27",
            ] {
                assert!(words.contains(part), "{width}×{height}: {part} is not in\n{text}");
            }
            assert!(words.contains("etch-01:A power 7 (limits)"), "{width}×{height}: {text}");
            assert!(!words.contains("line 2 "), "the oldest lines make room: {text}");
        }
    }

    #[test]
    fn however_small_the_terminal_is_it_can_be_drawn() {
        for (width, height) in [(1, 1), (2, 2), (20, 5), (40, 12), (300, 100)] {
            drawn(&data(), width, height);
            drawn(&FrameData::default(), width, height);
        }
    }

    #[test]
    fn without_colors_nothing_is_colored() {
        let colored = |data: &FrameData| {
            let terminal = drawn(data, 120, 40);
            terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset)
        };
        assert!(colored(&data()));
        assert!(!colored(&FrameData { colors: false, ..data() }));
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 2, 8), ["one two", "  three"]);
        assert_eq!(wrapped("one", 2, 8), ["one"]);
        assert_eq!(wrapped("incomprehensible", 0, 8), ["incompre", "hensible"]);
        assert_eq!(wrapped("", 2, 8), Vec::<String>::new());
        assert_eq!(wrapped("    9.0 s  CRASH    pod", 4, 19), ["    9.0 s  CRASH", "    pod"]);
    }
}
