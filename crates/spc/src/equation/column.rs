//! The points of an SVID.

/// The points of one SVID: when and what, oldest first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column<'a> {
    timestamps: &'a [i64],
    values: &'a [f64],
}

/// Points that are not a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ColumnError {
    #[error("a column has as many timestamps as values, not {timestamps} and {values}")]
    Lengths { timestamps: usize, values: usize },
    #[error("the timestamps of a column must not go back, as they do at point {0}; sort the points by time")]
    OutOfOrder(usize),
}

impl<'a> Column<'a> {
    /// Takes timestamps (microseconds) that never go back, and as many values.
    pub fn new(timestamps: &'a [i64], values: &'a [f64]) -> Result<Self, ColumnError> {
        if timestamps.len() != values.len() {
            return Err(ColumnError::Lengths { timestamps: timestamps.len(), values: values.len() });
        }
        match timestamps.windows(2).position(|pair| pair[0] > pair[1]) {
            Some(before) => Err(ColumnError::OutOfOrder(before + 2)),
            None => Ok(Self { timestamps, values }),
        }
    }

    /// When, in microseconds.
    pub fn timestamps(&self) -> &'a [i64] {
        self.timestamps
    }

    /// What.
    pub fn values(&self) -> &'a [f64] {
        self.values
    }
}
