//! Doubles as decimal integers: `digit(12.5, e = 1, f = 0)` is 125.

/// The largest exponent.
pub(super) const MAX: usize = 18;

/// The doubles nearest to 10^0 … 10^18.
pub(super) const POW: [f64; MAX + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18];

/// The doubles nearest to 10^0 … 10^−18.
pub(super) const INV: [f64; MAX + 1] = [
    1e0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15,
    1e-16, 1e-17, 1e-18,
];

/// Adding and subtracting it rounds to an integer, half to even.
const ROUNDER: f64 = 1.5 * (1u64 << 52) as f64;

/// Below this the rounder is exact.
const EASY: f64 = (1u64 << 51) as f64;

/// Beyond this a digit may not fit into an i64.
const MOST: f64 = 9.2e18;

/// How many decimals values have (`e`), and how many zeros their integers end in (`f`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale {
    pub(super) e: usize,
    pub(super) f: usize,
}

impl Scale {
    /// Two multiplications in this order, never one with a combined power: each rounds, and readers repeat them.
    #[inline(always)]
    pub(super) fn digit(self, value: f64) -> Option<i64> {
        let scaled = value * POW[self.e] * INV[self.f];
        let digit = if scaled.abs() < EASY {
            (scaled + ROUNDER) - ROUNDER
        } else {
            // Not a number, or too large for one.
            let rounded = scaled.round();
            if rounded.is_nan() || rounded.abs() >= MOST {
                return None;
            }
            rounded
        };
        Some(digit as i64)
    }

    #[inline(always)]
    pub(super) fn value(self, digit: i64) -> f64 {
        digit as f64 * POW[self.f] * INV[self.e]
    }
}

/// The range of digits, and the bits it needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) min: i64,
    pub(super) max: i64,
}

impl Span {
    pub(super) const EMPTY: Self = Self { min: i64::MAX, max: i64::MIN };

    #[inline(always)]
    pub(super) fn add(&mut self, digit: i64) {
        self.min = self.min.min(digit);
        self.max = self.max.max(digit);
    }

    pub(super) fn is_empty(self) -> bool {
        self.min > self.max
    }

    #[inline(always)]
    pub(super) fn width(self) -> u32 {
        if self.is_empty() { 0 } else { 64 - (self.max.wrapping_sub(self.min) as u64).leading_zeros() }
    }
}
