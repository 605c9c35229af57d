//! The functions of the language.

use serde::{Deserialize, Serialize};

/// A function over the chosen points of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "docs/spc.md has a table of them")]
pub enum Function {
    Mean,
    Std,
    Var,
    Min,
    Max,
    Range,
    Median,
    Quantile,
    First,
    Last,
    Count,
    Duration,
    Area,
    Slope,
    Rms,
}

impl Function {
    /// Every function.
    pub const ALL: [Self; 15] = [
        Self::Mean,
        Self::Std,
        Self::Var,
        Self::Min,
        Self::Max,
        Self::Range,
        Self::Median,
        Self::Quantile,
        Self::First,
        Self::Last,
        Self::Count,
        Self::Duration,
        Self::Area,
        Self::Slope,
        Self::Rms,
    ];

    /// Its name in equations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Std => "std",
            Self::Var => "var",
            Self::Min => "min",
            Self::Max => "max",
            Self::Range => "range",
            Self::Median => "median",
            Self::Quantile => "quantile",
            Self::First => "first",
            Self::Last => "last",
            Self::Count => "count",
            Self::Duration => "duration",
            Self::Area => "area",
            Self::Slope => "slope",
            Self::Rms => "rms",
        }
    }

    /// How many points it needs to mean anything.
    pub(super) fn least(self) -> u64 {
        match self {
            Self::Std | Self::Var | Self::Slope | Self::Area | Self::Duration => 2,
            _ => 1,
        }
    }
}

/// A function of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Abs,
    Sqrt,
}

impl Scalar {
    pub(super) const ALL: [Self; 2] = [Self::Abs, Self::Sqrt];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Abs => "abs",
            Self::Sqrt => "sqrt",
        }
    }

    pub(super) fn apply(self, value: f64) -> f64 {
        match self {
            Self::Abs => value.abs(),
            Self::Sqrt => value.sqrt(),
        }
    }
}

/// The known function that a misspelt name is nearest to, if one is near.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    let known = Function::ALL.iter().map(|function| function.name());
    let known = known.chain(Scalar::ALL.iter().map(|scalar| scalar.name()));
    let lower = name.to_lowercase();
    let aliases =
        [("avg", "mean"), ("average", "mean"), ("stddev", "std"), ("sd", "std"), ("variance", "var")];
    let alias = aliases.iter().find(|(alias, _)| *alias == lower).map(|(_, known)| *known);
    alias.or_else(|| {
        known
            .map(|known| (distance(&lower, known), known))
            .filter(|(distance, known)| *distance <= 2 && *distance < known.len() - 1)
            .min()
            .map(|(_, known)| known)
    })
}

/// How many letters must be put in, left out or changed (Levenshtein).
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}
