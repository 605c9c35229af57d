//! Quantiles of the distributions that limits and confidence intervals need.
//!
//! The distribution functions are those of `statrs`; the quantiles are found from them by bracketing, so that they
//! are as exact as the functions are.

use statrs::function::{beta::beta_reg, gamma::gamma_lr};

/// The standard normal distribution function Φ, to the last places of a double: the constants of the charts are
/// integrals of it, and the usual rational approximations stop at eleven digits.
pub(crate) fn normal(x: f64) -> f64 {
    if x < 0.0 { upper_tail(-x) } else { 1.0 - upper_tail(x) }
}

/// `1 − Φ(x)` for `x ≥ 0`: the series of Φ near the middle, the continued fraction of Mills' ratio beyond.
fn upper_tail(x: f64) -> f64 {
    let density = normal_density(x);
    if x < 2.5 {
        // Φ(x) − ½ = φ(x) (x + x³/3 + x⁵/(3·5) + …): all terms are positive, so nothing cancels.
        let (mut term, mut sum, mut odd) = (x, x, 1.0);
        while term > sum * 1e-17 {
            odd += 2.0;
            term *= x * x / odd;
            sum += term;
        }
        return 0.5 - density * sum;
    }
    // x + 1/(x + 2/(x + 3/(x + …))), from the far end.
    let fraction = (1..=120).rev().fold(x, |rest, k| x + f64::from(k) / rest);
    density / fraction
}

/// The standard normal density φ.
pub(crate) fn normal_density(x: f64) -> f64 {
    (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt()
}

/// The standard normal quantile.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    root(-40.0, 40.0, |x| normal(x) - p)
}

/// The quantile of the χ² distribution with `freedom` degrees of freedom (they need not be whole).
pub(crate) fn chi_squared_quantile(freedom: f64, p: f64) -> f64 {
    let mut high = freedom.max(1.0);
    while gamma_lr(freedom / 2.0, high / 2.0) < p {
        high *= 2.0;
    }
    root(0.0, high, |x| if x <= 0.0 { -p } else { gamma_lr(freedom / 2.0, x / 2.0) - p })
}

/// The quantile of the beta distribution.
pub(crate) fn beta_quantile(a: f64, b: f64, p: f64) -> f64 {
    root(0.0, 1.0, |x| beta_reg(a, b, x) - p)
}

/// The quantile of the F distribution.
pub(crate) fn f_quantile(numerator: f64, denominator: f64, p: f64) -> f64 {
    // For a quantile near 1 the complement keeps the digits that 1 − x would lose.
    let rest = beta_quantile(denominator / 2.0, numerator / 2.0, 1.0 - p);
    denominator / numerator * (1.0 - rest) / rest
}

/// Where a growing function crosses zero between `low` and `high`, by halving until no number lies between.
pub(crate) fn root(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
    // Even the widest bracket has fewer than 1,100 halvings in it; 200 suffice for those used here.
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if function(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(actual: f64, expected: f64) {
        assert!((actual / expected - 1.0).abs() < 1e-13, "{actual} is not {expected}");
    }

    // The expected values were computed with 30 digits (mpmath).
    #[test]
    #[allow(clippy::excessive_precision, reason = "the digits as they were computed")]
    fn quantiles_agree_with_high_precision_values() {
        close(normal_quantile(0.975), 1.95996398454005423552);
        close(normal_quantile(0.75), 0.67448975019608174320);
        close(normal(-1.0), 0.15865525393145705141);
        close(normal(-2.4999), 0.0062114183749445860467);
        close(normal(-2.5), 0.00620966532577613517);
        close(normal(-8.0), 6.2209605742717841235e-16);
        close(normal(1.5), 0.93319279873114191);
        close(chi_squared_quantile(19.0, 0.025), 8.9065164819879725344);
        close(chi_squared_quantile(19.0, 0.975), 32.852326861729705993);
        close(chi_squared_quantile(7.4, 0.5), 6.7450760264728298222);
        close(chi_squared_quantile(1.0, 0.9973), 8.9998619567496944625);
        close(chi_squared_quantile(200.0, 0.025), 162.72798250184628087);
        close(beta_quantile(1.0, 13.5, 0.9973), 0.35474608359763078214);
        close(beta_quantile(1.5, 40.0, 0.99), 0.13146277361367151771);
        close(f_quantile(2.0, 20.0, 0.9973), 8.0660672935107526096);
        close(f_quantile(3.0, 57.0, 0.999), 6.214162207626252856);
        close(f_quantile(2.0, 8.0, 0.95), 4.4589701075245129563);
    }
}
