//! The change of the change, four points behind a byte that tells their widths (§7.3).

use std::ops::Range;

use super::{read_varint, second_differences};
use crate::error::Error;
use crate::varint::{self, unzigzag};

/// What a value of tag 0 to 3 keeps of eight bytes: one, two, four or all.
const MASKS: [u64; 4] = [0xFF, 0xFFFF, 0xFFFF_FFFF, u64::MAX];

pub(crate) struct Decoder<'a> {
    column: &'a [u8],
    at: usize,
    /// Points not decoded yet: tells how many values the last group has.
    left: usize,
    started: bool,
    time: i64,
    step: i64,
    /// A group that a caller's slice could not take whole; `ready` are those still to be given out.
    waiting: [i64; 4],
    ready: Range<usize>,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(column: &'a [u8], count: usize) -> Self {
        Self { column, at: 0, left: count, started: false, time: 0, step: 0, waiting: [0; 4], ready: 0..0 }
    }

    pub(crate) fn fill(&mut self, mut out: &mut [i64]) -> Result<(), Error> {
        while !out.is_empty() {
            if self.ready.is_empty() && self.started && self.left >= 4 && out.len() >= 4 {
                let (four, rest) = out.split_at_mut(4);
                self.group(four)?;
                out = rest;
            } else {
                if self.ready.is_empty() {
                    self.refill()?;
                }
                let given = self.ready.len().min(out.len());
                let (now, rest) = out.split_at_mut(given);
                now.copy_from_slice(&self.waiting[self.ready.start..][..given]);
                self.ready.start += given;
                out = rest;
            }
        }
        Ok(())
    }

    /// Decodes into `waiting`: the two points at the start, or the next group.
    fn refill(&mut self) -> Result<(), Error> {
        let mut points = [0; 4];
        let len = if self.started { self.left.min(4) } else { self.left.min(2) };
        if len == 0 {
            return Err(Error::truncated(self.at, "no timestamp follows the last point"));
        }
        if self.started {
            self.group(&mut points[..len])?;
        } else {
            self.start(&mut points[..len])?;
        }
        self.waiting = points;
        self.ready = 0..len;
        Ok(())
    }

    /// The first two points are stored as the delta encoding stores them.
    fn start(&mut self, points: &mut [i64]) -> Result<(), Error> {
        for (slot, i) in points.iter_mut().zip(0..) {
            let (stored, next) = read_varint(self.column, self.at)?;
            if i == 0 {
                self.time = stored as i64;
            } else {
                self.step = unzigzag(stored);
                self.time = self.time.wrapping_add(self.step);
            }
            *slot = self.time;
            self.at = next;
        }
        self.left -= points.len();
        self.started = true;
        Ok(())
    }

    #[inline(always)]
    fn group(&mut self, points: &mut [i64]) -> Result<(), Error> {
        let bytes = self.column.get(self.at..).unwrap_or_default();
        let Some((&control, data)) = bytes.split_first() else { return Err(self.ends()) };
        let mut used = 0;
        for (slot, k) in points.iter_mut().zip(0..) {
            let tag = usize::from(control >> (2 * k) & 3);
            let width = 1 << tag;
            let stored = match data.get(used..).and_then(<[u8]>::first_chunk::<8>) {
                Some(word) => u64::from_le_bytes(*word) & MASKS[tag],
                None => load_at_end(data, used, width).ok_or_else(|| self.ends())?,
            };
            used += width;
            self.step = self.step.wrapping_add(unzigzag(stored));
            self.time = self.time.wrapping_add(self.step);
            *slot = self.time;
        }
        self.at += 1 + used;
        self.left -= points.len();
        Ok(())
    }

    #[cold]
    fn ends(&self) -> Error {
        Error::truncated(self.column.len(), "the timestamps end before the last point")
    }
}

#[cold]
fn load_at_end(data: &[u8], at: usize, width: usize) -> Option<u64> {
    let mut padded = [0; 8];
    padded[..width].copy_from_slice(data.get(at..at + width)?);
    Some(u64::from_le_bytes(padded))
}

pub(crate) fn encode(timestamps: &[i64], out: &mut Vec<u8>) {
    let Some(&first) = timestamps.first() else { return };
    out.reserve(timestamps.len() * 5 / 4 + 24);
    varint::write(first as u64, out);
    let mut changes = second_differences(timestamps);
    if let Some(step) = changes.next() {
        varint::write(step, out);
    }
    while let Some(value) = changes.next() {
        let control = out.len();
        out.push(0);
        let mut tags = put(value, out);
        for k in 1..4 {
            let Some(value) = changes.next() else { break };
            tags |= put(value, out) << (2 * k);
        }
        out[control] = tags;
    }
}

/// Appends a value in the narrowest width; gives the tag of that width.
#[inline(always)]
fn put(value: u64, out: &mut Vec<u8>) -> u8 {
    let bytes = value.to_le_bytes();
    let tag = match value {
        0..=0xFF => 0,
        0x100..=0xFFFF => 1,
        0x1_0000..=0xFFFF_FFFF => 2,
        _ => 3,
    };
    out.extend_from_slice(&bytes[..1 << tag]);
    tag
}
