//! `phalanx spc`: control charts of a CSV file, and equations on traces.

mod chart;
mod eval;
mod input;
mod picture;
mod plot;
mod report;
mod svg;

use std::process::ExitCode;

use clap::Subcommand;

/// Draws control charts, and evaluates indicators.
///
/// Files are CSV with a header. Limits are learned from the baseline (all points without one), unless the target and
/// the standard deviation are given.
#[derive(Subcommand)]
pub(crate) enum Spc {
    /// Individuals and moving range.
    Imr(chart::Imr),
    /// Means of subgroups, with their ranges.
    XbarR(chart::Subgroups),
    /// Means of subgroups, with their standard deviations.
    XbarS(chart::Subgroups),
    /// Exponentially weighted moving average.
    Ewma(chart::Ewma),
    /// Cumulative sums, tabular and two-sided.
    Cusum(chart::Cusum),
    /// Proportion of defectives; sizes may differ.
    P(chart::Sized),
    /// Number of defectives.
    Np(chart::Sized),
    /// Number of defects on units of one size.
    C(chart::Counted),
    /// Defects per unit; sizes may differ.
    U(chart::Sized),
    /// Hotelling's T² of several variables.
    T2(chart::T2),
    Eval(eval::Eval),
}

impl Spc {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        use phalanx_spc::chart::Kind;
        match self {
            Self::Imr(imr) => imr.run(),
            Self::XbarR(groups) => groups.run(Kind::XbarR),
            Self::XbarS(groups) => groups.run(Kind::XbarS),
            Self::Ewma(ewma) => ewma.run(),
            Self::Cusum(cusum) => cusum.run(),
            Self::P(counts) => counts.run(Kind::P),
            Self::Np(counts) => counts.run(Kind::Np),
            Self::C(counts) => counts.run(),
            Self::U(counts) => counts.run(Kind::U),
            Self::T2(t2) => t2.run(),
            Self::Eval(eval) => eval.run(),
        }
    }
}
