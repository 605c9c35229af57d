//! A chart with letters.

use super::picture::{Mark, Picture};

const HEIGHT: usize = 15;
/// Wider than this does not fit beside the scale; the newest points count most.
const WIDTH: usize = 90;

/// Points are `*`, those with a signal `X`, limits `=`, the centre `-`.
pub(super) fn draw(picture: &Picture) -> String {
    let (low, high) = picture.span();
    let hidden = picture.marks.len().saturating_sub(WIDTH);
    let shown = &picture.marks[hidden..];
    let row = |y: f64| HEIGHT - 1 - ((y - low) / (high - low) * (HEIGHT - 1) as f64).round() as usize;
    let mut rows = vec![vec![' '; shown.len()]; HEIGHT];
    for (column, mark) in shown.iter().enumerate() {
        // Later ones cover earlier ones.
        let lines = mark.center.map(|y| (y, '-')).into_iter();
        let limits = [mark.lcl, mark.ucl].into_iter().flatten().map(|y| (y, '='));
        let symbol = if mark.signals { 'X' } else { '*' };
        let points = mark.heights.iter().map(|y| (*y, symbol));
        for (y, symbol) in lines.chain(limits).chain(points) {
            rows[row(y)][column] = symbol;
        }
    }
    let mut text = format!("{}\n", picture.title);
    for (at, cells) in rows.into_iter().enumerate() {
        let y = high - (high - low) * at as f64 / (HEIGHT - 1) as f64;
        let scale = if at % 7 == 0 { phalanx_spc::numeric::short(y) } else { String::new() };
        text.push_str(format!("{scale:>12} |{}", cells.into_iter().collect::<String>()).trim_end());
        text.push('\n');
    }
    let ends = (shown.first().map_or(0, index), shown.last().map_or(0, index));
    text.push_str(&format!(
        "{:>12} points {} to {}   * point  X signal  = limit  - centre\n",
        "", ends.0, ends.1
    ));
    text
}

fn index(mark: &Mark) -> u64 {
    mark.index
}
