//! A control chart as text.

use serde_json::Value;

use crate::paint::Paint;

/// A point of a chart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Point {
    /// None where the equation had no value.
    pub(crate) value: Option<f64>,
    pub(crate) center: Option<f64>,
    pub(crate) lcl: Option<f64>,
    pub(crate) ucl: Option<f64>,
    pub(crate) learning: bool,
    pub(crate) violation: bool,
}

impl Point {
    /// A point as the service answers it.
    pub(crate) fn read(point: &Value) -> Self {
        let number = |name: &str| point[name].as_f64();
        Self {
            value: number("value"),
            center: number("center"),
            lcl: number("lcl"),
            ucl: number("ucl"),
            learning: point["learning"] == true,
            violation: point["violation"] == true,
        }
    }
}

/// A line of a chart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    /// What stands at its left, as long as that of every other line.
    pub(crate) label: String,
    pub(crate) cells: Vec<(Paint, char)>,
}

/// Draws the points, the oldest on the left, over so many lines: `●` a point, `○` one while the limits were being learned,
/// `X` one that broke a rule; limits and centre are lines. Nothing where there are no values.
pub(crate) fn rows(points: &[Point], lines: usize) -> Vec<Row> {
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
    let mut grid = vec![vec![(Paint::Plain, ' '); points.len()]; lines];
    for (column, point) in points.iter().enumerate() {
        for (level, paint, mark) in [
            (point.center, Paint::Faint, '─'),
            (point.lcl, Paint::Warning, '╌'),
            (point.ucl, Paint::Warning, '╌'),
        ] {
            if let Some(level) = level {
                grid[line_of(level)][column] = (paint, mark);
            }
        }
        let Some(value) = point.value else { continue };
        grid[line_of(value)][column] = match (point.violation, point.learning) {
            (true, _) => (Paint::Bad, 'X'),
            (false, true) => (Paint::Faint, '○'),
            (false, false) => (Paint::Plain, '●'),
        };
    }
    let labels = labels(points, lines, low, high, line_of);
    labels.into_iter().zip(grid).map(|(label, cells)| Row { label, cells }).collect()
}

/// What stands at the left of each line: the limits, and the ends of the scale.
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
            labels[line_of(level)] = format!("{name} {}", phalanx_spc::numeric::short(level));
        }
    }
    for (line, value) in [(0, high), (lines - 1, low)] {
        if labels[line].is_empty() {
            labels[line] = phalanx_spc::numeric::short(value);
        }
    }
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or_default();
    labels.into_iter().map(|label| format!("{label:>width$}")).collect()
}

/// The chart as text. `paint` colours, or does not.
pub(super) fn plot(points: &[Point], lines: usize, paint: impl Fn(Paint, &str) -> String) -> String {
    let line = |row: Row| {
        let cells: String =
            row.cells.iter().map(|(colour, mark)| paint(*colour, &mark.to_string())).collect();
        format!("{} ┤{cells}", row.label)
    };
    let lines: Vec<String> = rows(points, lines).into_iter().map(line).collect();
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
