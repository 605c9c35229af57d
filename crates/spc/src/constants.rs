//! The control-chart constants: d2, d3, c4 and the factors made of them.
//!
//! W is the range of n independent standard normal values, s their sample standard deviation:
//! `d2 = E[W]`, `d3 = sd(W)`, `c4 = E[s]`. They are computed here, not typed in: c4 by its recurrence, d2 and d3 by
//! integrating the distribution of the range.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::distribution::{chi_squared_quantile, normal, normal_density, root};

/// Where the constants come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Constants {
    /// Full precision.
    #[default]
    Exact,
    /// Three decimals (four for c4), as the tables of textbooks have them and tools that use those tables print.
    Table,
}

/// The largest subgroup of an R chart. Beyond a dozen values the range wastes information anyway: use S.
pub const LARGEST_RANGE: usize = 100;

/// The largest subgroup the printed tables know.
pub const LARGEST_TABLE: usize = 25;

/// Why there are no constants for a subgroup size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstantsError {
    /// One value has no spread.
    #[error(
        "a subgroup needs at least 2 values, this one has {0}; for single values use the individuals chart"
    )]
    TooSmall(usize),
    /// No range constants.
    #[error("ranges are used for up to {LARGEST_RANGE} values, this subgroup has {0}; use the X-bar/S chart")]
    TooLargeForRange(usize),
    /// No table.
    #[error(
        "the printed tables end at {LARGEST_TABLE} values, this subgroup has {0}; use the exact constants"
    )]
    TooLargeForTable(usize),
}

/// The constants of the range of n values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Mean of the relative range.
    pub d2: f64,
    /// Standard deviation of the relative range.
    pub d3: f64,
    /// `3 / (d2 √n)`: from the mean range to the limits of the means.
    pub a2: f64,
    /// `1 + 3 d3/d2`: from the mean range to its upper limit. The lower one is `max(0, 2 − D4)`, printed as D3.
    pub d4: f64,
    /// Median of the relative range, for the robust estimator.
    pub median: f64,
}

/// The constants of the standard deviation of n values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// Mean of the relative standard deviation.
    pub c4: f64,
    /// `3 / (c4 √n)`: from the mean standard deviation to the limits of the means.
    pub a3: f64,
    /// `1 + 3 √(1 − c4²)/c4`: from the mean standard deviation to its upper limit. The lower one is
    /// `max(0, 2 − B4)`, printed as B3.
    pub b4: f64,
    /// Median of the relative standard deviation, for the robust estimator.
    pub median: f64,
}

impl Constants {
    /// The constants of the range of `n` values.
    ///
    /// ```
    /// use phalanx_spc::constants::Constants;
    /// assert!((Constants::Exact.range(2).unwrap().d2 - 2.0 / std::f64::consts::PI.sqrt()).abs() < 1e-15);
    /// assert_eq!(Constants::Table.range(5).unwrap().a2, 0.577);
    /// ```
    pub fn range(self, n: usize) -> Result<Range, ConstantsError> {
        self.check(n)?;
        if n > LARGEST_RANGE {
            return Err(ConstantsError::TooLargeForRange(n));
        }
        let exact = range(n);
        Ok(match self {
            Self::Exact => exact,
            Self::Table => Range {
                d2: decimals(exact.d2, 3),
                d3: decimals(exact.d3, 3),
                a2: decimals(exact.a2, 3),
                d4: decimals(exact.d4, 3),
                median: decimals(exact.median, 3),
            },
        })
    }

    /// The constants of the standard deviation of `n` values.
    ///
    /// ```
    /// use phalanx_spc::constants::Constants;
    /// assert_eq!(Constants::Table.deviation(5).unwrap().c4, 0.94);
    /// ```
    pub fn deviation(self, n: usize) -> Result<Deviation, ConstantsError> {
        self.check(n)?;
        let exact = deviation(n);
        Ok(match self {
            Self::Exact => exact,
            Self::Table => Deviation {
                c4: decimals(exact.c4, 4),
                a3: decimals(exact.a3, 3),
                b4: decimals(exact.b4, 3),
                median: decimals(exact.median, 4),
            },
        })
    }

    fn check(self, n: usize) -> Result<(), ConstantsError> {
        match n {
            0 | 1 => Err(ConstantsError::TooSmall(n)),
            _ if self == Self::Table && n > LARGEST_TABLE => Err(ConstantsError::TooLargeForTable(n)),
            _ => Ok(()),
        }
    }
}

fn decimals(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// Computed once for each size: an integral over a plane costs about a millisecond.
fn range(n: usize) -> Range {
    static KNOWN: [OnceLock<Range>; LARGEST_RANGE + 1] = [const { OnceLock::new() }; LARGEST_RANGE + 1];
    *KNOWN[n].get_or_init(|| {
        let (d2, d3) = range_moments(n);
        Range {
            d2,
            d3,
            a2: 3.0 / (d2 * (n as f64).sqrt()),
            d4: 1.0 + 3.0 * d3 / d2,
            median: root(0.0, 12.0, |width| range_distribution(n, width) - 0.5),
        }
    })
}

fn deviation(n: usize) -> Deviation {
    let c4 = c4(n);
    let freedom = (n - 1) as f64;
    Deviation {
        c4,
        a3: 3.0 / (c4 * (n as f64).sqrt()),
        b4: 1.0 + 3.0 * (1.0 - c4 * c4).sqrt() / c4,
        median: (chi_squared_quantile(freedom, 0.5) / freedom).sqrt(),
    }
}

/// `c4(n) = √(2/(n−1)) Γ(n/2) / Γ((n−1)/2)`, by `c4(n) · c4(n+1) = √((n−1)/n)`, which needs no Γ and loses nothing.
pub(crate) fn c4(n: usize) -> f64 {
    // Beyond this the series is exact to the last place and the recurrence would only take time.
    if n > 2000 {
        let freedom = (n - 1) as f64;
        return 1.0 - 1.0 / (4.0 * freedom)
            + 1.0 / (32.0 * freedom.powi(2))
            + 5.0 / (128.0 * freedom.powi(3));
    }
    let mut c4 = (2.0 / std::f64::consts::PI).sqrt();
    for k in 2..n {
        c4 = ((k - 1) as f64 / k as f64).sqrt() / c4;
    }
    c4
}

/// Values of a standard normal beyond this have no weight in double precision.
const FAR: f64 = 9.5;
/// The trapezoidal rule is exact to rounding for smooth integrands over the whole line at this step.
const STEP: f64 = 0.1;

/// Mean and standard deviation of the range: `E[W] = ∫ 1 − Φⁿ − (1−Φ)ⁿ` and `E[W²] = ∫ 2w (1 − F(w)) dw`.
fn range_moments(n: usize) -> (f64, f64) {
    let power = n as i32;
    let steps = (2.0 * FAR / STEP) as i32;
    let mean: f64 = (0..=steps)
        .map(|i| -FAR + STEP * f64::from(i))
        .map(|x| STEP * (1.0 - normal(x).powi(power) - normal(-x).powi(power)))
        .sum();
    // Panels narrow enough for ten-point Gauss–Legendre to be exact to rounding.
    let rule = gauss_legendre();
    let square: f64 = (0..28)
        .flat_map(|panel| rule.map(|(node, weight)| (0.5 * f64::from(panel) + 0.25 * (node + 1.0), weight)))
        .map(|(width, weight)| 0.25 * weight * 2.0 * width * (1.0 - range_distribution(n, width)))
        .sum();
    (mean, (square - mean * mean).sqrt())
}

/// The distribution of the range: `F(w) = n ∫ φ(x) (Φ(x+w) − Φ(x))ⁿ⁻¹ dx`.
fn range_distribution(n: usize, width: f64) -> f64 {
    let power = n as i32 - 1;
    let low = -FAR - width.min(FAR);
    let steps = ((FAR - low) / STEP).ceil() as i32;
    let integral: f64 = (0..=steps)
        .map(|i| low + STEP * f64::from(i))
        .map(|x| {
            // On the right half the upper tails are the exact ones.
            let between =
                if x > 0.0 { normal(-x) - normal(-x - width) } else { normal(x + width) - normal(x) };
            normal_density(x) * between.powi(power)
        })
        .sum();
    n as f64 * STEP * integral
}

/// Nodes and weights of ten-point Gauss–Legendre integration on −1…1, by Newton's method on the polynomial.
fn gauss_legendre() -> [(f64, f64); 10] {
    let degree = 10u32;
    std::array::from_fn(|i| {
        let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (f64::from(degree) + 0.5)).cos();
        let mut slope = 1.0;
        for _ in 0..20 {
            let (mut last, mut before) = (x, 1.0);
            for k in 2..=degree {
                let k = f64::from(k);
                (last, before) = (((2.0 * k - 1.0) * x * last - (k - 1.0) * before) / k, last);
            }
            slope = f64::from(degree) * (x * last - before) / (x * x - 1.0);
            x -= last / slope;
        }
        (x, 2.0 / ((1.0 - x * x) * slope * slope))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(actual: f64, expected: f64, tolerance: f64) {
        assert!((actual - expected).abs() < tolerance, "{actual} is not {expected}");
    }

    // The expected values were computed by adaptive quadrature with 16 to 25 digits (mpmath).
    #[test]
    #[allow(
        clippy::excessive_precision,
        clippy::approx_constant,
        reason = "the digits as they were computed"
    )]
    fn range_constants_agree_with_high_precision_values() {
        for (n, d2) in [
            (2, 1.1283791670955126),
            (3, 1.6925687506432689),
            (5, 2.3259289472810392),
            (10, 3.0775054616703457),
            (25, 3.9306292195071131),
            (50, 4.4981472587797007),
            (100, 5.0151872728833687),
        ] {
            close(Constants::Exact.range(n).unwrap().d2, d2, 3e-14);
        }
        for (n, d3) in
            [(3, 0.888368004045204), (5, 0.864081941099504), (10, 0.797050673519411), (25, 0.708440765888655)]
        {
            close(Constants::Exact.range(n).unwrap().d3, d3, 1e-12);
        }
        for (n, median) in [(2, 0.95387255240894), (3, 1.5877877504463), (5, 2.2568824930262)] {
            close(Constants::Exact.range(n).unwrap().median, median, 1e-12);
        }
    }

    #[test]
    fn closed_forms_hold() {
        let pi = std::f64::consts::PI;
        close(Constants::Exact.range(2).unwrap().d3, (2.0 - 4.0 / pi).sqrt(), 1e-13);
        close(c4(2), (2.0 / pi).sqrt(), 1e-15);
        close(c4(3), pi.sqrt() / 2.0, 1e-15);
        close(c4(5), (2.0f64).sqrt() * 3.0 / 8.0 * pi.sqrt(), 1e-15);
        close(c4(2000) * c4(2001), (1999.0f64 / 2000.0).sqrt(), 1e-14);
    }

    #[test]
    fn tables_are_those_of_the_textbooks() {
        let d2 = [1.128, 1.693, 2.059, 2.326, 2.534, 2.704, 2.847, 2.970, 3.078];
        let d3 = [0.853, 0.888, 0.880, 0.864, 0.848, 0.833, 0.820, 0.808, 0.797];
        let a2 = [1.880, 1.023, 0.729, 0.577, 0.483, 0.419, 0.373, 0.337, 0.308];
        let d4 = [3.267, 2.575, 2.282, 2.114, 2.004, 1.924, 1.864, 1.816, 1.777];
        let c4 = [0.7979, 0.8862, 0.9213, 0.9400, 0.9515, 0.9594, 0.9650, 0.9693, 0.9727];
        let a3 = [2.659, 1.954, 1.628, 1.427, 1.287, 1.182, 1.099, 1.032, 0.975];
        let b4 = [3.267, 2.568, 2.266, 2.089, 1.970, 1.882, 1.815, 1.761, 1.716];
        for n in 2..=10 {
            let (range, deviation) =
                (Constants::Table.range(n).unwrap(), Constants::Table.deviation(n).unwrap());
            let row = [range.d2, range.d3, range.a2, range.d4, deviation.c4, deviation.a3, deviation.b4];
            let i = n - 2;
            assert_eq!(row, [d2[i], d3[i], a2[i], d4[i], c4[i], a3[i], b4[i]], "n = {n}");
        }
        let last = Constants::Table.range(25).unwrap();
        assert_eq!([last.d2, last.d3, last.a2, last.d4], [3.931, 0.708, 0.153, 1.541]);
    }

    #[test]
    fn sizes_without_constants_are_refused_with_advice() {
        assert_eq!(Constants::Exact.range(1), Err(ConstantsError::TooSmall(1)));
        assert_eq!(Constants::Exact.range(101), Err(ConstantsError::TooLargeForRange(101)));
        assert_eq!(Constants::Table.deviation(26), Err(ConstantsError::TooLargeForTable(26)));
        assert!(Constants::Exact.deviation(5000).is_ok());
    }
}
