//! The columns of one payload while a blob is collected.

use super::EncodeError;

/// Columns one after the other, and where each ends.
#[derive(Debug, Default)]
pub(super) struct Columns {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Columns {
    /// Appends a column; `write` appends its bytes.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Appends a column of no bytes.
    pub(super) fn push_empty(&mut self) {
        self.ends.push(self.bytes.len());
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|i| self.get(i))
    }

    fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
    }

    /// Puts the columns in the order of these places.
    pub(super) fn reorder(&mut self, order: &[usize]) {
        if order.is_sorted() {
            return;
        }
        let mut reordered = Self { bytes: Vec::with_capacity(self.bytes.len()), ends: Vec::new() };
        for &i in order {
            reordered.push(|out| out.extend_from_slice(self.get(i)));
        }
        *self = reordered;
    }

    /// Empties every column that is equal to one before it.
    pub(super) fn keep_owners(&mut self, owners: &[u32]) {
        let mut kept = Self::default();
        for (&owner, i) in owners.iter().zip(0..) {
            if owner as usize == i {
                kept.push(|out| out.extend_from_slice(self.get(i)));
            } else {
                kept.push_empty();
            }
        }
        *self = kept;
    }

    /// Gives every column of no bytes one zero byte for each of its points: empty tags.
    pub(super) fn fill_empty(&mut self, points: impl Fn(usize) -> usize) {
        let mut filled = Self::default();
        for (column, i) in self.iter().zip(0..) {
            filled.push(|out| match column.len() {
                0 => out.resize(out.len() + points(i), 0),
                _ => out.extend_from_slice(column),
            });
        }
        *self = filled;
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// What the index stores of where columns start: for each, the length of the one before it (§3).
pub(super) fn deltas(columns: &Columns) -> Result<Vec<u32>, EncodeError> {
    let mut before = 0;
    columns
        .iter()
        .map(|column| {
            let delta =
                u32::try_from(before).map_err(|_| EncodeError::TooLarge { size: columns.bytes.len() });
            before = column.len();
            delta
        })
        .collect()
}
