//! Scheme 0: short decimals as integers.

use super::digits::{MAX, Scale, Span};
use super::{DECIMAL, Exceptions};
use crate::bitpack::{Packed, pack, packed_len};
use crate::bytes::{Cursor, Endian};
use crate::error::Error;

/// Bits of an exception: a position and a double.
const EXCEPTION_BITS: u64 = 96;

/// Bits the reference counts for a header, which decides ties between schemes.
const HEADER_BITS: u64 = 120;

pub(crate) struct Decoder<'a> {
    codes: Packed<'a>,
    min: i64,
    scale: Scale,
    exceptions: Exceptions<'a, 12>,
    /// The next point.
    at: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(mut cursor: Cursor<'a>, count: usize, endian: Endian) -> Result<Self, Error> {
        let [e, f, width] = cursor.array("the header of an ALP column")?;
        if usize::from(e) > MAX || usize::from(f) > MAX {
            return Err(Error::corrupt(1, format!("ALP exponents {e} and {f}, the largest is {MAX}")));
        }
        if width > 64 {
            return Err(Error::corrupt(3, format!("ALP codes of {width} bits, 64 is the widest")));
        }
        let listed = cursor.u32("the header of an ALP column")?;
        let min = cursor.u64("the header of an ALP column")? as i64;
        let len = packed_len(count, width.into());
        let codes = cursor.take(len as usize, "the codes of an ALP column")?;
        let exceptions = Exceptions::read(&mut cursor, listed, count, endian)?;
        let scale = Scale { e: e.into(), f: f.into() };
        Ok(Self { codes: Packed::new(codes, width.into()), min, scale, exceptions, at: 0 })
    }

    pub(super) fn seek(&mut self, index: usize) {
        self.at = index;
        self.exceptions.seek(index);
    }

    pub(super) fn fill(&mut self, out: &mut [f64]) {
        let start = self.at;
        for (slot, i) in out.iter_mut().zip(start..) {
            let digit = self.min.wrapping_add(self.codes.get(i) as i64);
            *slot = self.scale.value(digit);
        }
        self.at += out.len();
        let endian = self.exceptions.endian;
        for (position, &[_, _, _, _, a, b, c, d, e, f, g, h]) in self.exceptions.before(self.at) {
            out[position - start] = f64::from_bits(endian.u64([a, b, c, d, e, f, g, h]));
        }
    }
}

/// A column as scheme 0 would write it.
pub(super) struct Plan {
    scale: Scale,
    span: Span,
    /// The digit of each value; that of an exception is the smallest, which makes its code 0.
    digits: Vec<i64>,
    pub(super) exceptions: Vec<(u32, u64)>,
}

impl Plan {
    /// `None` where no value is a short decimal.
    pub(super) fn new(values: &[f64], sample: &[f64]) -> Option<Self> {
        let scale = best_scale(sample);
        let mut span = Span::EMPTY;
        let mut digits = Vec::with_capacity(values.len());
        let mut exceptions = Vec::new();
        for (value, i) in values.iter().zip(0..) {
            // Bit for bit: −0 equals 0 but is another value.
            match scale.digit(*value).filter(|&digit| scale.value(digit).to_bits() == value.to_bits()) {
                Some(digit) => {
                    span.add(digit);
                    digits.push(digit);
                }
                None => {
                    exceptions.push((i, value.to_bits()));
                    digits.push(0);
                }
            }
        }
        for &(i, _) in &exceptions {
            digits[i as usize] = span.min;
        }
        (!span.is_empty()).then_some(Self { scale, span, digits, exceptions })
    }

    pub(super) fn bits(&self) -> u64 {
        HEADER_BITS
            + self.digits.len() as u64 * u64::from(self.span.width())
            + EXCEPTION_BITS * self.exceptions.len() as u64
    }

    pub(super) fn write(&self, endian: Endian, out: &mut Vec<u8>) {
        out.reserve((self.bits() / 8) as usize + 8);
        let width = self.span.width();
        out.extend_from_slice(&[DECIMAL, self.scale.e as u8, self.scale.f as u8, width as u8]);
        endian.put_u32(self.exceptions.len() as u32, out);
        endian.put_u64(self.span.min as u64, out);
        pack(self.digits.iter().map(|&digit| digit.wrapping_sub(self.span.min) as u64), width, out);
        for &(position, bits) in &self.exceptions {
            endian.put_u32(position, out);
            endian.put_u64(bits, out);
        }
    }
}

/// The scale that writes the sample in the fewest bits; the first of equals.
fn best_scale(sample: &[f64]) -> Scale {
    let mut best = (u64::MAX, Scale { e: 0, f: 0 });
    for e in 0..=MAX {
        for f in 0..=e {
            let scale = Scale { e, f };
            if let Some(estimate) = estimate(sample, scale, best.0) {
                best = (estimate, scale);
            }
        }
    }
    best.1
}

/// The bits of the sample at this scale, or `None` as soon as they are no fewer than `limit`: each further value can
/// only make them more.
fn estimate(sample: &[f64], scale: Scale, limit: u64) -> Option<u64> {
    let mut span = Span::EMPTY;
    let mut bits = 0;
    let mut exceptions = 0;
    for &value in sample {
        match scale.digit(value).filter(|&digit| scale.value(digit) == value) {
            Some(digit) => span.add(digit),
            None => exceptions += 1,
        }
        bits = sample.len() as u64 * u64::from(span.width()) + EXCEPTION_BITS * exceptions;
        if bits >= limit {
            return None;
        }
    }
    Some(bits)
}
