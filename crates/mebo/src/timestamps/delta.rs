//! The change of the change, a varint a point (§7.2).
//!
//! A point is the one before it plus a step; stored is how much the step changed. A clock that ticks regularly costs
//! one zero byte a point, and eight of those are taken at once; of one that does not, four points are.

use super::{read_varint, second_differences};
use crate::error::Error;
use crate::varint::{self, unzigzag};

pub(crate) struct Decoder<'a> {
    column: &'a [u8],
    at: usize,
    started: bool,
    /// Whether the first point was written by the defect of §12.2.
    repair: bool,
    time: i64,
    step: i64,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(column: &'a [u8], repair: bool) -> Self {
        Self { column, at: 0, started: false, repair, time: 0, step: 0 }
    }

    pub(crate) fn fill(&mut self, out: &mut [i64]) -> Result<(), Error> {
        let mut out = out;
        if !self.started {
            let Some((first, rest)) = out.split_first_mut() else { return Ok(()) };
            *first = self.start()?;
            out = rest;
        }
        let (mut at, mut time, mut step) = (self.at, self.time, self.step);
        while !out.is_empty() {
            if out.len() >= 8
                && let Some(eight) = self.column.get(at..).and_then(<[u8]>::first_chunk::<8>)
            {
                let word = u64::from_le_bytes(*eight);
                if word == 0 {
                    let (slots, rest) = out.split_at_mut(8);
                    for slot in slots {
                        time = time.wrapping_add(step);
                        *slot = time;
                    }
                    at += 8;
                    out = rest;
                    continue;
                }
                if let Some((four, len)) = varint::four_of(word) {
                    let (slots, rest) = out.split_at_mut(4);
                    for (slot, stored) in slots.iter_mut().zip(four) {
                        step = step.wrapping_add(unzigzag(stored));
                        time = time.wrapping_add(step);
                        *slot = time;
                    }
                    at += len;
                    out = rest;
                    continue;
                }
            }
            let (stored, next) = read_varint(self.column, at)?;
            step = step.wrapping_add(unzigzag(stored));
            time = time.wrapping_add(step);
            out[0] = time;
            at = next;
            out = &mut out[1..];
        }
        (self.at, self.time, self.step) = (at, time, step);
        Ok(())
    }

    /// The first point. Where the writer had not forgotten the metric before, it took the first point for a step from
    /// zero: zigzagged, and the next step counts from there.
    fn start(&mut self) -> Result<i64, Error> {
        let (stored, next) = read_varint(self.column, 0)?;
        if self.repair {
            self.time = unzigzag(stored);
            self.step = self.time;
        } else {
            self.time = stored as i64;
        }
        self.at = next;
        self.started = true;
        Ok(self.time)
    }
}

pub(crate) fn encode(timestamps: &[i64], out: &mut Vec<u8>) {
    let Some(&first) = timestamps.first() else { return };
    out.reserve(timestamps.len() + 16);
    varint::write(first as u64, out);
    varint::write_all(second_differences(timestamps), out);
}

/// Whether a column bears the mark of the defect of §12.2: its first point reads as twice what it was.
///
/// Compared is the second point, which that defect leaves right, or `reference`, a time of the same blob, where there
/// is no second. Clocks do not run back to half of their time, so a first point more than half as far again is no time.
pub(crate) fn looks_doubled(column: &[u8], count: u32, reference: i64) -> bool {
    let Ok((first, at)) = varint::read(column, 0) else { return false };
    let time = first as i64;
    let compared = if count < 2 {
        reference
    } else {
        let Ok((second, _)) = varint::read(column, at) else { return false };
        time.wrapping_add(unzigzag(second))
    };
    // A positive time zigzags to an even number.
    first % 2 == 0 && compared > 0 && i128::from(time) * 2 > i128::from(compared) * 3
}
