//! What the charts of a chamber remember between runs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;
use thiserror::Error;

use super::codec::{Reader, Writer};
use super::rule::Carries;
use crate::record::{Alarm, AlarmState, Chamber, Limits, Severity};
use crate::strategy::MAX_BASELINE;

/// How many ids of contexts are remembered: one that comes again among so many is a duplicate.
pub const RECENT: usize = 1000;

/// What the charts of a chamber remember. The same state always gives the same bytes, and they give the same state back,
/// bit for bit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChartState {
    pub(super) charts: BTreeMap<Arc<str>, Memory>,
    /// The ids of the last contexts and commands, the oldest first.
    recent: VecDeque<Arc<str>>,
}

/// What one chart remembers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Memory {
    /// Of which equation, sides and limits it is.
    pub(super) definition: u64,
    /// Points before this do not belong to it.
    pub(super) since: Position,
    /// Whether its next point is the first.
    pub(super) begins: bool,
    pub(super) stage: Stage,
    pub(super) carries: Carries,
    pub(super) active: Vec<Active>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// The baseline so far; stays empty where limits are fixed.
    Learning(Vec<f64>),
    Learned {
        limits: Limits,
        n: u32,
    },
}

/// An alarm whose condition holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Active {
    pub(super) rule: Arc<str>,
    id: Arc<str>,
    raised_at: Timestamp,
    severity: Severity,
    value: Option<f64>,
    limit: Option<f64>,
    context: Arc<str>,
    message: String,
}

/// A stored state that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StateError {
    /// A newer program wrote it.
    #[error("the chart state has format {found}, this program reads format {VERSION}; update the program")]
    Version {
        /// The format it has.
        found: u8,
    },
    /// It is not what any program wrote.
    #[error("the chart state is damaged: {0}")]
    Damaged(&'static str),
}

/// The format of stored states.
const VERSION: u8 = 1;

impl Memory {
    /// A chart that begins with the message at this position: a run, or a command, which has no point itself.
    pub(super) fn begin(definition: u64, position: Position) -> Self {
        Self {
            definition,
            since: position,
            begins: true,
            stage: Stage::Learning(Vec::new()),
            carries: Vec::new(),
            active: Vec::new(),
        }
    }
}

impl Active {
    pub(super) fn of(alarm: Alarm) -> Self {
        let Alarm { id, raised_at, rule, severity, value, limit, context, message, .. } = alarm;
        Self { rule, id, raised_at, severity, value, limit, context, message }
    }

    /// The alarm as it stands: open.
    pub(super) fn alarm(&self, chamber: &Chamber, indicator: &Arc<str>) -> Alarm {
        Alarm {
            id: self.id.clone(),
            chamber: chamber.clone(),
            raised_at: self.raised_at,
            indicator: indicator.clone(),
            rule: self.rule.clone(),
            severity: self.severity,
            value: self.value,
            limit: self.limit,
            context: self.context.clone(),
            state: AlarmState::Open,
            cleared: None,
            message: self.message.clone(),
        }
    }
}

impl ChartState {
    /// Whether this context is among the last ones.
    pub fn has_seen(&self, context: &str) -> bool {
        self.recent.iter().rev().any(|seen| **seen == *context)
    }

    /// No chart yet, but the context is among the last ones.
    pub(super) fn after(&self, context: &Arc<str>) -> Self {
        let mut recent = self.recent.clone();
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(context.clone());
        Self { charts: BTreeMap::new(), recent }
    }

    /// The charts that remember something.
    pub fn indicators(&self) -> impl Iterator<Item = &Arc<str>> {
        self.charts.keys()
    }

    /// The limits a chart has learned, and from how many runs.
    pub fn learned(&self, indicator: &str) -> Option<(Limits, u32)> {
        match self.charts.get(indicator)?.stage {
            Stage::Learned { limits, n } => Some((limits, n)),
            Stage::Learning(_) => None,
        }
    }

    /// Where a chart began: points before this do not belong to it.
    pub fn since(&self, indicator: &str) -> Option<Position> {
        self.charts.get(indicator).map(|memory| memory.since)
    }

    /// How many alarms are active.
    pub fn active_alarms(&self) -> usize {
        self.charts.values().map(|memory| memory.active.len()).sum()
    }

    /// The state as bytes: a format number, then numbers and texts one after the other.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::new(VERSION);
        out.count(self.charts.len());
        for (name, memory) in &self.charts {
            out.text(name);
            memory.write(&mut out);
        }
        out.count(self.recent.len());
        let mut before = "";
        for context in &self.recent {
            out.continued(before, context);
            before = context;
        }
        out.finish()
    }

    /// Reads a stored state. Bytes of another format, damaged or made up, give an error.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let mut input = Reader::new(bytes);
        match input.byte()? {
            VERSION => {}
            found => return Err(StateError::Version { found }),
        }
        let mut state = Self::default();
        for _ in 0..input.count(MOST_CHARTS)? {
            let name = input.text()?;
            state.charts.insert(name.into(), Memory::read(&mut input)?);
        }
        let mut context = String::new();
        for _ in 0..input.count(RECENT)? {
            input.continued(&mut context)?;
            state.recent.push_back(context.as_str().into());
        }
        input.end()?;
        Ok(state)
    }
}

/// More charts than a strategy file of the largest size can have.
const MOST_CHARTS: usize = 1 << 16;
/// More rules than there are.
const MOST_RULES: usize = 64;

impl Memory {
    fn write(&self, out: &mut Writer) {
        let Self { definition, since, begins, stage, carries, active } = self;
        out.word(*definition);
        out.number(since.generation);
        out.number(since.sequence.0);
        out.byte(u8::from(*begins));
        match stage {
            Stage::Learning(values) => {
                out.byte(0);
                out.floats(values);
            }
            Stage::Learned { limits, n } => {
                out.byte(1);
                out.float(limits.center);
                out.maybe_float(limits.lcl);
                out.maybe_float(limits.ucl);
                out.maybe_float(limits.sigma);
                out.number((*n).into());
            }
        }
        out.count(carries.len());
        for (definition, numbers) in carries {
            out.word(*definition);
            out.floats(numbers);
        }
        out.count(active.len());
        active.iter().for_each(|active| active.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let definition = input.word()?;
        let since = Position { generation: input.number()?, sequence: Sequence(input.number()?) };
        let begins = input.truth()?;
        let stage = match input.byte()? {
            0 => Stage::Learning(input.floats(MAX_BASELINE as usize)?),
            1 => {
                let limits = Limits {
                    center: input.float()?,
                    lcl: input.maybe_float()?,
                    ucl: input.maybe_float()?,
                    sigma: input.maybe_float()?,
                };
                let n = u32::try_from(input.number()?)
                    .map_err(|_| StateError::Damaged("a count is too large"))?;
                Stage::Learned { limits, n }
            }
            _ => return Err(StateError::Damaged("a chart neither learns nor has learned")),
        };
        let mut carries = Vec::new();
        for _ in 0..input.count(MOST_RULES)? {
            carries.push((input.word()?, input.floats(8)?));
        }
        let mut active = Vec::new();
        for _ in 0..input.count(MOST_RULES)? {
            active.push(Active::read(input)?);
        }
        Ok(Self { definition, since, begins, stage, carries, active })
    }
}

impl Active {
    fn write(&self, out: &mut Writer) {
        let Self { rule, id, raised_at, severity, value, limit, context, message } = self;
        out.text(rule);
        out.text(id);
        out.nanoseconds(raised_at.as_nanosecond());
        out.byte(match severity {
            Severity::Info => 0,
            Severity::Warning => 1,
            Severity::Critical => 2,
        });
        out.maybe_float(*value);
        out.maybe_float(*limit);
        out.text(context);
        out.text(message);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        Ok(Self {
            rule: input.text()?.into(),
            id: input.text()?.into(),
            raised_at: Timestamp::from_nanosecond(input.nanoseconds()?)
                .map_err(|_| StateError::Damaged("a time is out of range"))?,
            severity: match input.byte()? {
                0 => Severity::Info,
                1 => Severity::Warning,
                2 => Severity::Critical,
                _ => return Err(StateError::Damaged("there is no such severity")),
            },
            value: input.maybe_float()?,
            limit: input.maybe_float()?,
            context: input.text()?.into(),
            message: input.text()?.to_owned(),
        })
    }
}

#[cfg(test)]
impl ChartState {
    /// How many contexts it remembers.
    pub(super) fn remembered(&self) -> usize {
        self.recent.len()
    }
}
