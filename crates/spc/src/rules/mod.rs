//! Run rules: patterns of points that a process in control hardly ever makes.
//!
//! Each rule is a file with its definition. A rule looks at the last few points of a chart and says whether the
//! newest one completes its pattern; so a rule works on a whole chart ([`scan`]) and a point at a time
//! ([`Watch`]) by the same definition.
//!
//! Points exactly on the centre are on neither side, and equal neighbours neither rise nor fall: both break a run.

mod limits;
mod nelson1;
mod nelson2;
mod nelson3;
mod nelson4;
mod nelson5;
mod nelson6;
mod nelson7;
mod nelson8;
mod pattern;
mod watch;
mod we1;
mod we2;
mod we3;
mod we4;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub(crate) use watch::beyond;
pub use watch::{Mark, Watch, newest, scan};

use pattern::{Finding, Window};

/// A run rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "definition() says what each is")]
pub enum Rule {
    Limits,
    We1,
    We2,
    We3,
    We4,
    Nelson1,
    Nelson2,
    Nelson3,
    Nelson4,
    Nelson5,
    Nelson6,
    Nelson7,
    Nelson8,
}

/// What a rule file states.
struct Definition {
    name: &'static str,
    text: &'static str,
    /// How many points the pattern spans.
    window: usize,
    /// Whether it needs to know where 1 σ and 2 σ are.
    zones: bool,
    check: fn(&Window<'_>) -> Option<Finding>,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 13] = [
        Self::Limits,
        Self::We1,
        Self::We2,
        Self::We3,
        Self::We4,
        Self::Nelson1,
        Self::Nelson2,
        Self::Nelson3,
        Self::Nelson4,
        Self::Nelson5,
        Self::Nelson6,
        Self::Nelson7,
        Self::Nelson8,
    ];

    /// The four Western Electric rules.
    pub const WESTERN_ELECTRIC: [Self; 4] = [Self::We1, Self::We2, Self::We3, Self::We4];

    /// Nelson's eight rules.
    pub const NELSON: [Self; 8] = [
        Self::Nelson1,
        Self::Nelson2,
        Self::Nelson3,
        Self::Nelson4,
        Self::Nelson5,
        Self::Nelson6,
        Self::Nelson7,
        Self::Nelson8,
    ];

    fn rule(self) -> &'static Definition {
        match self {
            Self::Limits => &limits::RULE,
            Self::We1 => &we1::RULE,
            Self::We2 => &we2::RULE,
            Self::We3 => &we3::RULE,
            Self::We4 => &we4::RULE,
            Self::Nelson1 => &nelson1::RULE,
            Self::Nelson2 => &nelson2::RULE,
            Self::Nelson3 => &nelson3::RULE,
            Self::Nelson4 => &nelson4::RULE,
            Self::Nelson5 => &nelson5::RULE,
            Self::Nelson6 => &nelson6::RULE,
            Self::Nelson7 => &nelson7::RULE,
            Self::Nelson8 => &nelson8::RULE,
        }
    }

    /// Its name in signals, files and options: `limits`, `we-1` to `we-4`, `nelson-1` to `nelson-8`.
    pub fn name(self) -> &'static str {
        self.rule().name
    }

    /// What it looks for, in words.
    pub fn definition(self) -> &'static str {
        self.rule().text
    }

    /// How many points its pattern spans.
    pub fn window(self) -> usize {
        self.rule().window
    }

    /// Whether it needs a centre and a σ besides the limits.
    pub fn needs_zones(self) -> bool {
        self.rule().zones
    }

    /// Reads a choice of rules as people write it: `we`, `nelson`, Nelson's numbers (`1,2,5`) or names.
    ///
    /// ```
    /// use phalanx_spc::rules::Rule;
    /// assert_eq!(Rule::list("1,5").unwrap(), [Rule::Nelson1, Rule::Nelson5]);
    /// assert_eq!(Rule::list("we").unwrap().len(), 4);
    /// assert!(Rule::list("9").unwrap_err().to_string().contains("1 to 8"));
    /// ```
    pub fn list(text: &str) -> Result<Vec<Self>, UnknownRule> {
        let mut rules = Vec::new();
        for part in text.split(',').map(str::trim) {
            match part {
                "we" => rules.extend(Self::WESTERN_ELECTRIC),
                "nelson" => rules.extend(Self::NELSON),
                number if number.parse::<usize>().is_ok_and(|n| (1..=8).contains(&n)) => {
                    rules.push(format!("nelson-{number}").parse()?);
                }
                name => rules.push(name.parse()?),
            }
        }
        rules.sort_unstable();
        rules.dedup();
        Ok(rules)
    }
}

/// A rule that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown rule `{0}`; rules are `we`, `nelson`, Nelson's numbers 1 to 8, or names: limits, we-1 to we-4, nelson-1 to nelson-8"
)]
pub struct UnknownRule(String);

impl FromStr for Rule {
    type Err = UnknownRule;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|rule| rule.name() == name).ok_or_else(|| UnknownRule(name.to_owned()))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Rule {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A rule found its pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signal {
    /// The point that completes the pattern; the first point of a chart is 1.
    pub index: u64,
    /// Which rule.
    pub rule: Rule,
    /// The points that make the pattern.
    pub points: Vec<u64>,
    /// Why, in one sentence for a person.
    pub message: String,
}

/// On which sides of the centre a chart warns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sides {
    /// On both.
    #[default]
    Both,
    /// Only too high is bad (particles, leak rates).
    Upper,
    /// Only too low is bad (yield, throughput).
    Lower,
}

#[cfg(test)]
#[path = "rules_test.rs"]
mod tests;
