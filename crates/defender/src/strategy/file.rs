//! Reads a strategy file.

use std::ops::Range;
use std::sync::Arc;

use phalanx_cluster::names;
use phalanx_spc::chart::{Design, Fixed, Kind, Monitor};
use phalanx_spc::equation::{Equation, EquationError};
use phalanx_spc::rules::{Rule, Sides};
use serde::Deserialize;
use toml::Spanned;

use super::chart::{
    Baseline, Chart, ChartMeaning, ChartRule, Check, LimitSource, LimitsMeaning, RuleMeaning, canonical,
};
use super::error::StrategyError;
use super::pattern::Pattern;
use super::place;
use super::{Group, GroupMeaning};
use crate::record::{Limits, Severity};

/// The largest file, in bytes.
pub const MAX_FILE: usize = 1 << 20;
/// The longest baseline: all of its values are kept until it is complete.
pub const MAX_BASELINE: u64 = 1000;
const LEAST_BASELINE: u64 = 5;
const LARGEST_SUBGROUP: u64 = 25;
/// A trend longer than this would need more history than is kept.
const LONGEST_TREND: u64 = 50;

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLimits {
    lcl: Option<Spanned<f64>>,
    ucl: Option<Spanned<f64>>,
    center: Option<Spanned<f64>>,
    sigma: Option<Spanned<f64>>,
    sigmas: Option<Spanned<f64>>,
    baseline: Option<Spanned<i64>>,
    subgroup: Option<Spanned<i64>>,
    robust: Option<Spanned<bool>>,
    exclude: Option<Spanned<bool>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRule {
    rule: Spanned<String>,
    severity: Severity,
    lambda: Option<Spanned<f64>>,
    sigmas: Option<Spanned<f64>>,
    k: Option<Spanned<f64>>,
    h: Option<Spanned<f64>>,
    points: Option<Spanned<i64>>,
}

type Read<T> = Result<T, StrategyError>;

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

    fn at(&self, span: Range<usize>, message: impl Into<String>) -> StrategyError {
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

    fn limits(&self, raw: &Spanned<RawLimits>, sides: Sides) -> Read<(LimitSource, LimitsMeaning)> {
        let limits = raw.get_ref();
        let meaning = LimitsMeaning {
            lcl: self.number(limits.lcl.as_ref())?,
            ucl: self.number(limits.ucl.as_ref())?,
            center: self.number(limits.center.as_ref())?,
            sigma: self.number(limits.sigma.as_ref())?,
            sigmas: self.number(limits.sigmas.as_ref())?.unwrap_or(3.0),
            baseline: self.count(
                limits.baseline.as_ref(),
                LEAST_BASELINE..=MAX_BASELINE,
                "a baseline of runs",
            )?,
            subgroup: self.count(limits.subgroup.as_ref(), 2..=LARGEST_SUBGROUP, "the size of a subgroup")?,
            robust: limits.robust.as_ref().is_some_and(|robust| *robust.get_ref()),
            exclude: limits.exclude.as_ref().is_some_and(|exclude| *exclude.get_ref()),
        };
        let design = Design {
            sides,
            sigmas: meaning.sigmas,
            target: meaning.center,
            sd: meaning.sigma,
            robust: meaning.robust,
            exclude: meaning.exclude,
            ..Design::new(Kind::Imr)
        };
        let source = match meaning.baseline {
            Some(runs) => self.learned(raw, &meaning, design, runs)?,
            None => self.fixed(raw, &meaning, design)?,
        };
        Ok((source, meaning))
    }

    fn learned(
        &self,
        raw: &Spanned<RawLimits>,
        meaning: &LimitsMeaning,
        design: Design,
        runs: u64,
    ) -> Read<LimitSource> {
        let limits = raw.get_ref();
        if let Some(fixed) = limits.lcl.as_ref().or(limits.ucl.as_ref()) {
            return Err(self
                .at(fixed.span(), "limits are either set or learned from a baseline, not both")
                .hint("take out the limit, or the baseline"));
        }
        if let Some(sigma) = limits.sigma.as_ref().filter(|_| meaning.center.is_some()) {
            return Err(self
                .at(sigma.span(), "with center and sigma there is nothing to learn")
                .hint("take out the baseline, or one of them"));
        }
        if let (Some(size), Some(place)) = (meaning.subgroup, &limits.subgroup)
            && (!runs.is_multiple_of(size) || runs / size < 2)
        {
            let message = format!("a baseline of {runs} runs has no whole number of subgroups of {size}");
            return Err(self
                .at(place.span(), message)
                .hint(format!("take for example baseline = {}", (runs / size).max(1) * size + size)));
        }
        let kind = if meaning.subgroup.is_some() { Kind::XbarS } else { Kind::Imr };
        let design = Design { kind, ..design };
        design.check().map_err(|error| self.at(raw.span(), error.to_string()))?;
        Ok(LimitSource::Learned(Baseline {
            runs: runs as usize,
            subgroup: meaning.subgroup.map(|size| size as usize),
            sigmas: meaning.sigmas,
            design,
        }))
    }

    fn fixed(&self, raw: &Spanned<RawLimits>, meaning: &LimitsMeaning, design: Design) -> Read<LimitSource> {
        let limits = raw.get_ref();
        let learning = [
            limits.subgroup.as_ref().map(|one| (one.span(), "subgroup")),
            limits.robust.as_ref().map(|one| (one.span(), "robust")),
            limits.exclude.as_ref().map(|one| (one.span(), "exclude")),
        ];
        if let Some((span, key)) = learning.into_iter().flatten().next() {
            return Err(self
                .at(span, format!("{key} says how limits are learned, and these are not"))
                .hint("add baseline = 30, or take it out"));
        }
        let LimitsMeaning { lcl, ucl, center, sigma, .. } = *meaning;
        let is_set = lcl.is_some() || ucl.is_some();
        if !is_set && (center.is_none() || sigma.is_none()) {
            return Err(self.at(raw.span(), "nothing says where the limits are").hint(
                "write lcl and ucl, or one of them and center, or center and sigma, or baseline = 30",
            ));
        }
        if is_set && center.is_none() && (lcl.is_none() || ucl.is_none()) {
            return Err(self
                .at(raw.span(), "with one limit nobody knows the centre line")
                .hint("add center = …"));
        }
        let one_sided =
            [(Sides::Upper, &limits.lcl, "above", "lcl"), (Sides::Lower, &limits.ucl, "below", "ucl")];
        for (side, limit, way, key) in one_sided {
            if let Some(limit) = limit.as_ref().filter(|_| design.sides == side) {
                return Err(self
                    .at(limit.span(), format!("a chart that warns only {way} has no {key}"))
                    .hint(format!("take out {key}, or sides")));
            }
        }
        if let Some(center) = center
            .filter(|center| lcl.is_some_and(|lcl| *center <= lcl) || ucl.is_some_and(|ucl| *center >= ucl))
        {
            return Err(self.at(raw.span(), format!("the centre {center} does not lie between the limits")));
        }
        let design = Design { fixed: is_set.then_some(Fixed { lcl, ucl }), ..design };
        let monitor = Monitor::fixed(design).map_err(|error| self.at(raw.span(), error.to_string()))?;
        let known = monitor.model().and_then(|model| model.center.zip(model.sigma));
        let Some((center, sigma)) = known else {
            return Err(self.at(raw.span(), "centre and σ do not follow from these limits").hint("add both"));
        };
        let design = monitor.design();
        let (lcl, ucl) = match is_set {
            true => (lcl, ucl),
            false => around(center, sigma, design.sigmas, design.sides),
        };
        Ok(LimitSource::Fixed(Limits { center, lcl, ucl, sigma: Some(sigma) }))
    }

    fn rules(
        &self,
        raw: &Spanned<Vec<Spanned<RawRule>>>,
        sides: Sides,
    ) -> Read<(Vec<ChartRule>, Vec<RuleMeaning>)> {
        let (mut rules, mut meanings) = (Vec::<ChartRule>::new(), Vec::new());
        for one in raw.get_ref() {
            let RawRule { rule: name, severity, .. } = one.get_ref();
            for (check, parameters) in self.checks(one, sides)? {
                if rules.iter().any(|known| known.check.name() == check.name()) {
                    let message = format!("the rule {} stands here twice", check.name());
                    return Err(self.at(name.span(), message).hint("a rule has one severity on a chart"));
                }
                let meaning = RuleMeaning { rule: check.name(), severity: *severity, parameters };
                rules.push(ChartRule { check, severity: *severity, definition: meaning.definition() });
                meanings.push(meaning);
            }
        }
        Ok((rules, meanings))
    }

    /// The rules that a name stands for, with their parameters.
    fn checks(&self, raw: &Spanned<RawRule>, sides: Sides) -> Read<Vec<(Check, Vec<f64>)>> {
        let rule = raw.get_ref();
        let RawRule { rule: name, lambda, sigmas, k, h, points, .. } = rule;
        let allowed: &[&str] = match name.get_ref().as_str() {
            "ewma" => &["lambda", "sigmas"],
            "cusum" => &["k", "h"],
            "trend" => &["points"],
            _ => &[],
        };
        let given = [
            ("lambda", lambda.as_ref().map(Spanned::span)),
            ("sigmas", sigmas.as_ref().map(Spanned::span)),
            ("k", k.as_ref().map(Spanned::span)),
            ("h", h.as_ref().map(Spanned::span)),
            ("points", points.as_ref().map(Spanned::span)),
        ];
        let stray = given
            .into_iter()
            .find_map(|(key, span)| span.filter(|_| !allowed.contains(&key)).map(|span| (key, span)));
        if let Some((key, span)) = stray {
            let message = format!("the rule {} has no {key}", name.get_ref());
            let hint = if allowed.is_empty() {
                "it has no parameters".to_owned()
            } else {
                format!("it has {}", allowed.join(" and "))
            };
            return Err(self.at(span, message).hint(hint));
        }
        // The centre and σ are put in when they are known; these stand in for them while the design is checked.
        let checked = |kind, sigmas| {
            let design = Design { sides, sigmas, target: Some(0.0), sd: Some(1.0), ..Design::new(kind) };
            design.check().map_err(|error| self.at(raw.span(), error.to_string()))?;
            Ok(design)
        };
        match name.get_ref().as_str() {
            "ewma" => {
                let lambda = self.number(lambda.as_ref())?.unwrap_or(0.2);
                let sigmas = self.number(sigmas.as_ref())?.unwrap_or(3.0);
                let design = checked(Kind::Ewma { lambda, asymptotic: false }, sigmas)?;
                Ok(vec![(Check::Ewma(design), vec![lambda, sigmas])])
            }
            "cusum" => {
                let k = self.number(k.as_ref())?.unwrap_or(0.5);
                let h = self.number(h.as_ref())?.unwrap_or(5.0);
                let design = checked(Kind::Cusum { k, h }, 3.0)?;
                Ok(vec![(Check::Cusum(design), vec![k, h])])
            }
            "trend" => {
                let points = self.count(points.as_ref(), 3..=LONGEST_TREND, "a trend of points")?.unwrap_or(6);
                Ok(vec![(Check::Trend(points as usize), vec![points as f64])])
            }
            "western-electric" => Ok(plain(&Rule::WESTERN_ELECTRIC)),
            "nelson" => Ok(plain(&Rule::NELSON)),
            one => match one.parse::<Rule>() {
                Ok(rule) => Ok(plain(&[rule])),
                Err(_) => Err(self.at(name.span(), format!("there is no rule `{one}`")).hint(
                    "rules are limits, western-electric (we-1 to we-4), nelson (nelson-1 to nelson-8), ewma, cusum and trend",
                )),
            },
        }
    }

    fn number(&self, value: Option<&Spanned<f64>>) -> Read<Option<f64>> {
        match value {
            Some(value) if !value.get_ref().is_finite() || value.get_ref().abs() > LARGEST => {
                let message = format!("{} is not a number that can be used", value.get_ref());
                Err(self.at(value.span(), message).hint("it must lie between -1e100 and 1e100"))
            }
            // Zero has two signs and one meaning.
            value => Ok(value.map(|value| *value.get_ref() + 0.0)),
        }
    }

    fn count(
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

fn plain(rules: &[Rule]) -> Vec<(Check, Vec<f64>)> {
    rules.iter().map(|&rule| (Check::Run(rule), Vec::new())).collect()
}

/// Limits so many σ around a centre, on the sides where the chart warns.
pub(crate) fn around(center: f64, sigma: f64, sigmas: f64, sides: Sides) -> (Option<f64>, Option<f64>) {
    let reach = sigmas * sigma;
    let (low, high) = (center - reach, center + reach);
    ((sides != Sides::Upper).then_some(low), (sides != Sides::Lower).then_some(high))
}
