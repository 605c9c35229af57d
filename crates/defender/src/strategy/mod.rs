//! The strategy file: which charts which chambers get, how their limits come about, and what judges them.
//!
//! ```
//! use phalanx_defender::record::Chamber;
//! use phalanx_defender::strategy::Strategy;
//!
//! let strategy = Strategy::parse(
//!     r#"
//!     [[group]]
//!     tools = ["etch-*"]
//!
//!     [[group.chart]]
//!     name = "rf-power"
//!     equation = "mean(RF_POWER[10s..50s])"
//!     limits = { lcl = 480, ucl = 520 }
//!     rules = [{ rule = "limits", severity = "critical" }]
//!     "#,
//! )?;
//! let charts = strategy.charts_for(&Chamber::new("etch-01", "A")?);
//! assert_eq!(charts.svids(), ["RF_POWER"]);
//! assert!(strategy.charts_for(&Chamber::new("cvd-01", "A")?).is_empty());
//!
//! let error = Strategy::parse("[[group]]\ntools = [\"etch.*\"]").unwrap_err();
//! assert_eq!((error.line, error.column), (2, 10));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Every key is explained in `docs/strategy.md`.

mod chart;
mod error;
mod file;
mod limits;
mod pattern;
mod place;
mod reload;
mod rules;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

pub use chart::{Baseline, Chart, ChartRule, Check, LimitSource};
pub use error::StrategyError;
pub use file::MAX_FILE;
pub use limits::MAX_BASELINE;
pub(crate) use limits::around;
pub use reload::{FileWatch, Holder, Reload};

use crate::digest;
use crate::record::Chamber;
use pattern::Pattern;

/// A strategy that was read and checked.
#[derive(Debug)]
pub struct Strategy {
    version: Arc<str>,
    groups: Vec<Group>,
    /// The charts of each set of groups that some chamber matched, so that a message does not put them together anew.
    sets: Mutex<HashMap<Vec<usize>, Arc<Charts>>>,
}

/// Charts, and the chambers they are for.
#[derive(Clone, Debug, PartialEq)]
struct Group {
    tools: Vec<Pattern>,
    chambers: Vec<Pattern>,
    charts: Vec<Arc<Chart>>,
}

/// What a group means, in a form that is hashed.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct GroupMeaning {
    tools: Vec<String>,
    chambers: Vec<String>,
    charts: Vec<chart::ChartMeaning>,
}

/// The charts of a chamber.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Charts {
    charts: Vec<Arc<Chart>>,
    svids: Vec<String>,
    /// For each chart, where the SVIDs of its equation stand among all.
    columns: Vec<Vec<usize>>,
}

impl Strategy {
    /// Reads and checks a strategy.
    pub fn parse(text: &str) -> Result<Self, StrategyError> {
        let (groups, meaning) = file::Reader(text).file()?;
        let version = digest::hex(&digest::digest(&["strategy", &chart::json(&meaning)])[..8]);
        Ok(Self { version: version.into(), groups, sets: Mutex::default() })
    }

    /// The hash of what it means: comments, white space and the order of keys do not change it.
    pub fn version(&self) -> &Arc<str> {
        &self.version
    }

    /// The charts of a chamber: those of all groups that match it. Where several have the same name, the one that
    /// stands last in the file counts.
    pub fn charts_for(&self, chamber: &Chamber) -> Arc<Charts> {
        let matching: Vec<usize> =
            (0..self.groups.len()).filter(|&i| self.groups[i].matches(chamber)).collect();
        // The map is whole whatever happened to whoever held the lock.
        let mut sets = self.sets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(charts) = sets.get(&matching) {
            return charts.clone();
        }
        let charts = matching.iter().flat_map(|&i| &self.groups[i].charts);
        let charts = Arc::new(Charts::new(charts));
        sets.insert(matching, charts.clone());
        charts
    }

    /// For people: each group's patterns of tools and of chambers, and its charts.
    pub fn groups(&self) -> impl Iterator<Item = (String, String, &[Arc<Chart>])> {
        let list = |patterns: &[Pattern]| patterns.iter().map(Pattern::as_str).collect::<Vec<_>>().join(", ");
        self.groups.iter().map(move |group| (list(&group.tools), list(&group.chambers), &group.charts[..]))
    }
}

impl Group {
    fn matches(&self, chamber: &Chamber) -> bool {
        self.tools.iter().any(|pattern| pattern.matches(chamber.tool()))
            && self.chambers.iter().any(|pattern| pattern.matches(chamber.chamber()))
    }
}

impl Charts {
    fn new<'a>(all: impl Iterator<Item = &'a Arc<Chart>>) -> Self {
        let mut charts: Vec<Arc<Chart>> = Vec::new();
        for chart in all {
            match charts.iter_mut().find(|known| known.name == chart.name) {
                Some(known) => *known = chart.clone(),
                None => charts.push(chart.clone()),
            }
        }
        let (mut svids, mut places) = (Vec::new(), HashMap::new());
        let mut columns = Vec::new();
        for chart in &charts {
            let place = |svid: &String| {
                *places.entry(svid.clone()).or_insert_with(|| {
                    svids.push(svid.clone());
                    svids.len() - 1
                })
            };
            columns.push(chart.equation.svids().iter().map(place).collect());
        }
        Self { charts, svids, columns }
    }

    /// The charts, in the order of the file.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Chart>> {
        self.charts.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.charts.len()
    }

    /// Whether the strategy has none for this chamber.
    pub fn is_empty(&self) -> bool {
        self.charts.is_empty()
    }

    /// The SVIDs that their equations need; nothing else has to be decoded.
    pub fn svids(&self) -> &[String] {
        &self.svids
    }

    /// Each chart, with the places of its equation's SVIDs among [`Charts::svids`].
    pub(crate) fn with_columns(&self) -> impl Iterator<Item = (&Arc<Chart>, &[usize])> {
        self.charts.iter().zip(self.columns.iter().map(Vec::as_slice))
    }
}

#[cfg(test)]
#[path = "strategy_test.rs"]
mod tests;
