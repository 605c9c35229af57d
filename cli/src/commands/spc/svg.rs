//! A chart as a picture.

use std::fmt::Write as _;

use phalanx_spc::chart::Chart;
use phalanx_spc::numeric::short;

use super::picture::{Mark, Picture};

const WIDTH: f64 = 960.0;
const PANEL: f64 = 320.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;

/// The chart, and its companion below it.
pub(super) fn draw(chart: &Chart) -> String {
    let mut pictures = vec![Picture::new(chart)];
    pictures.extend(chart.companion.as_deref().map(Picture::new));
    let height = PANEL * pictures.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (number, picture) in pictures.iter().enumerate() {
        panel(&mut svg, picture, PANEL * number as f64);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where points and heights lie.
struct Frame {
    top: f64,
    step: f64,
    low: f64,
    high: f64,
}

impl Frame {
    fn x(&self, position: usize) -> f64 {
        LEFT + self.step * (position as f64 + 0.5)
    }

    fn y(&self, height: f64) -> f64 {
        let room = PANEL - TOP - BOTTOM;
        self.top + TOP + room * (self.high - height) / (self.high - self.low)
    }
}

fn panel(svg: &mut String, picture: &Picture, top: f64) {
    let (low, high) = picture.span();
    let frame = Frame { top, step: (WIDTH - LEFT - RIGHT) / picture.marks.len().max(1) as f64, low, high };
    text(svg, LEFT, top + 24.0, "start", &picture.title);
    lines(svg, &frame, picture, |mark| mark.center, "#2a7", "6 4");
    lines(svg, &frame, picture, |mark| mark.ucl, "#c33", "none");
    lines(svg, &frame, picture, |mark| mark.lcl, "#c33", "none");
    scale(svg, &frame, picture);
    let series = picture.marks.first().map_or(0, |mark| mark.heights.len());
    for one in 0..series {
        let points: String = picture
            .marks
            .iter()
            .enumerate()
            .map(|(at, mark)| format!("{:.1},{:.1} ", frame.x(at), frame.y(mark.heights[one])))
            .collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"#357\"/>", points.trim_end());
        for (at, mark) in picture.marks.iter().enumerate() {
            let (x, y) = (frame.x(at), frame.y(mark.heights[one]));
            let (radius, colour) = if mark.signals { (5, "#c33") } else { (3, "#357") };
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{colour}\"><title>point {}: {}</title></circle>",
                mark.index,
                short(mark.heights[one])
            );
        }
    }
}

/// Each point has its own limit; where the next has another, the line steps.
fn lines(
    svg: &mut String,
    frame: &Frame,
    picture: &Picture,
    of: impl Fn(&Mark) -> Option<f64>,
    colour: &str,
    dashes: &str,
) {
    let mut path = String::new();
    let mut before = None;
    for (at, mark) in picture.marks.iter().enumerate() {
        let level = of(mark);
        if let Some(level) = level {
            let (left, right) = (LEFT + frame.step * at as f64, LEFT + frame.step * (at + 1) as f64);
            let pen = if before.is_some() { 'L' } else { 'M' };
            let y = frame.y(level);
            let _ = write!(path, "{pen}{left:.1} {y:.1}L{right:.1} {y:.1}");
        }
        before = level;
    }
    if !path.is_empty() {
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"{dashes}\"/>"
        );
    }
}

fn scale(svg: &mut String, frame: &Frame, picture: &Picture) {
    let Some(last) = picture.marks.last() else { return };
    for level in [last.lcl, last.center, last.ucl].into_iter().flatten() {
        text(svg, LEFT - 8.0, frame.y(level) + 4.0, "end", &short(level));
    }
    let every = picture.marks.len().div_ceil(20).max(1);
    for (at, mark) in picture.marks.iter().enumerate().step_by(every) {
        text(svg, frame.x(at), frame.top + PANEL - 16.0, "middle", &mark.index.to_string());
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>");
}
