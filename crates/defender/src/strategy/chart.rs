//! What a chart is: an equation, limits, rules.

use std::fmt;
use std::sync::Arc;

use phalanx_spc::chart::{Design, Kind};
use phalanx_spc::equation::Equation;
use phalanx_spc::numeric::short;
use phalanx_spc::rules::{Rule, Sides};
use serde::Serialize;

use crate::digest;
use crate::record::{Limits, Severity};

/// A chart of a strategy.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Its name: the *indicator* of U-charts and alarms.
    pub name: Arc<str>,
    /// What is plotted.
    pub equation: Equation,
    /// On which sides it warns.
    pub sides: Sides,
    /// Where its limits come from.
    pub limits: LimitSource,
    /// What judges its points.
    pub rules: Vec<ChartRule>,
    /// The hash of equation, sides and limits: where it changes, the chart begins anew.
    pub definition: u64,
}

/// Where limits come from.
#[derive(Clone, Debug, PartialEq)]
pub enum LimitSource {
    /// A person gave them.
    Fixed(Limits),
    /// They are learned from the first runs.
    Learned(Baseline),
}

/// How limits are learned.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// From so many runs.
    pub runs: usize,
    /// So many runs after one another make a subgroup, and σ comes from the spread inside the subgroups; none: σ comes
    /// from the moving range of the runs.
    pub subgroup: Option<usize>,
    /// How many σ from the centre the limits are.
    pub sigmas: f64,
    /// How centre and σ are estimated.
    pub design: Design,
}

/// A rule of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartRule {
    /// What is looked for.
    pub check: Check,
    /// How bad it is.
    pub severity: Severity,
    /// The hash of rule and parameters: where it changes, what the rule carries from point to point begins anew.
    pub definition: u64,
}

/// What a rule looks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// Limits, a Western Electric or a Nelson rule.
    Run(Rule),
    /// The exponentially weighted moving average leaves its limits.
    Ewma(Design),
    /// A cumulative sum leaves its interval.
    Cusum(Design),
    /// So many points in a row steadily rise or fall.
    Trend(usize),
}

impl Check {
    /// Its name in files, rows and alarms.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Run(rule) => rule.name(),
            Self::Ewma(_) => "ewma",
            Self::Cusum(_) => "cusum",
            Self::Trend(_) => "trend",
        }
    }

    /// The design of the chart that carries it, where it is one.
    pub(crate) fn carried(&self) -> Option<&Design> {
        match self {
            Self::Ewma(design) | Self::Cusum(design) => Some(design),
            Self::Run(_) | Self::Trend(_) => None,
        }
    }

    /// What it looks for, in words.
    pub fn definition(&self) -> String {
        match self {
            Self::Run(rule) => rule.definition().to_owned(),
            Self::Ewma(design) => {
                format!("the moving average (λ = {}) beyond {} σ of its own", lambda(design), design.sigmas)
            }
            Self::Cusum(design) => {
                let (k, h) = allowance(design);
                format!("a cumulative sum (k = {k}) beyond {h} σ")
            }
            Self::Trend(points) => {
                format!("{points} points in a row steadily rising or steadily falling")
            }
        }
    }
}

fn lambda(design: &Design) -> f64 {
    if let Kind::Ewma { lambda, .. } = design.kind { lambda } else { f64::NAN }
}

fn allowance(design: &Design) -> (f64, f64) {
    if let Kind::Cusum { k, h } = design.kind { (k, h) } else { (f64::NAN, f64::NAN) }
}

impl fmt::Display for ChartRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = self.severity.name();
        match &self.check {
            Check::Trend(points) => write!(f, "trend of {points}: {severity}"),
            check => write!(f, "{}: {severity}", check.name()),
        }
    }
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(Limits { center, lcl, ucl, .. }) => {
                let side = |limit: &Option<f64>| limit.map_or("none".to_owned(), short);
                write!(f, "{} … {} around {}", side(lcl), side(ucl), short(*center))
            }
            Self::Learned(Baseline { runs, subgroup, sigmas, .. }) => {
                write!(f, "±{sigmas} σ, learned from {runs} runs")?;
                subgroup.map_or(Ok(()), |size| write!(f, " in subgroups of {size}"))
            }
        }
    }
}

/// What a chart means, in a form that is hashed: names and order of its fields never change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct ChartMeaning {
    pub(super) name: String,
    pub(super) equation: String,
    pub(super) sides: Sides,
    pub(super) limits: LimitsMeaning,
    pub(super) rules: Vec<RuleMeaning>,
}

/// What limits mean; every default is filled in.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct LimitsMeaning {
    pub(super) lcl: Option<f64>,
    pub(super) ucl: Option<f64>,
    pub(super) center: Option<f64>,
    pub(super) sigma: Option<f64>,
    pub(super) sigmas: f64,
    pub(super) baseline: Option<u64>,
    pub(super) subgroup: Option<u64>,
    pub(super) robust: bool,
    pub(super) exclude: bool,
}

/// What a rule means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct RuleMeaning {
    pub(super) rule: &'static str,
    pub(super) severity: Severity,
    pub(super) parameters: Vec<f64>,
}

impl ChartMeaning {
    /// The hash of what makes its points comparable with each other: the equation, the sides, the limits.
    pub(super) fn definition(&self) -> u64 {
        digest::number(&["chart", &self.equation, &json(&self.sides), &json(&self.limits)])
    }
}

impl RuleMeaning {
    pub(super) fn definition(&self) -> u64 {
        digest::number(&["rule", self.rule, &json(&self.parameters)])
    }
}

pub(super) fn json(meaning: &impl Serialize) -> String {
    match serde_json::to_string(meaning) {
        Ok(text) => text,
        Err(error) => unreachable!("numbers, names and lists: {error}"),
    }
}

/// An equation without the white space that means nothing: what stays is one blank between two words.
pub(super) fn canonical(equation: &str) -> String {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut out, mut quoted, mut gap) = (String::new(), false, false);
    for c in equation.chars() {
        if !quoted && c.is_whitespace() {
            gap = true;
            continue;
        }
        if gap && word(c) && out.ends_with(word) {
            out.push(' ');
        }
        gap = false;
        quoted ^= c == '"';
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_means_nothing_but_between_words_and_inside_quotes() {
        assert_eq!(canonical(" mean( X [ 1s .. 2s ] )\n+ 1 "), "mean(X[1s..2s])+1");
        assert_eq!(canonical("max(X  where\n S == 3)"), "max(X where S==3)");
        assert_eq!(canonical("mean(\"Gas  1\" )"), "mean(\"Gas  1\")");
    }
}
