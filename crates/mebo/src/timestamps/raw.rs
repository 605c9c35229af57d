//! Eight bytes a point (§7.1, §8.1), for timestamps and values alike.

use crate::bytes::Endian;
use crate::error::Error;

pub(crate) struct Decoder<'a> {
    column: &'a [u8],
    at: usize,
    endian: Endian,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(column: &'a [u8], endian: Endian) -> Self {
        Self { column, at: 0, endian }
    }

    pub(crate) fn seek(&mut self, index: usize) {
        self.at = index.saturating_mul(8);
    }

    #[inline]
    pub(crate) fn fill<T>(&mut self, out: &mut [T], from_bits: impl Fn(u64) -> T) -> Result<(), Error> {
        let (words, _) = self.column.get(self.at..).unwrap_or_default().as_chunks::<8>();
        let Some(words) = words.get(..out.len()) else {
            return Err(Error::truncated(self.column.len(), "the column ends before the last point"));
        };
        // The byte order is asked about once, not for every point.
        match self.endian {
            Endian::Little => {
                out.iter_mut().zip(words).for_each(|(o, w)| *o = from_bits(u64::from_le_bytes(*w)));
            }
            Endian::Big => {
                out.iter_mut().zip(words).for_each(|(o, w)| *o = from_bits(u64::from_be_bytes(*w)))
            }
        }
        self.at += out.len() * 8;
        Ok(())
    }
}

pub(crate) fn encode(bits: impl ExactSizeIterator<Item = u64>, endian: Endian, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bits.len() * 8, 0);
    let (words, _) = out[start..].as_chunks_mut::<8>();
    match endian {
        Endian::Little => words.iter_mut().zip(bits).for_each(|(word, bits)| *word = bits.to_le_bytes()),
        Endian::Big => words.iter_mut().zip(bits).for_each(|(word, bits)| *word = bits.to_be_bytes()),
    }
}
