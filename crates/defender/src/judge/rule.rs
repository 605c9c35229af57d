//! One value against the rules of its chart.

use phalanx_spc::chart::{Carry, Estimator, Model, Statistic};
use phalanx_spc::rules::{Mark, Rule, Sides, newest};

use crate::record::Limits;
use crate::strategy::{Chart, ChartRule, Check};

/// What broke a rule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    /// The limit that was broken, where the rule has one.
    pub(super) limit: Option<f64>,
    /// What was held against it, where that is not the value itself.
    pub(super) statistic: Option<f64>,
    /// Whether it is the upper one.
    pub(super) is_upper: bool,
}

/// What EWMA and CUSUM rules carry from point to point: the rule's definition, and its numbers.
pub(super) type Carries = Vec<(u64, Vec<f64>)>;

/// A value with what came before it.
pub(super) struct Window<'a> {
    sides: Sides,
    limits: &'a Limits,
    marks: Vec<Mark>,
    model: Model,
    carried: Carries,
    carries: &'a mut Carries,
}

impl<'a> Window<'a> {
    /// `past` is the oldest first and was judged by the same limits.
    pub(super) fn new(
        chart: &Chart,
        limits: &'a Limits,
        past: &[f64],
        value: f64,
        carries: &'a mut Carries,
    ) -> Self {
        let longest = chart.rules.iter().map(|rule| reach(&rule.check)).max().unwrap_or(1);
        let past = &past[past.len().saturating_sub(longest - 1)..];
        let sigma = limits.sigma.unwrap_or_default();
        let mark = |value: &f64| Mark::new(*value, limits.center, sigma);
        Self {
            sides: chart.sides,
            limits,
            marks: past.iter().chain([&value]).map(mark).collect(),
            model: Model {
                center: Some(limits.center),
                sigma: limits.sigma,
                estimator: Estimator::Given,
                freedom: None,
                vector: None,
            },
            // What is not asked for again belongs to a rule that is no more.
            carried: std::mem::take(carries),
            carries,
        }
    }

    /// Whether the newest value breaks a rule, and how. Each rule is asked once.
    pub(super) fn breaks(&mut self, rule: &ChartRule) -> Option<Found> {
        match &rule.check {
            Check::Run(run) => self.run(*run),
            Check::Trend(points) => self.trend(*points),
            Check::Ewma(_) | Check::Cusum(_) => self.carry(rule),
        }
    }

    fn value(&self) -> f64 {
        self.marks[self.marks.len() - 1].statistic
    }

    fn run(&self, rule: Rule) -> Option<Found> {
        let Limits { lcl, ucl, .. } = *self.limits;
        newest(&[rule], self.sides, &self.marks, lcl, ucl).first()?;
        let value = self.value();
        let limit = match rule {
            Rule::Limits | Rule::Nelson1 | Rule::We1 => ucl.filter(|ucl| value > *ucl).or(lcl),
            _ => None,
        };
        Some(Found { limit, statistic: None, is_upper: limit.is_some_and(|limit| value > limit) })
    }

    fn trend(&self, points: usize) -> Option<Found> {
        let last = &self.marks[self.marks.len().checked_sub(points)?..];
        let steadily = |rises: bool| {
            last.windows(2).all(|pair| match rises {
                true => pair[1].statistic > pair[0].statistic,
                false => pair[1].statistic < pair[0].statistic,
            })
        };
        let (up, down) = (self.sides != Sides::Lower, self.sides != Sides::Upper);
        let (rises, falls) = (up && steadily(true), down && steadily(false));
        (rises || falls).then_some(Found { limit: None, statistic: None, is_upper: rises })
    }

    fn carry(&mut self, rule: &ChartRule) -> Option<Found> {
        let design = rule.check.carried()?;
        let stored = self.carried.iter().find(|(definition, _)| *definition == rule.definition);
        let mut carry = stored
            .and_then(|(_, numbers)| Carry::of_numbers(design.kind, numbers))
            .unwrap_or_else(|| Carry::start(design, &self.model));
        let point = carry.place(design, &self.model, self.value());
        self.carries.push((rule.definition, carry.numbers()));
        let point = point.ok().filter(phalanx_spc::chart::Point::is_beyond)?;
        let (statistic, limit, is_upper) = match point.statistic {
            Statistic::One(average) => match point.ucl.filter(|ucl| average > *ucl) {
                Some(ucl) => (average, Some(ucl), true),
                None => (average, point.lcl, false),
            },
            Statistic::Sums { high, low } => (high.max(low), point.ucl, high >= low),
        };
        Some(Found { limit, statistic: Some(statistic), is_upper })
    }
}

/// How many points a rule looks at.
fn reach(check: &Check) -> usize {
    match check {
        Check::Run(rule) => rule.window(),
        Check::Trend(points) => *points,
        Check::Ewma(_) | Check::Cusum(_) => 1,
    }
}
