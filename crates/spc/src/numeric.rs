//! Sums and order statistics that stay accurate: compensated sums, running moments, exact quantiles.

use serde::{Deserialize, Serialize};

/// A compensated sum (Neumaier): the rounding error of each addition is kept and added at the end.
///
/// ```
/// use phalanx_spc::numeric::Sum;
/// let mut sum = Sum::default();
/// for value in [1.0, 1e100, 1.0, -1e100] {
///     sum.add(value);
/// }
/// assert_eq!(sum.total(), 2.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    /// Adds one value.
    pub fn add(&mut self, value: f64) {
        let next = self.sum + value;
        self.lost +=
            if self.sum.abs() >= value.abs() { (self.sum - next) + value } else { (value - next) + self.sum };
        self.sum = next;
    }

    /// The sum so far.
    pub fn total(&self) -> f64 {
        self.sum + self.lost
    }
}

/// The compensated sum of some values.
pub fn sum(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum = Sum::default();
    values.into_iter().for_each(|value| sum.add(value));
    sum.total()
}

/// Count, mean and sum of squared deviations, taken in one pass (Welford; blocks are merged as Chan et al. do).
///
/// ```
/// use phalanx_spc::numeric::Moments;
/// let mut moments = Moments::default();
/// moments.extend(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
/// assert_eq!(moments.mean(), Some(5.0));
/// assert!((moments.variance().unwrap() - 32.0 / 7.0).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
}

/// Values are taken in blocks that stay in the nearest cache: each is summed and then squared around its own mean.
const BLOCK: usize = 256;

impl Moments {
    /// Takes one value.
    pub fn push(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    /// Takes many values.
    pub fn extend(&mut self, values: &[f64]) {
        for block in values.chunks(BLOCK) {
            let count = block.len() as f64;
            // A block's own mean may be off in the last place; the correction term of the two-pass formula takes
            // that out again.
            let mean = lanes(block, |value| value) / count;
            let squares = lanes(block, |value| (value - mean) * (value - mean));
            let residue = lanes(block, |value| value - mean);
            self.merge(&Self {
                count: block.len() as u64,
                mean: mean + residue / count,
                squares: (squares - residue * residue / count).max(0.0),
            });
        }
    }

    fn merge(&mut self, other: &Self) {
        let (left, right) = (self.count as f64, other.count as f64);
        let total = left + right;
        if total == 0.0 {
            return;
        }
        let apart = other.mean - self.mean;
        self.mean += apart * (right / total);
        self.squares += other.squares + apart * apart * (left * right / total);
        self.count += other.count;
    }

    /// How many values were taken.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean, of at least one value.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    /// The sample variance (n − 1), of at least two values.
    pub fn variance(&self) -> Option<f64> {
        (self.count > 1).then(|| self.squares / (self.count - 1) as f64)
    }

    /// The sample standard deviation (n − 1), of at least two values.
    pub fn deviation(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }
}

/// Sums over a block in eight independent lanes, which the compiler turns into vector instructions.
fn lanes(block: &[f64], term: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0f64; 8];
    let eights = block.chunks_exact(8);
    let rest: f64 = eights.remainder().iter().map(|&value| term(value)).sum();
    for eight in eights {
        for (sum, &value) in sums.iter_mut().zip(eight) {
            *sum += term(value);
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// The `q` quantile (0 to 1) by linear interpolation between the order statistics around `(n − 1)·q`: Hyndman and
/// Fan's type 7, what R and NumPy do by default. Exact, in linear time; the values are left in another order.
///
/// ```
/// use phalanx_spc::numeric::quantile;
/// assert_eq!(quantile(&mut [4.0, 1.0, 3.0, 2.0], 0.5), Some(2.5));
/// assert_eq!(quantile(&mut [], 0.5), None);
/// ```
pub fn quantile(values: &mut [f64], q: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let position = last as f64 * q.clamp(0.0, 1.0);
    let below = position.floor() as usize;
    let share = position - below as f64;
    let (_, &mut low, above) = values.select_nth_unstable_by(below, f64::total_cmp);
    if share == 0.0 {
        return Some(low);
    }
    let high = above.iter().copied().fold(f64::INFINITY, f64::min);
    Some(low + share * (high - low))
}

/// The median: the middle value, or the mean of the two middle ones.
pub fn median(values: &mut [f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// A number for a person: six digits, no noise behind them.
///
/// ```
/// use phalanx_spc::numeric::short;
/// assert_eq!(short(50.809999999999995), "50.81");
/// assert_eq!(short(1.5e-9), "1.50000e-9");
/// ```
pub fn short(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = 5 - value.abs().log10().floor() as i32;
    if !(0..=12).contains(&digits) {
        return format!("{value:.5e}");
    }
    let text = format!("{value:.*}", digits as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn variance_survives_a_large_offset() {
        let values: Vec<f64> = (0..1000).map(|i| 1e9 + f64::from(i % 3)).collect();
        let mut moments = Moments::default();
        moments.extend(&values);
        let shifted: Vec<f64> = values.iter().map(|value| value - 1e9).collect();
        let mean = shifted.iter().sum::<f64>() / 1000.0;
        let variance = shifted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 999.0;
        assert!((moments.variance().unwrap() - variance).abs() < 1e-9);
    }

    #[test]
    fn an_early_transient_does_not_cost_the_variance_its_digits() {
        let mut values = vec![0.0; 10];
        values.extend((0..5000).map(|i| 1e6 + f64::from(i % 2) * 1e-3));
        let mut late = Moments::default();
        late.extend(&values[10..]);
        assert!((late.variance().unwrap() / (0.25e-6 * 5000.0 / 4999.0) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn quantiles_of_known_data_are_those_of_type_seven() {
        // R: quantile(c(1, 2, 4, 7, 11), c(.1, .25, .9))
        let data = [7.0, 1.0, 11.0, 4.0, 2.0];
        for (q, expected) in [(0.0, 1.0), (0.1, 1.4), (0.25, 2.0), (0.9, 9.4), (1.0, 11.0)] {
            assert!((quantile(&mut data.clone(), q).unwrap() - expected).abs() < 1e-12, "q = {q}");
        }
    }

    proptest! {
        #[test]
        fn blocks_and_single_values_give_the_same_moments(values in prop::collection::vec(-1e3f64..1e3, 0..700)) {
            let (mut one, mut many) = (Moments::default(), Moments::default());
            values.iter().for_each(|&value| one.push(value));
            many.extend(&values);
            prop_assert_eq!(one.count(), many.count());
            if let (Some(a), Some(b)) = (one.variance(), many.variance()) {
                prop_assert!((a - b).abs() <= 1e-9 * a.max(1.0));
                prop_assert!((one.mean - many.mean).abs() <= 1e-10 * (1.0 + one.mean.abs()));
            }
        }

        #[test]
        fn a_quantile_agrees_with_sorting(values in prop::collection::vec(-1e3f64..1e3, 1..60), q in 0.0f64..=1.0) {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let h = (sorted.len() - 1) as f64 * q;
            let (low, high) = (sorted[h.floor() as usize], sorted[h.ceil() as usize]);
            let expected = low + (h - h.floor()) * (high - low);
            prop_assert!((quantile(&mut values.clone(), q).unwrap() - expected).abs() < 1e-9);
        }
    }
}
