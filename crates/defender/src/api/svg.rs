//! A chart as a picture.

use std::fmt::Write as _;

use super::charts::Point;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 320.0;
const EDGE: f64 = 48.0;

/// Draws the points, the oldest on the left, with their limits; violations are red, points without limits grey.
pub(super) fn picture(title: &str, newest_first: &[Point]) -> String {
    let points: Vec<&Point> = newest_first.iter().rev().collect();
    let values = points.iter().flat_map(|point| [point.value, point.lcl, point.ucl, point.center]).flatten();
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let (low, high) = if low < high { (low, high) } else { (low.min(0.0), low.max(0.0) + 1.0) };
    let x = |place: usize| EDGE + (WIDTH - 2.0 * EDGE) * place as f64 / (points.len().max(2) - 1) as f64;
    let y = |value: f64| HEIGHT - EDGE - (HEIGHT - 2.0 * EDGE) * (value - low) / (high - low);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/><text x=\"{EDGE}\" y=\"24\" \
         font-size=\"15\">{}</text>",
        escaped(title)
    );
    // Writing to a text cannot fail.
    for (line, colour) in [("ucl", "#c0392b"), ("center", "#7f8c8d"), ("lcl", "#c0392b")] {
        let of = |point: &Point| match line {
            "ucl" => point.ucl,
            "lcl" => point.lcl,
            _ => point.center,
        };
        let path = path(points.iter().enumerate().map(|(place, point)| of(point).map(|v| (x(place), y(v)))));
        let _ =
            write!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"5 4\"/>");
        if let Some(last) = points.iter().rev().find_map(|point| of(point)) {
            let _ = write!(
                svg,
                "<text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{last:.4}</text>",
                WIDTH - EDGE + 3.0,
                y(last)
            );
        }
    }
    let line = path(points.iter().enumerate().map(|(place, point)| point.value.map(|v| (x(place), y(v)))));
    let _ = write!(svg, "<path d=\"{line}\" fill=\"none\" stroke=\"#2c3e50\"/>");
    for (place, point) in points.iter().enumerate() {
        let Some(value) = point.value else { continue };
        let colour = match (point.violation, point.learning) {
            (true, _) => "#e74c3c",
            (false, true) => "#bdc3c7",
            (false, false) => "#2c3e50",
        };
        let size = if point.violation { 5 } else { 3 };
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{size}\" fill=\"{colour}\"><title>{} {value}</title></circle>",
            x(place),
            y(value),
            point.timestamp
        );
    }
    svg.push_str("</svg>");
    svg
}

/// A line with gaps where there is nothing.
fn path(points: impl Iterator<Item = Option<(f64, f64)>>) -> String {
    let mut path = String::new();
    let mut begins = true;
    for point in points {
        match point {
            Some((x, y)) => {
                let _ = write!(path, "{}{x:.1} {y:.1}", if begins { "M" } else { "L" });
                begins = false;
            }
            None => begins = true,
        }
    }
    path
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
