//! Which points of a trace a function sees.

use std::convert::Infallible;
use std::ops::Range;

use super::compile::{Choice, Step, run};
use super::{Column, Reason};

/// The chosen points, as runs of neighbours.
pub(super) fn choose(
    choice: &Choice,
    start: i64,
    svids: &[String],
    columns: &[Option<Column<'_>>],
    runs: &mut Vec<Range<usize>>,
) -> Result<(), Reason> {
    runs.clear();
    let column = column(choice.svid, svids, columns)?;
    let timestamps = column.timestamps();
    // Saturating: a window that reaches beyond the end of time has an open end.
    let from = choice.window.from.map_or(0, |from| {
        let from = start.saturating_add(from);
        timestamps.partition_point(|&time| time < from)
    });
    let to = choice.window.to.map_or(timestamps.len(), |to| {
        let to = start.saturating_add(to);
        timestamps.partition_point(|&time| time <= to)
    });
    if choice.condition.is_empty() {
        if from < to {
            runs.push(from..to);
        }
        return Ok(());
    }
    let mut truth = Truth::new(&choice.condition, svids, columns)?;
    let mut open = None;
    for (position, &time) in timestamps.iter().enumerate().take(to).skip(from) {
        match (truth.at(time), open) {
            (true, None) => open = Some(position),
            (false, Some(first)) => {
                runs.push(first..position);
                open = None;
            }
            _ => {}
        }
    }
    runs.extend(open.map(|first| first..to));
    Ok(())
}

fn column<'a>(svid: usize, svids: &[String], columns: &[Option<Column<'a>>]) -> Result<Column<'a>, Reason> {
    let column = columns.get(svid).copied().flatten();
    column.ok_or_else(|| Reason::Missing { svid: svids[svid].clone() })
}

/// A condition through time. It can only change where one of its traces has a point.
struct Truth<'a> {
    steps: &'a [Step],
    cursors: Vec<Cursor<'a>>,
    stack: Vec<f64>,
    now: bool,
}

struct Cursor<'a> {
    svid: usize,
    column: Column<'a>,
    /// How many of its points are not after the moment.
    passed: usize,
}

impl<'a> Truth<'a> {
    fn new(steps: &'a [Step], svids: &[String], columns: &[Option<Column<'a>>]) -> Result<Self, Reason> {
        let mut cursors: Vec<Cursor<'a>> = Vec::new();
        for step in steps {
            if let Step::Load(svid) = *step
                && cursors.iter().all(|cursor| cursor.svid != svid)
            {
                cursors.push(Cursor { svid, column: column(svid, svids, columns)?, passed: 0 });
            }
        }
        let mut truth = Self { steps, cursors, stack: Vec::new(), now: false };
        truth.now = truth.evaluate();
        Ok(truth)
    }

    /// Whether it holds at a moment; moments never go back.
    fn at(&mut self, time: i64) -> bool {
        let mut moved = false;
        for cursor in &mut self.cursors {
            let timestamps = cursor.column.timestamps();
            while cursor.passed < timestamps.len() && timestamps[cursor.passed] <= time {
                cursor.passed += 1;
                moved = true;
            }
        }
        if moved {
            self.now = self.evaluate();
        }
        self.now
    }

    /// False as long as one of the traces has no value yet, or none that is finite: nobody knows whether it holds.
    fn evaluate(&mut self) -> bool {
        let last =
            |cursor: &Cursor<'_>| cursor.passed.checked_sub(1).map(|last| cursor.column.values()[last]);
        if !self.cursors.iter().all(|cursor| last(cursor).is_some_and(f64::is_finite)) {
            return false;
        }
        let cursors = &self.cursors;
        let load = |svid| {
            let cursor = cursors.iter().find(|cursor| cursor.svid == svid);
            Ok::<_, Infallible>(cursor.and_then(last).unwrap_or(f64::NAN))
        };
        let Ok(value) = run(self.steps, &mut self.stack, load);
        value == 1.0
    }
}
