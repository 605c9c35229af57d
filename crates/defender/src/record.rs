//! What is stored, row by row.
//!
//! Nothing here contains the time of processing: a run that is processed twice leaves the same rows twice. Rows carry
//! the [`Mark`] of the attempt that wrote them, and a row of a lower mark never replaces one of a higher.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use phalanx_cluster::core::Position;
use phalanx_cluster::names::{self, NameError};
use serde::{Deserialize, Serialize};

/// A process chamber of a tool: `tool:chamber`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chamber {
    tool: Arc<str>,
    chamber: Arc<str>,
}

impl Chamber {
    /// A chamber by its two names, which are checked: they become subjects and keys.
    ///
    /// ```
    /// use phalanx_defender::record::Chamber;
    ///
    /// assert_eq!(Chamber::new("etch-01", "A")?.to_string(), "etch-01:A");
    /// assert!(Chamber::new("etch.01", "A").is_err());
    /// # Ok::<(), phalanx_cluster::names::NameError>(())
    /// ```
    pub fn new(tool: &str, chamber: &str) -> Result<Self, NameError> {
        names::check(tool)?;
        names::check(chamber)?;
        Ok(Self { tool: tool.into(), chamber: chamber.into() })
    }

    /// A chamber by the name of its partition, `tool:chamber`; none if it is not one.
    pub fn of_partition(partition: &str) -> Option<Self> {
        let (tool, chamber) = partition.split_once(':')?;
        Self::new(tool, chamber).ok()
    }

    /// The tool's name.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The chamber's name at its tool.
    pub fn chamber(&self) -> &str {
        &self.chamber
    }
}

impl fmt::Display for Chamber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.tool, self.chamber)
    }
}

/// Which attempt at which message wrote a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The message.
    pub position: Position,
    /// The attempt: it grows with every owner and every try.
    pub take: u64,
    /// The time stamp of the message: the broker's, in microseconds, and always above that of the message before.
    pub stamp: u64,
}

impl Mark {
    /// What decides between two writes of one row: the higher one stays.
    pub fn written_at(&self) -> u64 {
        self.stamp.saturating_add(self.take)
    }
}

/// One point of a U-chart.
#[derive(Clone, Debug, PartialEq)]
pub struct UChart {
    /// The chart's name in the strategy.
    pub indicator: Arc<str>,
    /// The notification's time.
    pub timestamp: Timestamp,
    /// The run.
    pub context: Arc<str>,
    /// What the equation gave; none where it has no value.
    pub value: Option<f64>,
    /// The limits it was judged by; none before there are any.
    pub limits: Option<Limits>,
    /// How many runs the limits were learned from; of a chart that learns, how many it has so far.
    pub n: u32,
    /// What there is to say of the point.
    pub flags: Flags,
    /// The version of the strategy that made it.
    pub strategy: Arc<str>,
}

/// Control limits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The centre line.
    pub center: f64,
    /// The lower limit, where there is one.
    pub lcl: Option<f64>,
    /// The upper limit, where there is one.
    pub ucl: Option<f64>,
    /// The deviation, where it is known.
    pub sigma: Option<f64>,
}

/// What there is to say of a point, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Flags(pub u32);

impl Flags {
    /// The equation gave no value.
    pub const NO_VALUE: Self = Self(1);
    /// The chart is still learning: the point was not judged.
    pub const LEARNING: Self = Self(2);
    /// A rule was broken.
    pub const VIOLATION: Self = Self(4);
    /// The chart began anew with this point: its equation changed, or it was told to.
    pub const BEGINS: Self = Self(8);

    /// These and those.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among these.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Its U-charts are there.
    Processed,
    /// No chart of the strategy is for this chamber.
    NoCharts,
    /// The run was here before: nothing was done.
    Duplicate,
    /// A command, not a run: it took effect.
    Command,
    /// It is a dead letter.
    Dead,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Processed, Self::NoCharts, Self::Duplicate, Self::Command, Self::Dead];

    /// Its name, in rows, answers and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::NoCharts => "no_charts",
            Self::Duplicate => "duplicate",
            Self::Command => "command",
            Self::Dead => "dead",
        }
    }
}

/// The row that says which attempt at a message counts: rows of other attempts are to be ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct Context {
    /// The message.
    pub position: Position,
    /// The attempt that counts.
    pub take: u64,
    /// The run.
    pub context: Arc<str>,
    /// The notification's time.
    pub timestamp: Timestamp,
    /// The version of the strategy.
    pub strategy: Arc<str>,
    /// What became of it.
    pub outcome: Outcome,
}

/// A run that belongs to the history of a chamber, and which attempt's rows of it count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The run.
    pub context: Arc<str>,
    /// Where its notification stood.
    pub generation: u64,
    /// Where its notification stood.
    pub sequence: u64,
    /// The attempt that counts.
    pub take: u64,
}

/// What a chamber's charts remember after a message, written at the message's position.
#[derive(Clone, Debug, PartialEq)]
pub struct StateRow {
    /// The message it follows from.
    pub mark: Mark,
    /// The message committed before it.
    pub predecessor: Option<Position>,
    /// The id of the message it follows from.
    pub context: Arc<str>,
    /// Which log that message comes from: the time it was made.
    pub stream: u64,
    /// The runs whose points make the history, the newest first, at most [`HISTORY`].
    pub history: Vec<Past>,
    /// Baselines, limits, running values, active alarms, the last context ids; see the code that makes it.
    pub state: Vec<u8>,
}

/// How many points of each chart are looked back upon.
pub const HISTORY: usize = 100;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth a look.
    Info,
    /// Something drifts.
    Warning,
    /// Stop and look.
    Critical,
}

impl Severity {
    /// All of them, the least first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// Its name, in rows, answers and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Where an alarm stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlarmState {
    /// The condition holds.
    Open,
    /// The condition holds, and a person has seen it.
    Acknowledged,
    /// The condition holds no more.
    Cleared,
}

impl AlarmState {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Open, Self::Acknowledged, Self::Cleared];

    /// Its name, in rows and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Acknowledged => "acknowledged",
            Self::Cleared => "cleared",
        }
    }
}

/// An alarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// The same whenever it is computed: from chamber, context, indicator and rule.
    pub id: Arc<str>,
    /// The chamber.
    pub chamber: Chamber,
    /// The notification's time of the run that raised it.
    pub raised_at: Timestamp,
    /// The chart.
    pub indicator: Arc<str>,
    /// The rule that was broken.
    pub rule: Arc<str>,
    /// How bad it is.
    pub severity: Severity,
    /// The value that broke it.
    pub value: Option<f64>,
    /// The limit it broke, where the rule has one.
    pub limit: Option<f64>,
    /// The run that raised it.
    pub context: Arc<str>,
    /// Open or cleared; `Acknowledged` is what readers see of an open one that a person has seen.
    pub state: AlarmState,
    /// The run that cleared it, and its notification's time.
    pub cleared: Option<(Arc<str>, Timestamp)>,
    /// A sentence for a person.
    pub message: String,
}

/// What a person said of an alarm; kept apart from it, so that processing never overwrites it.
#[derive(Clone, Debug, PartialEq)]
pub struct Acknowledgement {
    /// Who.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// What they had to say.
    pub comment: String,
}

/// What is known of a chamber's load.
#[derive(Clone, Debug, PartialEq)]
pub struct Metadata {
    /// The chamber.
    pub chamber: Chamber,
    /// How many sensors (SVIDs) a run has.
    pub svid_count: u32,
    /// How often they are sampled.
    pub collection_freq_hz: f64,
    /// How long a run takes.
    pub context_duration_seconds: f64,
    /// What it weighs in the balance of the fleet.
    pub weight: u64,
    /// When this was last estimated.
    pub last_updated: Timestamp,
}

/// Everything one message leaves behind, written before its cursor moves.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// The chamber.
    pub chamber: Chamber,
    /// Who writes it.
    pub mark: Mark,
    /// The points.
    pub charts: Vec<UChart>,
    /// Every alarm that was active before the message or is after it, as it stands now.
    pub alarms: Vec<Alarm>,
    /// Which attempt counts.
    pub context: Context,
    /// What the charts remember.
    pub state: StateRow,
}
