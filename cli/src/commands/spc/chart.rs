//! From arguments to a chart.

use std::fs;
use std::io::{self, Write as _};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};
use phalanx_spc::capability::Specification;
use phalanx_spc::chart::{ChartError, Design, Kind, analyse, analyse_capability};
use phalanx_spc::constants::Constants;
use phalanx_spc::rules::Rule;

use super::input::{Samples, Sheet};
use super::{report, svg};

/// What every chart takes.
#[derive(Args)]
struct Common {
    /// The file, CSV with a header.
    #[arg(long, value_name = "FILE")]
    csv: PathBuf,

    /// Points to learn the limits from, for example 1..25 (both included); all points without it.
    #[arg(long, value_name = "FROM..TO", value_parser = baseline)]
    baseline: Option<(u64, Option<u64>)>,

    /// Run rules: we, nelson, or Nelson's numbers (1,2,5); without it points beyond the limits.
    #[arg(long, value_name = "RULES", value_parser = rules)]
    rules: Option<Rules>,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,

    /// Write the chart as a picture.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What charts of measured values take.
#[derive(Args)]
struct Measured {
    /// The centre, where it is known.
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    target: Option<f64>,

    /// The standard deviation of a single value, where it is known.
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    sd: Option<f64>,

    /// Constants d2, d3, c4: at full precision, or as the printed tables have them.
    #[arg(long, default_value = "exact")]
    constants: ConstantsChoice,

    /// Medians instead of means: outliers in the baseline hardly matter.
    #[arg(long)]
    robust: bool,

    /// Upper specification limit, for capability.
    #[arg(long, value_name = "U", allow_negative_numbers = true)]
    usl: Option<f64>,

    /// Lower specification limit, for capability.
    #[arg(long, value_name = "L", allow_negative_numbers = true)]
    lsl: Option<f64>,
}

#[derive(Args)]
struct Width {
    /// How many standard deviations the limits are from the centre.
    #[arg(long, value_name = "K", default_value_t = 3.0, allow_negative_numbers = true)]
    sigmas: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum ConstantsChoice {
    Exact,
    Table,
}

/// A list that clap takes as one value.
#[derive(Clone)]
struct Rules(Vec<Rule>);

fn rules(text: &str) -> Result<Rules, String> {
    Rule::list(text).map(Rules).map_err(|error| error.to_string())
}

fn baseline(text: &str) -> Result<(u64, Option<u64>), String> {
    let wrong = || format!("`{text}` is no range of points; write for example 1..25");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<u64>().ok().filter(|number| *number > 0).ok_or_else(wrong);
    let from = if from.trim().is_empty() { 1 } else { number(from)? };
    let to = if to.trim().is_empty() { None } else { Some(number(to)?) };
    if to.is_some_and(|to| to < from) {
        return Err(wrong());
    }
    Ok((from, to))
}

impl Measured {
    fn design(&self, kind: Kind) -> Design {
        let constants = match self.constants {
            ConstantsChoice::Exact => Constants::Exact,
            ConstantsChoice::Table => Constants::Table,
        };
        Design { constants, robust: self.robust, target: self.target, sd: self.sd, ..Design::new(kind) }
    }

    fn specification(&self) -> anyhow::Result<Option<Specification>> {
        if self.usl.is_none() && self.lsl.is_none() {
            return Ok(None);
        }
        Ok(Some(Specification::new(self.lsl, self.usl)?))
    }
}

impl Common {
    fn run(
        &self,
        design: Design,
        specification: Option<Specification>,
        read: impl FnOnce(&Sheet) -> anyhow::Result<Samples>,
    ) -> anyhow::Result<ExitCode> {
        let rules = self.rules.clone().map_or_else(|| design.rules.clone(), |rules| rules.0);
        let design = Design { rules, ..design };
        design.check()?;
        let Samples { samples, lines } = read(&Sheet::read(&self.csv)?)?;
        let range = self
            .baseline
            .map(|(from, to)| -> RangeInclusive<u64> { from..=to.unwrap_or(samples.len() as u64) });
        let chart = match specification {
            Some(specification) => analyse_capability(&design, &samples, range, specification),
            None => analyse(&design, &samples, range),
        };
        let chart = chart.map_err(|error| match error {
            ChartError::Sample { index, error } => {
                let line = lines.get(index as usize - 1).copied().unwrap_or_default();
                anyhow!("{}, line {line}: {error}", self.csv.display())
            }
            error => anyhow!("{}: {error}", self.csv.display()),
        })?;
        if let Some(path) = &self.svg {
            fs::write(path, svg::draw(&chart)).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let text = if self.json { serde_json::to_string(&chart)? } else { report::text(&chart) };
        writeln!(io::stdout(), "{}", text.trim_end())?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct Imr {
    /// The column of the values, one a row.
    #[arg(long, value_name = "X")]
    column: String,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    measured: Measured,
    #[command(flatten)]
    width: Width,
}

impl Imr {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let design = Design { sigmas: self.width.sigmas, ..self.measured.design(Kind::Imr) };
        self.common.run(design, self.measured.specification()?, |sheet| sheet.values(&self.column))
    }
}

#[derive(Args)]
pub(crate) struct Subgroups {
    /// The column that says to which subgroup a row belongs.
    #[arg(long, value_name = "G")]
    group: String,
    /// The column of the values.
    #[arg(long, value_name = "V")]
    value: String,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    measured: Measured,
    #[command(flatten)]
    width: Width,
}

impl Subgroups {
    pub(crate) fn run(self, kind: Kind) -> anyhow::Result<ExitCode> {
        let design = Design { sigmas: self.width.sigmas, ..self.measured.design(kind) };
        let read = |sheet: &Sheet| sheet.groups(&self.group, &self.value);
        self.common.run(design, self.measured.specification()?, read)
    }
}

#[derive(Args)]
pub(crate) struct Ewma {
    /// The column of the values, one a row.
    #[arg(long, value_name = "X")]
    column: String,
    /// Weight of the newest value, above 0 and up to 1.
    #[arg(long, value_name = "L", default_value_t = 0.2, allow_negative_numbers = true)]
    lambda: f64,
    /// The limits every point would have after a long time, instead of each point's own.
    #[arg(long)]
    asymptotic: bool,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    measured: Measured,
    #[command(flatten)]
    width: Width,
}

impl Ewma {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let kind = Kind::Ewma { lambda: self.lambda, asymptotic: self.asymptotic };
        let design = Design { sigmas: self.width.sigmas, ..self.measured.design(kind) };
        self.common.run(design, self.measured.specification()?, |sheet| sheet.values(&self.column))
    }
}

#[derive(Args)]
pub(crate) struct Cusum {
    /// The column of the values, one a row.
    #[arg(long, value_name = "X")]
    column: String,
    /// Allowance in σ: half the shift that is to be found.
    #[arg(long, value_name = "K", default_value_t = 0.5, allow_negative_numbers = true)]
    k: f64,
    /// Decision interval in σ.
    #[arg(long, value_name = "H", default_value_t = 5.0, allow_negative_numbers = true)]
    h: f64,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    measured: Measured,
}

impl Cusum {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let design = self.measured.design(Kind::Cusum { k: self.k, h: self.h });
        self.common.run(design, self.measured.specification()?, |sheet| sheet.values(&self.column))
    }
}

/// What charts of counts take besides.
#[derive(Args)]
struct Rate {
    /// The proportion (p, np), count (c) or rate (u) to hold, where it is known.
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    target: Option<f64>,
}

#[derive(Args)]
pub(crate) struct Sized {
    /// The column of the counts.
    #[arg(long, value_name = "C")]
    count: String,
    /// The column of the sample sizes.
    #[arg(long, value_name = "N")]
    size: String,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    rate: Rate,
    #[command(flatten)]
    width: Width,
}

impl Sized {
    pub(crate) fn run(self, kind: Kind) -> anyhow::Result<ExitCode> {
        let design = Design { sigmas: self.width.sigmas, target: self.rate.target, ..Design::new(kind) };
        self.common.run(design, None, |sheet| sheet.counts(&self.count, Some(&self.size)))
    }
}

#[derive(Args)]
pub(crate) struct Counted {
    /// The column of the counts.
    #[arg(long, value_name = "C")]
    count: String,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    rate: Rate,
    #[command(flatten)]
    width: Width,
}

impl Counted {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let design = Design { sigmas: self.width.sigmas, target: self.rate.target, ..Design::new(Kind::C) };
        self.common.run(design, None, |sheet| sheet.counts(&self.count, None))
    }
}

#[derive(Args)]
pub(crate) struct T2 {
    /// The columns of the variables.
    #[arg(long, value_name = "A,B,C", value_delimiter = ',', required = true)]
    columns: Vec<String>,
    /// Chance of a false alarm per point.
    #[arg(long, default_value_t = 0.0027, allow_negative_numbers = true)]
    alpha: f64,
    #[command(flatten)]
    common: Common,
}

impl T2 {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let design = Design::new(Kind::T2 { alpha: self.alpha });
        self.common.run(design, None, |sheet| sheet.vectors(&self.columns))
    }
}
