//! Limits from a baseline.

use phalanx_spc::chart::{LearnError, Sample, learn as learn_model};
use phalanx_spc::rules::Sides;

use crate::record::Limits;
use crate::strategy::{Baseline, around};

/// Centre, σ and limits for single runs, and how many runs they come from (those left out do not count).
pub(super) fn learn(baseline: &Baseline, sides: Sides, values: &[f64]) -> Result<(Limits, u32), LearnError> {
    // A chart that never varies comes here with every run, and need not be estimated to know it.
    if baseline.design.sd.is_none() && values.windows(2).all(|pair| pair[0] == pair[1]) {
        return Err(LearnError::NoSpread);
    }
    let (samples, size): (Vec<Sample>, usize) = match baseline.subgroup {
        None => (values.iter().copied().map(Sample::Value).collect(), 1),
        Some(size) => (values.chunks_exact(size).map(|group| Sample::Group(group.to_vec())).collect(), size),
    };
    let learned = learn_model(&baseline.design, &samples)?;
    let (Some(center), Some(sigma)) = (learned.model.center, learned.model.sigma) else {
        return Err(LearnError::NoSpread);
    };
    let (lcl, ucl) = around(center, sigma, baseline.sigmas, sides);
    let used = (samples.len() - learned.excluded.len()) * size;
    Ok((Limits { center, lcl, ucl, sigma: Some(sigma) }, used as u32))
}
