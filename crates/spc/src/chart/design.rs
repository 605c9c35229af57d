//! What a chart is: its kind, how its limits come about, which rules judge it, and what it takes.

use serde::{Deserialize, Serialize};

use crate::constants::{Constants, ConstantsError};
use crate::rules::{Rule, Sides};

/// The kinds of charts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Individual values, with the moving range as companion.
    Imr,
    /// Means of subgroups, with their ranges as companion.
    XbarR,
    /// Means of subgroups, with their standard deviations as companion.
    XbarS,
    /// Exponentially weighted moving average of individual values.
    Ewma {
        /// Weight of the newest value, above 0 and up to 1.
        lambda: f64,
        /// The limits every point would have after a long time, instead of each point's own.
        asymptotic: bool,
    },
    /// Tabular cumulative sums of individual values, two-sided.
    Cusum {
        /// Allowance (half the shift to find), in σ.
        k: f64,
        /// Decision interval, in σ.
        h: f64,
    },
    /// Proportion of defectives; sizes may differ.
    P,
    /// Number of defectives.
    Np,
    /// Number of defects on units of one size.
    C,
    /// Defects per unit; sizes may differ.
    U,
    /// Hotelling's T² of individual vectors.
    T2 {
        /// Chance of a false alarm per point.
        alpha: f64,
    },
}

impl Kind {
    /// Its name in results and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Imr => "imr",
            Self::XbarR => "xbar-r",
            Self::XbarS => "xbar-s",
            Self::Ewma { .. } => "ewma",
            Self::Cusum { .. } => "cusum",
            Self::P => "p",
            Self::Np => "np",
            Self::C => "c",
            Self::U => "u",
            Self::T2 { .. } => "t2",
        }
    }

    /// Whether it takes subgroups.
    pub fn is_grouped(self) -> bool {
        matches!(self, Self::XbarR | Self::XbarS)
    }

    /// Whether it takes counts.
    pub fn is_count(self) -> bool {
        matches!(self, Self::P | Self::Np | Self::C | Self::U)
    }

    /// Whether its points are independent and so may be judged by run rules.
    fn takes_run_rules(self) -> bool {
        !matches!(self, Self::Ewma { .. } | Self::Cusum { .. } | Self::T2 { .. })
    }
}

/// Limits that a person has set.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fixed {
    /// Lower limit.
    pub lcl: Option<f64>,
    /// Upper limit.
    pub ucl: Option<f64>,
}

/// Everything that defines a chart besides its data.
///
/// ```
/// use phalanx_spc::chart::{Design, Kind};
/// let design = Design { target: Some(50.0), sd: Some(2.0), ..Design::new(Kind::Imr) };
/// assert!(design.check().is_ok());
/// assert!(!design.needs_baseline());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Design {
    /// Which chart.
    pub kind: Kind,
    /// How many σ from the centre the limits are (3). Not used by CUSUM (`h`) and T² (`alpha`).
    pub sigmas: f64,
    /// On which sides the chart warns.
    pub sides: Sides,
    /// Where d2, d3 and c4 come from.
    pub constants: Constants,
    /// Median and MAD (or medians of ranges or standard deviations) instead of means.
    pub robust: bool,
    /// The centre, where it is known: a mean, or the p, np, c or u to hold.
    pub target: Option<f64>,
    /// σ of a single value, where it is known.
    pub sd: Option<f64>,
    /// Limits set by a person; individuals only.
    pub fixed: Option<Fixed>,
    /// Leave points beyond the limits out of the baseline and estimate again, until none is.
    pub exclude: bool,
    /// What judges the points.
    pub rules: Vec<Rule>,
}

/// A design that cannot work.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum DesignError {
    #[error("{name} must be {wanted}, not {found}")]
    Number { name: &'static str, wanted: &'static str, found: f64 },
    #[error("{option} does not apply to the {chart} chart: {why}")]
    DoesNotApply { option: &'static str, chart: &'static str, why: &'static str },
    #[error("the lower limit {lcl} must be below the upper limit {ucl}")]
    LimitsCross { lcl: f64, ucl: f64 },
    #[error("fixed limits need at least one limit")]
    NoLimit,
    #[error(
        "rule {0} needs to know the centre and σ; with one fixed limit, give the target and the standard deviation too"
    )]
    NoZones(Rule),
    #[error("a baseline needs at least {least} and at most {most} points, not {found}")]
    Baseline { least: u64, most: u64, found: u64 },
    #[error("the {0} chart needs a baseline to learn from, or its target{1}")]
    NeedsBaseline(&'static str, &'static str),
}

/// A sample that a chart cannot take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SampleError {
    #[error("{0} is not a usable number (finite, between -1e100 and 1e100)")]
    NotUsable(String),
    #[error("the {chart} chart takes {wanted}")]
    WrongShape { chart: String, wanted: String },
    #[error("{0}")]
    Group(String),
    #[error("the count {0} is not a whole number of 0 or more")]
    Count(f64),
    #[error("the size {0} is not above 0")]
    Size(f64),
    #[error("a sample of {size} items is not a whole number; the {chart} chart counts items")]
    Items { chart: String, size: f64 },
    #[error("{count} defectives are more than the {size} items of the sample")]
    MoreThanAll { count: f64, size: f64 },
    #[error("{found} values, where the chart has {wanted} variables")]
    Dimension { wanted: usize, found: usize },
}

impl From<ConstantsError> for SampleError {
    fn from(error: ConstantsError) -> Self {
        Self::Group(error.to_string())
    }
}

/// What a chart takes at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sample {
    /// A value (individuals, EWMA, CUSUM).
    Value(f64),
    /// A subgroup (X-bar charts).
    Group(Vec<f64>),
    /// A count of defectives or defects, and how many items or units were looked at (p, np, c, u; for c the size
    /// does not matter).
    Count {
        /// Defectives or defects.
        count: f64,
        /// Items or units.
        size: f64,
    },
    /// One value of each variable (T²).
    Vector(Vec<f64>),
}

/// Beyond this squares would overflow.
const LARGEST: f64 = 1e100;
/// More variables than anybody reads a T² of.
const MOST_VARIABLES: usize = 64;
/// A subgroup larger than this is not a subgroup.
const LARGEST_GROUP: usize = 10_000;

impl Design {
    /// The usual design of a kind: limits at 3 σ on both sides, exact constants, learned from a baseline, judged by
    /// the limits.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            sigmas: 3.0,
            sides: Sides::Both,
            constants: Constants::Exact,
            robust: false,
            target: None,
            sd: None,
            fixed: None,
            exclude: false,
            rules: vec![Rule::Limits],
        }
    }

    /// Whether centre or σ must be learned from a baseline.
    pub fn needs_baseline(&self) -> bool {
        match self.kind {
            Kind::T2 { .. } => true,
            _ if self.fixed.is_some() => false,
            kind if kind.is_count() => self.target.is_none(),
            _ => self.target.is_none() || self.sd.is_none(),
        }
    }

    /// Refuses what cannot work, with the number and the reason.
    pub fn check(&self) -> Result<(), DesignError> {
        let positive = |name, found: f64| {
            if found.is_finite() && found > 0.0 && found <= LARGEST {
                return Ok(());
            }
            Err(DesignError::Number { name, wanted: "a number above 0", found })
        };
        positive("the number of sigmas", self.sigmas)?;
        self.sd.map_or(Ok(()), |sd| positive("the standard deviation", sd))?;
        if let Some(found) = self.target.filter(|target| !usable(*target)) {
            return Err(DesignError::Number { name: "the target", wanted: "a finite number", found });
        }
        match self.kind {
            Kind::Ewma { lambda, .. } if !(lambda > 0.0 && lambda <= 1.0) => {
                let wanted = "above 0 and at most 1";
                return Err(DesignError::Number { name: "lambda", wanted, found: lambda });
            }
            Kind::Cusum { k, .. } if !(k.is_finite() && (0.0..=LARGEST).contains(&k)) => {
                return Err(DesignError::Number { name: "k", wanted: "a number of 0 or more", found: k });
            }
            Kind::Cusum { h, .. } => positive("h", h)?,
            Kind::T2 { alpha } if !(alpha > 0.0 && alpha < 1.0) => {
                return Err(DesignError::Number { name: "alpha", wanted: "between 0 and 1", found: alpha });
            }
            _ => {}
        }
        self.check_count_target()?;
        self.check_options()?;
        self.check_fixed()?;
        match self.rules.iter().find(|rule| rule.needs_zones()) {
            Some(&rule) if self.fixed.is_some() && self.zones_of_fixed().is_none() => {
                Err(DesignError::NoZones(rule))
            }
            _ => Ok(()),
        }
    }

    fn check_count_target(&self) -> Result<(), DesignError> {
        let Some(found) = self.target.filter(|_| self.kind.is_count()) else { return Ok(()) };
        let (name, wanted, fits) = match self.kind {
            Kind::P | Kind::Np => ("the target proportion", "between 0 and 1", found > 0.0 && found < 1.0),
            _ => ("the target rate", "a number above 0", found > 0.0),
        };
        if fits { Ok(()) } else { Err(DesignError::Number { name, wanted, found }) }
    }

    fn check_options(&self) -> Result<(), DesignError> {
        let chart = self.kind.name();
        let refuse = |option, why| Err(DesignError::DoesNotApply { option, chart, why });
        let is_t2 = matches!(self.kind, Kind::T2 { .. });
        if self.robust && (self.kind.is_count() || is_t2) {
            return refuse("the robust estimator", "its spread follows from its centre, or is a covariance");
        }
        if is_t2 && (self.target.is_some() || self.sd.is_some() || self.sides != Sides::Both) {
            return refuse("a target, standard deviation or side", "T² has no direction; it learns a vector");
        }
        if self.kind.is_count() && self.sd.is_some() {
            return refuse("the standard deviation", "it follows from the centre");
        }
        if self.fixed.is_some() && self.kind != Kind::Imr {
            return refuse("a fixed limit", "fixed limits are for individual values");
        }
        let only_limits = self.rules.iter().all(|rule| *rule == Rule::Limits);
        if !self.kind.takes_run_rules() && !only_limits {
            return refuse(
                "a run rule",
                "its points hang together or have no sides, so only its own limits are evidence",
            );
        }
        Ok(())
    }

    fn check_fixed(&self) -> Result<(), DesignError> {
        let Some(Fixed { lcl, ucl }) = self.fixed else { return Ok(()) };
        for (name, limit) in [("the lower limit", lcl), ("the upper limit", ucl)] {
            if let Some(found) = limit.filter(|limit| !usable(*limit)) {
                return Err(DesignError::Number { name, wanted: "a finite number", found });
            }
        }
        match (lcl, ucl) {
            (None, None) => Err(DesignError::NoLimit),
            (Some(lcl), Some(ucl)) if lcl >= ucl => Err(DesignError::LimitsCross { lcl, ucl }),
            _ => Ok(()),
        }
    }

    /// Centre and σ that fixed limits imply, where they do: the middle between two limits, or the distance of a
    /// limit from the target.
    pub(crate) fn zones_of_fixed(&self) -> Option<(f64, f64)> {
        let Fixed { lcl, ucl } = self.fixed?;
        let center = self.target.or_else(|| Some(lcl? + (ucl? - lcl?) / 2.0))?;
        let sigma = self.sd.or_else(|| {
            let reach = match (lcl, ucl) {
                (Some(lcl), Some(ucl)) => (ucl - lcl) / 2.0,
                (Some(limit), None) | (None, Some(limit)) => (limit - center).abs(),
                (None, None) => return None,
            };
            Some(reach / self.sigmas)
        })?;
        (sigma > 0.0).then_some((center, sigma))
    }

    /// Refuses a sample that this chart cannot take.
    pub fn check_sample(&self, sample: &Sample) -> Result<(), SampleError> {
        let numbers = |values: &[f64]| match values.iter().find(|value| !usable(**value)) {
            Some(value) => Err(SampleError::NotUsable(value.to_string())),
            None => Ok(()),
        };
        let wrong = |wanted: &str| {
            Err(SampleError::WrongShape { chart: self.kind.name().to_owned(), wanted: wanted.to_owned() })
        };
        match (self.kind, sample) {
            (Kind::Imr | Kind::Ewma { .. } | Kind::Cusum { .. }, Sample::Value(value)) => numbers(&[*value]),
            (Kind::XbarR | Kind::XbarS, Sample::Group(values)) => {
                if values.len() > LARGEST_GROUP {
                    return Err(SampleError::Group(format!("a subgroup has at most {LARGEST_GROUP} values")));
                }
                if self.kind == Kind::XbarR {
                    self.constants.range(values.len())?;
                } else {
                    self.constants.deviation(values.len())?;
                }
                numbers(values)
            }
            (Kind::P | Kind::Np | Kind::C | Kind::U, &Sample::Count { count, size }) => {
                numbers(&[count, size])?;
                self.check_count(count, size)
            }
            (Kind::T2 { .. }, Sample::Vector(values)) => {
                if values.is_empty() || values.len() > MOST_VARIABLES {
                    return wrong(&format!("1 to {MOST_VARIABLES} variables"));
                }
                numbers(values)
            }
            (Kind::Imr | Kind::Ewma { .. } | Kind::Cusum { .. }, _) => wrong("one value at a time"),
            (Kind::XbarR | Kind::XbarS, _) => wrong("a subgroup at a time"),
            (Kind::P | Kind::Np | Kind::C | Kind::U, _) => wrong("a count and a size at a time"),
            (Kind::T2 { .. }, _) => wrong("one value of each variable at a time"),
        }
    }

    fn check_count(&self, count: f64, size: f64) -> Result<(), SampleError> {
        if count < 0.0 || count.fract() != 0.0 {
            return Err(SampleError::Count(count));
        }
        if size <= 0.0 {
            return Err(SampleError::Size(size));
        }
        if matches!(self.kind, Kind::P | Kind::Np) {
            if size.fract() != 0.0 {
                return Err(SampleError::Items { chart: self.kind.name().to_owned(), size });
            }
            if count > size {
                return Err(SampleError::MoreThanAll { count, size });
            }
        }
        Ok(())
    }
}

/// Whether a number can be squared and summed without losing it. Not for NaN and infinities.
pub(crate) fn usable(value: f64) -> bool {
    value.abs() <= LARGEST
}
