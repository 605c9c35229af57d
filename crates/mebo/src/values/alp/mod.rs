//! ALP (§8.4): one block a column, in the cheapest of three schemes.
//!
//! - [`decimal`]: values that are short decimals become integers, `12.5` → `125`, packed in as few bits as their range
//!   needs; those that are not are listed apart, bit for bit.
//! - [`rd`]: "real doubles", whose upper bits repeat, become an index into at most eight upper parts, and the rest.
//! - raw: eight bytes each.
//!
//! Values are listed apart ("exceptions") by ascending position, which makes them cheap to merge while decoding.

mod decimal;
mod digits;
mod rd;

use crate::bytes::{Cursor, Endian};
use crate::error::Error;
use crate::timestamps::raw;

const DECIMAL: u8 = 0;
const RD: u8 = 1;
const RAW: u8 = 2;

#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub(crate) enum Decoder<'a> {
    Decimal(decimal::Decoder<'a>),
    Rd(rd::Decoder<'a>),
    Raw(raw::Decoder<'a>),
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(column: &'a [u8], count: usize, endian: Endian) -> Result<Self, Error> {
        let mut cursor = Cursor::new(column, 0, endian);
        Ok(match cursor.u8("an ALP column")? {
            DECIMAL => Self::Decimal(decimal::Decoder::new(cursor, count, endian)?),
            RD => Self::Rd(rd::Decoder::new(cursor, count, endian)?),
            RAW => {
                let mut words = cursor.clone();
                words.take(count.saturating_mul(8), "the raw values of an ALP column")?;
                Self::Raw(raw::Decoder::new(&column[cursor.at()..], endian))
            }
            scheme => return Err(Error::corrupt(0, format!("ALP scheme {scheme} is not known"))),
        })
    }

    pub(crate) fn fill(&mut self, out: &mut [f64]) -> Result<(), Error> {
        match self {
            Self::Decimal(decoder) => decoder.fill(out),
            Self::Rd(decoder) => decoder.fill(out)?,
            Self::Raw(decoder) => decoder.fill(out, f64::from_bits).map_err(|error| error.shifted(1))?,
        }
        Ok(())
    }

    pub(crate) fn seek(&mut self, index: usize) {
        match self {
            Self::Decimal(decoder) => decoder.seek(index),
            Self::Rd(decoder) => decoder.seek(index),
            Self::Raw(decoder) => decoder.seek(index),
        }
    }
}

/// A single value is cheapest raw; more may all be equal and take no more than a header.
pub(crate) fn least_len(count: u64) -> u64 {
    if count == 1 { 9 } else { 16 }
}

/// Appends the column of `values` in the scheme the reference writer would choose.
pub(crate) fn encode(values: &[f64], endian: Endian, out: &mut Vec<u8>) {
    let raw_bits = 64 * values.len() as u64;
    let sample = sample(values);
    let decimal = decimal::Plan::new(values, &sample);
    if let Some(plan) = &decimal
        && plan.exceptions.is_empty()
        && plan.bits() <= raw_bits
    {
        return plan.write(endian, out);
    }
    let rd = rd::Plan::new(values, &sample);
    match decimal {
        Some(plan) if plan.bits() <= rd.bits() && plan.bits() <= raw_bits => plan.write(endian, out),
        _ if rd.bits() <= raw_bits => rd.write(values, endian, out),
        _ => {
            out.push(RAW);
            raw::encode(values.iter().map(|v| v.to_bits()), endian, out);
        }
    }
}

/// At most 63 values, evenly spread, that stand for all of them while a scheme is chosen.
fn sample(values: &[f64]) -> Vec<f64> {
    let stride = (values.len() / 32).max(1);
    values.iter().step_by(stride).copied().collect()
}

/// The list of exceptions at the end of a column: `LEN` bytes each, of which four are the position.
#[derive(Clone, Copy)]
struct Exceptions<'a, const LEN: usize> {
    records: &'a [[u8; LEN]],
    endian: Endian,
}

impl<'a, const LEN: usize> Exceptions<'a, LEN> {
    fn read(cursor: &mut Cursor<'a>, listed: u32, count: usize, endian: Endian) -> Result<Self, Error> {
        let start = cursor.at();
        let bytes = cursor.take((listed as usize).saturating_mul(LEN), "the exceptions of an ALP column")?;
        let exceptions = Self { records: bytes.as_chunks::<LEN>().0, endian };
        let mut least = 0;
        for (record, i) in exceptions.records.iter().zip(0..) {
            let position = exceptions.position(record);
            if position < least || position >= count {
                return Err(Error::corrupt(
                    start + i * LEN,
                    format!(
                        "exception {i} is at point {position}, between {least} and {count} was to be expected"
                    ),
                ));
            }
            least = position + 1;
        }
        Ok(exceptions)
    }

    fn position(&self, record: &[u8; LEN]) -> usize {
        self.endian.u32([record[0], record[1], record[2], record[3]]) as usize
    }

    /// Those from point `index` on.
    fn seek(&mut self, index: usize) {
        let passed = self.records.partition_point(|record| self.position(record) < index);
        self.records = &self.records[passed..];
    }

    /// Takes those before point `end`, with their positions.
    fn before(&mut self, end: usize) -> impl Iterator<Item = (usize, &'a [u8; LEN])> {
        std::iter::from_fn(move || {
            let (record, rest) = self.records.split_first()?;
            let position = self.position(record);
            (position < end).then(|| {
                self.records = rest;
                (position, record)
            })
        })
    }
}
