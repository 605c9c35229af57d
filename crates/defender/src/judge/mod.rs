//! From the values of a run to judged points, alarms, and what the charts remember.
//!
//! [`judge`] is a pure function of the run, the charts, the [`ChartState`] before it and the [`History`]: nothing here
//! knows the time of day, and whoever judges the same run twice gets the same rows twice.
//!
//! | what | lives in |
//! |---|---|
//! | baselines, limits, running values, active alarms, the last context ids | [`ChartState`], in the state row |
//! | the points that run rules look back upon | [`History`], from U-chart rows that the state row lists |
//! | what is written | [`rows`] |
//!
//! A point without a value is recorded, and that is all: it is not judged, it interrupts no pattern, and it neither
//! raises nor clears an alarm.

pub mod alarm;
mod codec;
mod history;
mod learn;
pub mod rows;
mod rule;
mod state;

use std::sync::Arc;

use jiff::Timestamp;
use phalanx_cluster::core::Position;
use phalanx_spc::equation::Outcome as Value;

pub use history::{History, OLDEST_DAYS};
pub use state::{ChartState, RECENT, StateError};

use crate::notification::Rebaseline;
use crate::record::{Alarm, AlarmState, Chamber, Flags, Limits, Outcome, UChart};
use crate::strategy::{Chart, Charts, LimitSource};
use history::PastPoint;
use state::{Active, Memory, Stage};

/// A run to judge.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The chamber.
    pub chamber: &'a Chamber,
    /// The run.
    pub context: &'a Arc<str>,
    /// The notification's time.
    pub timestamp: Timestamp,
    /// Where its notification stands.
    pub position: Position,
    /// The version of the strategy.
    pub strategy: &'a Arc<str>,
    /// What each chart's equation came to, in the order of the charts.
    pub values: &'a [Value],
}

/// What a message comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What became of it.
    pub outcome: Outcome,
    /// The points.
    pub charts: Vec<UChart>,
    /// Every alarm that was active before the message or is after it, as it stands now.
    pub alarms: Vec<Alarm>,
    /// What the charts remember from now on.
    pub state: ChartState,
    /// What a person should know and no row says.
    pub remarks: Vec<Remark>,
}

/// Something that no row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The chart.
    pub indicator: Arc<str>,
    /// What there is to say of it.
    pub text: String,
}

/// Judges a run.
///
/// A run whose id is among the last ones is a duplicate and changes nothing. A chart whose equation or limits are others
/// than before begins anew; a chart that the strategy has no more is forgotten and its alarms are cleared.
pub fn judge(run: Run<'_>, charts: &Charts, before: &ChartState, history: &History) -> Verdict {
    if before.has_seen(run.context) {
        return unchanged(run.chamber, before, Outcome::Duplicate);
    }
    assert_eq!(charts.len(), run.values.len(), "every chart has an outcome");
    let mut verdict = Verdict {
        outcome: if charts.is_empty() { Outcome::NoCharts } else { Outcome::Processed },
        charts: Vec::with_capacity(charts.len()),
        alarms: Vec::new(),
        state: before.after(run.context),
        remarks: Vec::new(),
    };
    let cleared = Cleared { context: run.context, timestamp: run.timestamp };
    for (chart, value) in charts.iter().zip(run.values) {
        let mut judging = Judging { run, chart, history, verdict: &mut verdict };
        let memory = judging.chart(value, before.charts.get(&chart.name), cleared);
        verdict.state.charts.insert(chart.name.clone(), memory);
    }
    for (name, memory) in &before.charts {
        if !verdict.state.charts.contains_key(name) {
            let ended = memory.active.iter().map(|active| cleared.ended(active, run.chamber, name));
            verdict.alarms.extend(ended);
        }
    }
    verdict
}

/// Carries a command out: the charts it names forget their baseline, limits, running values and alarms, and begin anew
/// with the next run. Charts with fixed limits begin their patterns anew.
pub fn rebaseline(command: &Rebaseline, position: Position, before: &ChartState) -> Verdict {
    if before.has_seen(&command.context) {
        return unchanged(&command.chamber, before, Outcome::Duplicate);
    }
    let mut verdict = Verdict {
        outcome: Outcome::Command,
        charts: Vec::new(),
        alarms: Vec::new(),
        state: before.after(&command.context),
        remarks: Vec::new(),
    };
    let cleared = Cleared { context: &command.context, timestamp: command.timestamp };
    for (name, memory) in &before.charts {
        let named = command.names(name);
        for active in &memory.active {
            verdict.alarms.push(match named {
                true => cleared.ended(active, &command.chamber, name),
                false => active.alarm(&command.chamber, name),
            });
        }
        let memory = match named {
            true => Memory::begin(memory.definition, position),
            false => memory.clone(),
        };
        verdict.state.charts.insert(name.clone(), memory);
    }
    for name in command.charts.iter().flatten().filter(|name| !before.charts.contains_key(*name)) {
        let text = format!("{} has no such chart to begin anew", command.chamber);
        verdict.remarks.push(Remark { indicator: name.clone(), text });
    }
    verdict
}

/// What a message leaves that has no effect: everything as it was.
pub fn unchanged(chamber: &Chamber, before: &ChartState, outcome: Outcome) -> Verdict {
    let active =
        before.charts.iter().flat_map(|(name, memory)| memory.active.iter().map(move |one| (name, one)));
    Verdict {
        outcome,
        charts: Vec::new(),
        alarms: active.map(|(name, active)| active.alarm(chamber, name)).collect(),
        state: before.clone(),
        remarks: Vec::new(),
    }
}

/// Which message clears alarms.
#[derive(Clone, Copy)]
struct Cleared<'a> {
    context: &'a Arc<str>,
    timestamp: Timestamp,
}

impl Cleared<'_> {
    fn ended(&self, active: &Active, chamber: &Chamber, indicator: &Arc<str>) -> Alarm {
        Alarm {
            state: AlarmState::Cleared,
            cleared: Some((self.context.clone(), self.timestamp)),
            ..active.alarm(chamber, indicator)
        }
    }
}

/// One chart of a run.
struct Judging<'a> {
    run: Run<'a>,
    chart: &'a Arc<Chart>,
    history: &'a History,
    verdict: &'a mut Verdict,
}

impl Judging<'_> {
    /// Judges the value, adds point and alarms to the verdict, and gives what the chart remembers from now on.
    fn chart(&mut self, value: &Value, before: Option<&Memory>, cleared: Cleared<'_>) -> Memory {
        let chart = self.chart;
        let kept = before.filter(|memory| memory.definition == chart.definition);
        let mut memory = kept.cloned().unwrap_or_else(|| Memory::begin(chart.definition, self.run.position));
        let begins = std::mem::take(&mut memory.begins);
        // The alarms of a chart that begins anew, and those of rules that are no more, end here.
        let still = |active: &Active| chart.rules.iter().any(|rule| *active.rule == *rule.check.name());
        let (active, ended): (Vec<Active>, Vec<Active>) = match before {
            Some(before) if kept.is_none() => (Vec::new(), before.active.clone()),
            _ => std::mem::take(&mut memory.active).into_iter().partition(still),
        };
        memory.active = active;
        let ended = ended.iter().map(|active| cleared.ended(active, self.run.chamber, &chart.name));
        self.verdict.alarms.extend(ended);

        let value = value.value().filter(|value| value.abs() <= LARGEST);
        let mut flags = if begins { Flags::BEGINS } else { Flags::default() };
        let (limits, n) = match value {
            None => {
                flags = flags.with(Flags::NO_VALUE);
                self.standing(&memory)
            }
            Some(value) => match self.limits(&mut memory, value) {
                Err(n) => {
                    flags = flags.with(Flags::LEARNING);
                    (None, n)
                }
                Ok((limits, n)) => {
                    if self.rules(&mut memory, value, &limits, cleared) {
                        flags = flags.with(Flags::VIOLATION);
                    }
                    (Some(limits), n)
                }
            },
        };
        if flags.has(Flags::NO_VALUE) || flags.has(Flags::LEARNING) {
            let active = memory.active.iter().map(|active| active.alarm(self.run.chamber, &chart.name));
            self.verdict.alarms.extend(active);
        }
        self.verdict.charts.push(UChart {
            indicator: chart.name.clone(),
            timestamp: self.run.timestamp,
            context: self.run.context.clone(),
            value,
            limits,
            n,
            flags,
            strategy: self.run.strategy.clone(),
        });
        memory
    }

    /// The limits as they are, for a point that is not judged.
    fn standing(&self, memory: &Memory) -> (Option<Limits>, u32) {
        match (&self.chart.limits, &memory.stage) {
            (LimitSource::Fixed(limits), _) => (Some(*limits), 0),
            (_, Stage::Learned { limits, n }) => (Some(*limits), *n),
            (_, Stage::Learning(values)) => (None, values.len() as u32),
        }
    }

    /// The limits to judge a value by; or, while there are none, how many values the baseline has with this one.
    fn limits(&mut self, memory: &mut Memory, value: f64) -> Result<(Limits, u32), u32> {
        let baseline = match &self.chart.limits {
            LimitSource::Fixed(limits) => return Ok((*limits, 0)),
            LimitSource::Learned(baseline) => baseline,
        };
        let values = match &mut memory.stage {
            Stage::Learned { limits, n } => return Ok((*limits, *n)),
            Stage::Learning(values) => values,
        };
        // Where the last ones taught nothing, the oldest makes room.
        if values.len() >= baseline.runs {
            values.remove(0);
        }
        values.push(value);
        let seen = values.len() as u32;
        if values.len() == baseline.runs {
            match learn::learn(baseline, self.chart.sides, values) {
                Ok((limits, n)) => memory.stage = Stage::Learned { limits, n },
                Err(problem) => {
                    let text = format!("no limits after {seen} runs: {problem}; it goes on learning");
                    self.verdict.remarks.push(Remark { indicator: self.chart.name.clone(), text });
                }
            }
        }
        Err(seen)
    }

    /// Holds a value against the rules; whether one is broken.
    fn rules(&mut self, memory: &mut Memory, value: f64, limits: &Limits, cleared: Cleared<'_>) -> bool {
        let past = self.history.window(&self.chart.name, memory.since, self.run.timestamp);
        let past: Vec<f64> = past.filter_map(PastPoint::judged).collect();
        let mut window = rule::Window::new(self.chart, limits, &past, value, &mut memory.carries);
        let active = std::mem::take(&mut memory.active);
        let mut broken = false;
        for rule in &self.chart.rules {
            let name = rule.check.name();
            let was = active.iter().find(|active| *active.rule == *name);
            let now = window.breaks(rule);
            broken |= now.is_some();
            match (was, now) {
                (None, None) => {}
                (Some(was), None) => {
                    self.verdict.alarms.push(cleared.ended(was, self.run.chamber, &self.chart.name));
                }
                (Some(was), Some(_)) => {
                    self.verdict.alarms.push(was.alarm(self.run.chamber, &self.chart.name));
                    memory.active.push(was.clone());
                }
                (None, Some(found)) => {
                    let raised = alarm::raise(&self.run, self.chart, rule, value, limits, &found);
                    self.verdict.alarms.push(raised.clone());
                    memory.active.push(Active::of(raised));
                }
            }
        }
        broken
    }
}

/// Beyond this the statistics would overflow; such a number is no measurement.
const LARGEST: f64 = 1e100;

#[cfg(test)]
#[path = "judge_test.rs"]
mod tests;
