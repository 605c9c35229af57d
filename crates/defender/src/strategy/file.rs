//! Reads a strategy file.

use std::ops::Range;
use std::sync::Arc;

use phalanx_cluster::names;
use phalanx_spc::equation::{Equation, EquationError};
use phalanx_spc::rules::Sides;
use serde::Deserialize;
use toml::Spanned;

use super::chart::{Chart, ChartMeaning, canonical};
use super::error::StrategyError;
use super::limits::RawLimits;
use super::pattern::Pattern;
use super::place;
use super::rules::RawRule;
use super::{Group, GroupMeaning};

/// The largest file, in bytes.
pub const MAX_FILE: usize = 1 << 20;
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    group: Vec<Spanned<RawGroup>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGroup {
    tools: Spanned<Vec<Spanned<String>>>,
    chambers: Option<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    chart: Vec<Spanned<RawChart>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChart {
    name: Spanned<String>,
    equation: Spanned<String>,
    #[serde(default)]
    sides: Sides,
    limits: Spanned<RawLimits>,
    rules: Spanned<Vec<Spanned<RawRule>>>,
}

pub(super) type Read<T> = Result<T, StrategyError>;

/// The text of a file while it is read.
pub(super) struct Reader<'t>(pub(super) &'t str);

impl Reader<'_> {
    pub(super) fn file(&self) -> Read<(Vec<Group>, Vec<GroupMeaning>)> {
        if self.0.len() > MAX_FILE {
            let message = format!("the file has {} bytes, {MAX_FILE} is the most", self.0.len());
            return Err(self.at(0..0, message));
        }
        let raw: RawFile = toml::from_str(self.0).map_err(|error| self.syntax(&error))?;
        if raw.group.is_empty() {
            return Err(self
                .at(0..0, "the file has no group of charts")
                .hint("begin with [[group]] and tools = [\"…\"]"));
        }
        let read: Vec<(Group, GroupMeaning)> =
            raw.group.iter().map(|group| self.group(group)).collect::<Read<_>>()?;
        Ok(read.into_iter().unzip())
    }

    pub(super) fn at(&self, span: Range<usize>, message: impl Into<String>) -> StrategyError {
        StrategyError::at(self.0, span, message)
    }

    /// What the TOML reader says: its place, the first line of its words.
    fn syntax(&self, error: &toml::de::Error) -> StrategyError {
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        let refused = self.at(error.span().unwrap_or(0..0), &message);
        match message {
            _ if message.contains("missing field `severity`") => {
                refused.hint("add severity = \"info\", \"warning\" or \"critical\"")
            }
            _ if message.contains("missing field `limits`") => {
                refused.hint("add limits = { lcl = …, ucl = … } or limits = { baseline = 30 }")
            }
            _ if message.contains("missing field `rules`") => {
                refused.hint("add rules = [{ rule = \"limits\", severity = \"warning\" }]")
            }
            _ if message.contains("missing field `tools`") => {
                refused.hint("add tools = [\"*\"] for all tools")
            }
            _ if message.contains("duplicate key") => refused.hint("each key stands once in its table"),
            _ => refused,
        }
    }

    fn group(&self, raw: &Spanned<RawGroup>) -> Read<(Group, GroupMeaning)> {
        let RawGroup { tools, chambers, chart } = raw.get_ref();
        let tools = self.patterns(tools)?;
        let chambers = match chambers {
            Some(patterns) => self.patterns(patterns)?,
            None => vec![self.pattern("*", 0..0)?],
        };
        if chart.is_empty() {
            return Err(self.at(raw.span(), "this group has no chart").hint("add [[group.chart]] below it"));
        }
        let (mut charts, mut meanings) = (Vec::<Arc<Chart>>::new(), Vec::new());
        for raw in chart {
            let name = &raw.get_ref().name;
            if charts.iter().any(|known| *known.name == **name.get_ref()) {
                let message = format!("the group has two charts named {}", name.get_ref());
                return Err(self.at(name.span(), message).hint("a name stands for one chart"));
            }
            let (chart, meaning) = self.chart(raw.get_ref())?;
            charts.push(Arc::new(chart));
            meanings.push(meaning);
        }
        let texts = |patterns: &[Pattern]| patterns.iter().map(|one| one.as_str().to_owned()).collect();
        let meaning = GroupMeaning { tools: texts(&tools), chambers: texts(&chambers), charts: meanings };
        Ok((Group { tools, chambers, charts }, meaning))
    }

    fn patterns(&self, raw: &Spanned<Vec<Spanned<String>>>) -> Read<Vec<Pattern>> {
        if raw.get_ref().is_empty() {
            return Err(self
                .at(raw.span(), "an empty list matches nothing")
                .hint("write [\"*\"] to match everything"));
        }
        raw.get_ref().iter().map(|one| self.pattern(one.get_ref(), one.span())).collect()
    }

    fn pattern(&self, text: &str, span: Range<usize>) -> Read<Pattern> {
        Pattern::parse(text).map_err(|error| {
            self.at(span, format!("{text:?} matches no name: {error}"))
                .hint("in patterns * stands for any characters and ? for one")
        })
    }

    fn chart(&self, raw: &RawChart) -> Read<(Chart, ChartMeaning)> {
        let RawChart { name, equation, sides, limits, rules } = raw;
        let sides = *sides;
        names::check(name.get_ref()).map_err(|error| self.at(name.span(), error.to_string()))?;
        let parsed = Equation::parse(equation.get_ref()).map_err(|error| self.equation(equation, error))?;
        let (limits, limits_meaning) = self.limits(limits, sides)?;
        let (rules, rules_meaning) = self.rules(rules, sides)?;
        let meaning = ChartMeaning {
            name: name.get_ref().clone(),
            equation: canonical(equation.get_ref()),
            sides,
            limits: limits_meaning,
            rules: rules_meaning,
        };
        let chart = Chart {
            name: name.get_ref().as_str().into(),
            equation: parsed,
            sides,
            limits,
            rules,
            definition: meaning.definition(),
        };
        Ok((chart, meaning))
    }

    /// An error inside an equation, told by its place in the file.
    fn equation(&self, equation: &Spanned<String>, error: EquationError) -> StrategyError {
        let content = equation.get_ref();
        let before: usize =
            content.split_inclusive('\n').take(error.line - 1).map(|line| line.chars().count()).sum();
        let at = place::in_file(self.0, equation.span(), before + error.column - 1);
        let message = format!("in the equation: {}", error.message);
        let refused = self.at(at..at + 1, message);
        match error.hint {
            Some(hint) => refused.hint(hint),
            None => refused,
        }
    }

    pub(super) fn number(&self, value: Option<&Spanned<f64>>) -> Read<Option<f64>> {
        match value {
            Some(value) if !value.get_ref().is_finite() || value.get_ref().abs() > LARGEST => {
                let message = format!("{} is not a number that can be used", value.get_ref());
                Err(self.at(value.span(), message).hint("it must lie between -1e100 and 1e100"))
            }
            // Zero has two signs and one meaning.
            value => Ok(value.map(|value| *value.get_ref() + 0.0)),
        }
    }

    pub(super) fn count(
        &self,
        value: Option<&Spanned<i64>>,
        range: std::ops::RangeInclusive<u64>,
        what: &str,
    ) -> Read<Option<u64>> {
        let Some(value) = value else { return Ok(None) };
        match u64::try_from(*value.get_ref()).ok().filter(|count| range.contains(count)) {
            Some(count) => Ok(Some(count)),
            None => {
                let message =
                    format!("{what} is {} to {}, not {}", range.start(), range.end(), value.get_ref());
                Err(self.at(value.span(), message))
            }
        }
    }
}

/// Beyond this squares would overflow.
const LARGEST: f64 = 1e100;
