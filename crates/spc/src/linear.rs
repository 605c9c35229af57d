//! The little linear algebra that T² needs: a Cholesky factor of a covariance matrix, and distances by it.

use serde::{Deserialize, Serialize};

/// The lower triangle `L` of `S = L Lᵀ`, row by row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cholesky {
    rows: Vec<Vec<f64>>,
}

/// A variable that keeps less than this share of its variance beside the earlier ones is a combination of them.
const LEAST_SHARE: f64 = 1e-12;

impl Cholesky {
    /// Factors a symmetric matrix; where it is not positive definite, gives the first row that shows it.
    pub(crate) fn new(matrix: &[Vec<f64>]) -> Result<Self, usize> {
        let mut rows: Vec<Vec<f64>> = Vec::with_capacity(matrix.len());
        for (i, given) in matrix.iter().enumerate() {
            let mut row = Vec::with_capacity(i + 1);
            for (j, earlier) in rows.iter().enumerate() {
                let rest = given[j] - dot(&row, &earlier[..j]);
                row.push(rest / earlier[j]);
            }
            let rest = given[i] - dot(&row, &row);
            if rest.is_nan() || rest <= given[i] * LEAST_SHARE || given[i] <= 0.0 {
                return Err(i);
            }
            row.push(rest.sqrt());
            rows.push(row);
        }
        Ok(Self { rows })
    }

    /// `vᵀ S⁻¹ v`.
    pub(crate) fn distance(&self, vector: &[f64]) -> f64 {
        let mut solved: Vec<f64> = Vec::with_capacity(vector.len());
        for (row, &value) in self.rows.iter().zip(vector) {
            let done = solved.len();
            solved.push((value - dot(&row[..done], &solved)) / row[done]);
        }
        dot(&solved, &solved)
    }

    /// Whether it is a factor of `size` rows; a stored one may have been damaged.
    pub(crate) fn is_sound(&self, size: usize) -> bool {
        self.rows.len() == size
            && self.rows.iter().enumerate().all(|(i, row)| {
                row.len() == i + 1 && row[i] > 0.0 && row.iter().all(|value| value.is_finite())
            })
    }
}

fn dot(left: &[f64], right: &[f64]) -> f64 {
    left.iter().zip(right).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_inverse() {
        // S = [[4, 2], [2, 3]], S⁻¹ = 1/8 [[3, -2], [-2, 4]].
        let factor = Cholesky::new(&[vec![4.0, 2.0], vec![2.0, 3.0]]).unwrap();
        let (x, y) = (1.5, -2.0);
        let expected = (3.0 * x * x - 4.0 * x * y + 4.0 * y * y) / 8.0;
        assert!((factor.distance(&[x, y]) - expected).abs() < 1e-14);
    }

    #[test]
    fn a_combination_of_earlier_variables_is_named() {
        assert_eq!(Cholesky::new(&[vec![1.0, 2.0], vec![2.0, 4.0]]), Err(1));
        assert_eq!(Cholesky::new(&[vec![0.0]]), Err(0));
    }
}
