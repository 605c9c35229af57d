//! A control chart as text.

use phalanx_spc::numeric;

use crate::ColorRole;

/// A point of a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Value; `None` if the equation had none.
    pub value: Option<f64>,
    /// Center line.
    pub center: Option<f64>,
    /// Lower control limit.
    pub lcl: Option<f64>,
    /// Upper control limit.
    pub ucl: Option<f64>,
    /// Whether the limits were being learned.
    pub learning: bool,
    /// Whether the point broke a rule.
    pub violation: bool,
}

/// A line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotLine {
    /// Label at its left, as long as that of every other line.
    pub label: String,
    /// Characters with their colors.
    pub cells: Vec<(ColorRole, char)>,
}

/// Draws the points, the oldest on the left, over so many lines: `●` a point, `○` one while the limits were being learned,
/// `X` one that broke a rule; limits and center are lines. Returns nothing if there are no values.
pub fn plot_lines(points: &[Point], lines: usize) -> Vec<PlotLine> {
    let all = points.iter().flat_map(|point| [point.value, point.center, point.lcl, point.ucl]);
    let bounds = all.flatten().filter(|value| value.is_finite()).fold(None, |bounds, value| {
        let (low, high) = bounds.unwrap_or((value, value));
        Some((f64::min(low, value), f64::max(high, value)))
    });
    let Some((low, high)) = bounds else { return Vec::new() };
    // A chart that never moves is drawn in the middle.
    let (low, high) = if low < high { (low, high) } else { (low - 1.0, high + 1.0) };
    let lines = lines.max(3);
    let line_of = |value: f64| {
        let share = (high - value.clamp(low, high)) / (high - low);
        (share * (lines - 1) as f64).round() as usize
    };
    let mut grid = vec![vec![(ColorRole::Plain, ' '); points.len()]; lines];
    for (column, point) in points.iter().enumerate() {
        for (level, paint, mark) in [
            (point.center, ColorRole::Faint, '─'),
            (point.lcl, ColorRole::Warning, '╌'),
            (point.ucl, ColorRole::Warning, '╌'),
        ] {
            if let Some(level) = level {
                grid[line_of(level)][column] = (paint, mark);
            }
        }
        let Some(value) = point.value else { continue };
        grid[line_of(value)][column] = match (point.violation, point.learning) {
            (true, _) => (ColorRole::Bad, 'X'),
            (false, true) => (ColorRole::Faint, '○'),
            (false, false) => (ColorRole::Plain, '●'),
        };
    }
    let labels = labels(points, lines, low, high, line_of);
    labels.into_iter().zip(grid).map(|(label, cells)| PlotLine { label, cells }).collect()
}

/// Returns the label of each line: the limits, and the ends of the scale.
fn labels(
    points: &[Point],
    lines: usize,
    low: f64,
    high: f64,
    line_of: impl Fn(f64) -> usize,
) -> Vec<String> {
    let newest = |of: fn(&Point) -> Option<f64>| points.iter().rev().find_map(of);
    let mut labels = vec![String::new(); lines];
    for (name, level) in [
        ("centre", newest(|point| point.center)),
        ("lower", newest(|point| point.lcl)),
        ("upper", newest(|point| point.ucl)),
    ] {
        if let Some(level) = level {
            labels[line_of(level)] = format!("{name} {}", numeric::short(level));
        }
    }
    for (line, value) in [(0, high), (lines - 1, low)] {
        if labels[line].is_empty() {
            labels[line] = numeric::short(value);
        }
    }
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or_default();
    labels.into_iter().map(|label| format!("{label:>width$}")).collect()
}

/// Returns the chart as text. `paint` applies a color.
pub fn plot(points: &[Point], lines: usize, paint: impl Fn(ColorRole, &str) -> String) -> String {
    let line = |row: PlotLine| {
        let cells: String = row.cells.iter().map(|(color, mark)| paint(*color, &mark.to_string())).collect();
        format!("{} ┤{cells}", row.label)
    };
    let lines: Vec<String> = plot_lines(points, lines).into_iter().map(line).collect();
    if lines.is_empty() { "no values".to_owned() } else { lines.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_shows_points_limits_and_what_broke_them() {
        let limits = Point { center: Some(5.0), lcl: Some(0.0), ucl: Some(10.0), ..Point::default() };
        let learning = Point { value: Some(5.0), learning: true, ..Point::default() };
        let points = [
            learning,
            Point { value: Some(5.0), ..limits },
            Point { value: None, ..limits },
            Point { value: Some(20.0), violation: true, ..limits },
        ];
        let drawn = plot(&points, 5, |_, text| text.to_owned());
        let expected = "\
          20 ┤   X\n         \
             ┤    \n   \
    upper 10 ┤ ╌╌╌\n   \
    centre 5 ┤○●──\n    \
     lower 0 ┤ ╌╌╌";
        let strip =
            |text: &str| text.lines().map(|line| line.trim_start().trim_end().to_owned()).collect::<Vec<_>>();
        assert_eq!(strip(&drawn), strip(expected), "{drawn}");
    }

    #[test]
    fn what_has_no_values_or_one_is_drawn_too() {
        assert_eq!(plot(&[], 5, |_, text| text.to_owned()), "no values");
        assert_eq!(plot(&[Point::default()], 5, |_, text| text.to_owned()), "no values");
        let one = Point { value: Some(3.0), ..Point::default() };
        assert!(plot(&[one], 5, |_, text| text.to_owned()).lines().nth(2).unwrap().ends_with("┤●"));
    }
}
