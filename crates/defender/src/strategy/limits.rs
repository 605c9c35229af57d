//! Reads where the limits of a chart come from.

use phalanx_spc::chart::{Design, Fixed, Kind, Monitor};
use phalanx_spc::rules::Sides;
use serde::Deserialize;
use toml::Spanned;

use super::chart::{Baseline, LimitSource, LimitsMeaning};
use super::file::{Read, Reader};
use crate::record::Limits;

/// The longest baseline: all of its values are kept until it is complete.
pub const MAX_BASELINE: u64 = 1000;
const LEAST_BASELINE: u64 = 5;
const LARGEST_SUBGROUP: u64 = 25;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimits {
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

impl Reader<'_> {
    pub(super) fn limits(
        &self,
        raw: &Spanned<RawLimits>,
        sides: Sides,
    ) -> Read<(LimitSource, LimitsMeaning)> {
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
}

/// Limits so many σ around a centre, on the sides where the chart warns.
pub(crate) fn around(center: f64, sigma: f64, sigmas: f64, sides: Sides) -> (Option<f64>, Option<f64>) {
    let reach = sigmas * sigma;
    let (low, high) = (center - reach, center + reach);
    ((sides != Sides::Upper).then_some(low), (sides != Sides::Lower).then_some(high))
}
