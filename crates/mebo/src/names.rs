//! The names payload (§4), and what a metric is called by.

use std::ops::Range;

use xxhash_rust::xxh64::xxh64;

use crate::bytes::{Cursor, Endian};
use crate::error::Error;

/// What a metric is called by: its id, or a name whose hash is the id.
///
/// ```
/// use phalanx_mebo::Key;
///
/// assert_eq!(Key::from("cpu.usage").id(), 0x194D_BE1F_E219_998A);
/// assert_eq!(Key::from(7).id(), 7);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key<'a> {
    /// A number its owner chose.
    Id(u64),
    /// A name.
    Name(&'a str),
}

impl Key<'_> {
    /// The metric id: the number itself, or the xxHash64 (seed 0) of the name.
    pub fn id(self) -> u64 {
        match self {
            Self::Id(id) => id,
            Self::Name(name) => xxh64(name.as_bytes(), 0),
        }
    }
}

impl From<u64> for Key<'_> {
    fn from(id: u64) -> Self {
        Self::Id(id)
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl<'a> From<&'a String> for Key<'a> {
    fn from(name: &'a String) -> Self {
        Self::Name(name)
    }
}

/// The stored names, as places in the blob, in the order of the index.
#[derive(Debug, Clone)]
pub(crate) struct Names(Vec<Range<u32>>);

impl Names {
    /// Reads the names payload at `cursor` and leaves the cursor behind it.
    pub(crate) fn read(cursor: &mut Cursor<'_>, metric_count: u32) -> Result<Self, Error> {
        let start = cursor.at();
        let count = cursor.u16("the number of names")?;
        if u32::from(count) != metric_count {
            return Err(Error::corrupt(
                start,
                format!("{count} names are stored for {metric_count} metrics"),
            ));
        }
        // Two bytes of input for each, at least: checked as they are read.
        let mut places = Vec::new();
        for _ in 0..count {
            let len = cursor.u16("the length of a name")?;
            let at = cursor.at();
            let name = cursor.take(len.into(), "a name")?;
            if let Err(error) = str::from_utf8(name) {
                return Err(Error::corrupt(at + error.valid_up_to(), "a name is not UTF-8"));
            }
            places.push(at as u32..cursor.at() as u32);
        }
        Ok(Self(places))
    }

    pub(crate) fn get<'b>(&self, blob: &'b [u8], index: usize) -> Option<&'b str> {
        let place = self.0.get(index)?;
        str::from_utf8(blob.get(place.start as usize..place.end as usize)?).ok()
    }

    /// Checks that every name hashes to the id of its index entry.
    ///
    /// Some writers sort the index of a V2 blob but leave the names in the order they were added. Where `sorted` says
    /// that this may be so, names are put in the order of their hashes; equal hashes keep their order, as a stable
    /// sort of the index keeps it.
    pub(crate) fn match_ids(mut self, blob: &[u8], ids: &[u64], sorted: bool) -> Result<Self, Error> {
        let hash = |names: &Self, i: usize| names.get(blob, i).map_or(0, |name| Key::Name(name).id());
        let mut mismatch = (0..ids.len()).find(|&i| hash(&self, i) != ids[i]);
        if mismatch.is_some() && sorted {
            let mut order: Vec<usize> = (0..self.0.len()).collect();
            order.sort_by_key(|&i| hash(&self, i));
            self.0 = order.iter().map(|&i| self.0[i].clone()).collect();
            mismatch = (0..ids.len()).find(|&i| hash(&self, i) != ids[i]);
            if let Some(i) = (1..ids.len()).find(|&i| self.get(blob, i) == self.get(blob, i - 1)) {
                return Err(Error::corrupt(self.0[i].start as usize, "the same name is stored twice"));
            }
        }
        match mismatch {
            None => Ok(self),
            Some(i) => Err(Error::corrupt(
                self.0[i].start as usize,
                format!(
                    "name {:?} hashes to {:#018x}, the metric's id is {:#018x}",
                    self.get(blob, i).unwrap_or_default(),
                    hash(&self, i),
                    ids[i]
                ),
            )),
        }
    }
}

/// Appends a names payload.
pub(crate) fn write<'a>(names: impl ExactSizeIterator<Item = &'a str>, endian: Endian, out: &mut Vec<u8>) {
    // The encoder has checked both lengths.
    endian.put_u16(names.len() as u16, out);
    for name in names {
        endian.put_u16(name.len() as u16, out);
        out.extend_from_slice(name.as_bytes());
    }
}
