//! The index (§3): which metrics there are, how many points each has, and where its columns start.

use std::ops::Range;
use std::sync::OnceLock;

use crate::bytes::Cursor;
use crate::error::Error;

/// One metric. Starts count from the beginning of the decompressed payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) id: u64,
    pub(crate) count: u32,
    pub(crate) timestamps: u64,
    pub(crate) values: u64,
    pub(crate) tags: u64,
}

/// Which of an entry's columns is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Column {
    Timestamps,
    Values,
    Tags,
}

impl Entry {
    fn start(&self, column: Column) -> u64 {
        match column {
            Column::Timestamps => self.timestamps,
            Column::Values => self.values,
            Column::Tags => self.tags,
        }
    }
}

/// The metrics of a blob in stored order, to be found by id.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    entries: Vec<Entry>,
    /// Where the first entry is in the blob, and how long each is: for errors.
    at: usize,
    entry_len: usize,
    /// Places of the entries by ascending id, equal ids in stored order; made when first needed.
    by_id: OnceLock<Vec<u32>>,
}

impl Index {
    /// Reads `count` entries of a numeric blob at `cursor` and leaves the cursor behind them.
    pub(crate) fn read(cursor: &mut Cursor<'_>, count: u32, extended: bool) -> Result<Self, Error> {
        const WHAT: &str = "the index";
        let at = cursor.at();
        let entry_len = if extended { 32 } else { 16 };
        // The bytes must be there before anything is allocated for them.
        cursor.clone().take((count as usize).saturating_mul(entry_len), WHAT)?;
        let mut entries = Vec::with_capacity(count as usize);
        let (mut timestamps, mut values, mut tags) = (0u64, 0u64, 0u64);
        for _ in 0..count {
            let id = cursor.u64(WHAT)?;
            let field = |cursor: &mut Cursor<'_>| -> Result<u32, Error> {
                if extended { cursor.u32(WHAT) } else { cursor.u16(WHAT).map(u32::from) }
            };
            let points = field(cursor)?;
            timestamps += u64::from(field(cursor)?);
            values += u64::from(field(cursor)?);
            tags += u64::from(field(cursor)?);
            if extended {
                let reserved_at = cursor.at();
                let reserved = cursor.u64(WHAT)?;
                if reserved != 0 {
                    return Err(Error::unsupported(
                        reserved_at,
                        format!("reserved bytes of an index entry hold {reserved:#x}, not 0"),
                    ));
                }
            }
            entries.push(Entry { id, count: points, timestamps, values, tags });
        }
        Ok(Self { entries, at, entry_len, by_id: OnceLock::new() })
    }

    /// An index read elsewhere.
    pub(crate) fn new(entries: Vec<Entry>, at: usize, entry_len: usize) -> Self {
        Self { entries, at, entry_len, by_id: OnceLock::new() }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Where entry `i` is in the blob.
    pub(crate) fn place(&self, i: usize) -> usize {
        self.at + i * self.entry_len
    }

    /// The bytes of a column: up to where the next one starts, or to the end of its payload.
    pub(crate) fn range(&self, i: usize, column: Column, payload_len: usize) -> Range<usize> {
        let start = self.entries[i].start(column);
        let end = self.entries.get(i + 1).map_or(payload_len as u64, |next| next.start(column));
        // Both were compared with the payload's length.
        start as usize..end as usize
    }

    /// Checks that every column lies inside a payload of `payload_len` bytes.
    pub(crate) fn check_starts(&self, column: Column, payload_len: usize) -> Result<(), Error> {
        // Starts never decrease: where the last one fits, all do.
        match self.entries.last() {
            Some(last) if last.start(column) > payload_len as u64 => {
                let i = self.entries.partition_point(|entry| entry.start(column) <= payload_len as u64);
                Err(Error::corrupt(
                    self.place(i),
                    format!(
                        "the {} of metric {i} start at byte {} of a payload of {payload_len}",
                        match column {
                            Column::Timestamps => "timestamps",
                            Column::Values => "values",
                            Column::Tags => "tags",
                        },
                        self.entries[i].start(column)
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    /// Places of all entries with this id, in stored order.
    pub(crate) fn find(&self, id: u64) -> &[u32] {
        let by_id = self.by_id.get_or_init(|| {
            let mut places: Vec<u32> = (0..self.entries.len() as u32).collect();
            // Nothing to do for V2, whose index is sorted; a stable sort of sorted input is one pass.
            places.sort_by_key(|&i| self.entries[i as usize].id);
            places
        });
        let id_of = |&i: &u32| self.entries[i as usize].id;
        let start = by_id.partition_point(|i| id_of(i) < id);
        let len = by_id[start..].partition_point(|i| id_of(i) == id);
        &by_id[start..start + len]
    }
}
