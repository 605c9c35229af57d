//! Scheme 1: doubles cut in two, the upper part looked up in a small dictionary.

use super::{Exceptions, RD};
use crate::bitpack::{Packed, pack, packed_len};
use crate::bytes::{Cursor, Endian};
use crate::error::Error;

const DICTIONARY_MOST: usize = 8;

/// Bits of an exception: a position and an upper part.
const EXCEPTION_BITS: u64 = 48;

/// Bits the reference counts for a header, which decides ties between schemes.
const HEADER_BITS: u64 = 56;

pub(crate) struct Decoder<'a> {
    /// Upper parts, in place.
    dictionary: [u64; DICTIONARY_MOST],
    entries: u8,
    codes: Packed<'a>,
    /// Where the codes start in the column.
    codes_at: usize,
    code_bits: u8,
    lower: Packed<'a>,
    lower_bits: u8,
    exceptions: Exceptions<'a, 6>,
    /// The next point.
    at: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(mut cursor: Cursor<'a>, count: usize, endian: Endian) -> Result<Self, Error> {
        let [lower_bits, code_bits, entries] = cursor.array("the header of an ALP column")?;
        if lower_bits > 63 {
            return Err(Error::corrupt(1, format!("lower parts of {lower_bits} bits, 63 is the widest")));
        }
        if code_bits > 3 {
            return Err(Error::corrupt(2, format!("codes of {code_bits} bits, 3 is the widest")));
        }
        if usize::from(entries) > DICTIONARY_MOST {
            return Err(Error::corrupt(
                3,
                format!("a dictionary of {entries} entries, {DICTIONARY_MOST} is the most"),
            ));
        }
        let listed = cursor.u32("the header of an ALP column")?;
        let mut dictionary = [0; DICTIONARY_MOST];
        for entry in &mut dictionary[..entries.into()] {
            *entry = u64::from(cursor.u16("the dictionary of an ALP column")?) << lower_bits;
        }
        let codes_at = cursor.at();
        let len = packed_len(count, code_bits.into());
        let codes = Packed::new(cursor.take(len as usize, "the codes of an ALP column")?, code_bits.into());
        let len = packed_len(count, lower_bits.into());
        let lower = cursor.take(len as usize, "the lower parts of an ALP column")?;
        let lower = Packed::new(lower, lower_bits.into());
        let exceptions = Exceptions::read(&mut cursor, listed, count, endian)?;
        Ok(Self { dictionary, entries, codes, codes_at, code_bits, lower, lower_bits, exceptions, at: 0 })
    }

    pub(super) fn seek(&mut self, index: usize) {
        self.at = index;
        self.exceptions.seek(index);
    }

    pub(super) fn fill(&mut self, out: &mut [f64]) -> Result<(), Error> {
        let start = self.at;
        let mut largest = 0;
        for (slot, i) in out.iter_mut().zip(start..) {
            let code = self.codes.get(i);
            largest = largest.max(code);
            *slot = f64::from_bits(self.dictionary[code as usize % DICTIONARY_MOST] | self.lower.get(i));
        }
        if largest >= self.entries.into() && !out.is_empty() {
            let i = (start..).find(|&i| self.codes.get(i) >= self.entries.into()).unwrap_or(start);
            return Err(Error::corrupt(
                self.codes_at + i * usize::from(self.code_bits) / 8,
                format!("point {i} uses entry {} of a dictionary of {}", self.codes.get(i), self.entries),
            ));
        }
        self.at += out.len();
        let endian = self.exceptions.endian;
        for (position, &[_, _, _, _, a, b]) in self.exceptions.before(self.at) {
            let upper = u64::from(endian.u16([a, b])) << self.lower_bits;
            out[position - start] = f64::from_bits(upper | self.lower.get(position));
        }
        Ok(())
    }
}

/// A column as scheme 1 would write it.
pub(super) struct Plan {
    lower_bits: u32,
    dictionary: Vec<u16>,
    count: u64,
    exceptions: u64,
}

impl Plan {
    pub(super) fn new(values: &[f64], sample: &[f64]) -> Self {
        let lower_bits = best_cut(sample);
        let (dictionary, covered) = dictionary(values, lower_bits);
        let count = values.len() as u64;
        Self { lower_bits, dictionary, count, exceptions: count - covered }
    }

    pub(super) fn bits(&self) -> u64 {
        cost(self.count, self.dictionary.len(), self.lower_bits, self.exceptions)
    }

    pub(super) fn write(&self, values: &[f64], endian: Endian, out: &mut Vec<u8>) {
        let code_bits = code_bits(self.dictionary.len());
        out.reserve((self.bits() / 8) as usize + 8);
        out.extend_from_slice(&[RD, self.lower_bits as u8, code_bits as u8, self.dictionary.len() as u8]);
        endian.put_u32(self.exceptions as u32, out);
        self.dictionary.iter().for_each(|&upper| endian.put_u16(upper, out));
        let upper = |value: &f64| (value.to_bits() >> self.lower_bits) as u16;
        let code = |upper: u16| self.dictionary.iter().position(|&entry| entry == upper);
        pack(values.iter().map(|value| code(upper(value)).unwrap_or(0) as u64), code_bits, out);
        let mask = u64::MAX >> (64 - self.lower_bits);
        pack(values.iter().map(|value| value.to_bits() & mask), self.lower_bits, out);
        for (value, position) in values.iter().zip(0..) {
            if code(upper(value)).is_none() {
                endian.put_u32(position, out);
                endian.put_u16(upper(value), out);
            }
        }
    }
}

fn cost(count: u64, entries: usize, lower_bits: u32, exceptions: u64) -> u64 {
    HEADER_BITS
        + 16 * entries as u64
        + count * u64::from(code_bits(entries))
        + count * u64::from(lower_bits)
        + EXCEPTION_BITS * exceptions
}

fn code_bits(entries: usize) -> u32 {
    if entries <= 1 { 1 } else { usize::BITS - (entries - 1).leading_zeros() }
}

/// How many lower bits to cut off; the first of equals.
fn best_cut(sample: &[f64]) -> u32 {
    let mut best = (u64::MAX, 63);
    for lower_bits in (48..=63).rev() {
        let (dictionary, covered) = dictionary(sample, lower_bits);
        let count = sample.len() as u64;
        let bits = cost(count, dictionary.len(), lower_bits, count - covered);
        if bits < best.0 {
            best = (bits, lower_bits);
        }
    }
    best.1
}

/// The most frequent upper parts, most frequent first, the smaller of equals first; and how many values they cover.
fn dictionary(values: &[f64], lower_bits: u32) -> (Vec<u16>, u64) {
    let mut uppers: Vec<u16> = values.iter().map(|value| (value.to_bits() >> lower_bits) as u16).collect();
    uppers.sort_unstable();
    let mut counted: Vec<(u64, u16)> =
        uppers.chunk_by(|a, b| a == b).map(|same| (same.len() as u64, same[0])).collect();
    counted.sort_unstable_by_key(|&(count, upper)| (std::cmp::Reverse(count), upper));
    counted.truncate(DICTIONARY_MOST);
    let covered = counted.iter().map(|(count, _)| count).sum();
    (counted.into_iter().map(|(_, upper)| upper).collect(), covered)
}
