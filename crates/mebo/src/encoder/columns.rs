//! The columns of one payload while a blob is collected, and the payload they become.

use super::EncodeError;
use crate::compression;
use crate::header::Compression;

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

    /// Forgets the columns, keeps the memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The columns at these places.
    pub(super) fn pick(&self, places: &[usize]) -> Vec<&[u8]> {
        places.iter().map(|&i| self.get(i)).collect()
    }

    fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.bytes[start..self.ends[i]]
    }

    /// Gives every column of no bytes one zero byte for each of its points: empty tags.
    pub(super) fn fill_empty(&mut self, points: impl Fn(usize) -> usize) {
        let mut filled = Self::default();
        for i in 0..self.ends.len() {
            filled.push(|out| match self.get(i) {
                [] => out.resize(out.len() + points(i), 0),
                column => out.extend_from_slice(column),
            });
        }
        *self = filled;
    }
}

/// A payload on its way into a blob: copied there only once where it is not compressed.
pub(super) enum Payload<'c> {
    Plain(Vec<&'c [u8]>),
    Compressed(Vec<u8>),
}

impl<'c> Payload<'c> {
    pub(super) fn new(columns: Vec<&'c [u8]>, codec: Compression) -> Result<Self, EncodeError> {
        Ok(match codec {
            Compression::None => Self::Plain(columns),
            _ => Self::Compressed(compression::compress(codec, columns.concat())?),
        })
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Plain(columns) => columns.iter().map(|column| column.len()).sum(),
            Self::Compressed(bytes) => bytes.len(),
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Plain(columns) => columns.iter().for_each(|column| out.extend_from_slice(column)),
            Self::Compressed(bytes) => out.extend_from_slice(bytes),
        }
    }
}

/// What the index stores of where columns start: for each, the length of the one before it (§3).
pub(super) fn deltas(columns: &[&[u8]]) -> Result<Vec<u32>, EncodeError> {
    let mut before = 0;
    columns
        .iter()
        .map(|column| {
            let delta = u32::try_from(before).map_err(|_| EncodeError::TooLarge { size: before });
            before = column.len();
            delta
        })
        .collect()
}
