//! XOR with the previous value, the zeros around the difference cut off (§8.2).
//!
//! | difference | bits |
//! |---|---|
//! | none | `0` |
//! | inside the last window | `10`, the window's bits |
//! | elsewhere | `11`, leading zeros (5 bits), size − 1 (6 bits), the bits of the new window |

use super::stream_ends;
use crate::bits::{CHUNK, Writer, window};
use crate::error::Error;

/// Leading zeros are stored in five bits.
const MOST_LEADING: u32 = 31;

pub(crate) struct Decoder<'a> {
    column: &'a [u8],
    /// The next bit.
    at: usize,
    started: bool,
    previous: u64,
    /// Bits of the window; 0 before there is one.
    size: u32,
    /// Zeros behind the window.
    trailing: u32,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(column: &'a [u8]) -> Self {
        Self { column, at: 0, started: false, previous: 0, size: 0, trailing: 0 }
    }

    pub(crate) fn fill(&mut self, mut out: &mut [f64]) -> Result<(), Error> {
        if !self.started {
            let Some((first, rest)) = out.split_first_mut() else { return Ok(()) };
            self.previous = window(self.column, 0);
            self.at = 64;
            self.started = true;
            *first = f64::from_bits(self.previous);
            out = rest;
        }
        let column = self.column;
        let (mut at, mut previous, mut size, mut trailing) =
            (self.at, self.previous, self.size, self.trailing);
        let mut slots = out.iter_mut();
        while let Some(slot) = slots.next() {
            let bits = window(column, at);
            if bits >> 63 == 0 {
                *slot = f64::from_bits(previous);
                at += 1;
                if bits >> 56 == 0 {
                    // A value that stands still: all of its zeros at once.
                    let more = bits.leading_zeros() as usize - 1;
                    at += slots.by_ref().take(more).map(|slot| *slot = f64::from_bits(previous)).count();
                }
                continue;
            }
            let head = if bits >> 62 == 0b10 {
                if size == 0 {
                    return Err(Error::corrupt(at / 8, "a window is used before there is one"));
                }
                2
            } else {
                let leading = (bits >> 57) as u32 & 31;
                size = ((bits >> 51) as u32 & 63) + 1;
                if leading + size > 64 {
                    return Err(Error::corrupt(
                        at / 8,
                        format!("a window of {size} bits behind {leading} zeros does not fit into 64"),
                    ));
                }
                trailing = 64 - leading - size;
                13
            };
            // Mostly what follows the head is at hand already.
            let kept = if head + size <= 64 { bits << head } else { window(column, at + head as usize) };
            previous ^= kept >> (64 - size) << trailing;
            at += (head + size) as usize;
            *slot = f64::from_bits(previous);
        }
        (self.at, self.previous, self.size, self.trailing) = (at, previous, size, trailing);
        // Behind its end a column reads as zeros, "no difference": it is enough to look here.
        if at > column.len() * 8 { Err(stream_ends(column)) } else { Ok(()) }
    }
}

pub(crate) fn encode(values: &[f64], out: &mut Vec<u8>) {
    let Some((first, rest)) = values.split_first() else { return };
    out.reserve(values.len() * 4 + 16);
    let mut chunk = [0; CHUNK];
    let mut bits = Writer::new(out, &mut chunk);
    let mut previous = first.to_bits();
    bits.put(previous, 64);
    // No difference has 64 leading zeros, so none fits before there is a window.
    let (mut leading, mut trailing, mut size) = (64, 64, 0);
    for value in rest {
        let difference = previous ^ value.to_bits();
        previous = value.to_bits();
        if difference == 0 {
            bits.put(0, 1);
            continue;
        }
        let (l, t) = zeros(difference);
        if l >= leading && t >= trailing {
            let kept = difference >> trailing;
            if size <= 62 {
                bits.put(0b10 << size | kept, size + 2);
            } else {
                bits.put(0b10, 2);
                bits.put(kept, size);
            }
        } else {
            (leading, trailing, size) = (l, t, 64 - l - t);
            let head = 0b11 << 11 | u64::from(l) << 6 | u64::from(size - 1);
            let kept = difference >> trailing;
            if size <= 51 {
                bits.put(head << size | kept, size + 13);
            } else {
                bits.put(head, 13);
                bits.put(kept, size);
            }
        }
    }
    bits.finish();
}

/// Leading and trailing zeros of a difference. Where there are more leading ones than five bits can say, the window
/// slides down and keeps its size as far as it can.
#[inline(always)]
fn zeros(difference: u64) -> (u32, u32) {
    let (leading, trailing) = (difference.leading_zeros(), difference.trailing_zeros());
    if leading > MOST_LEADING {
        (MOST_LEADING, trailing.saturating_sub(leading - MOST_LEADING))
    } else {
        (leading, trailing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn decode(bytes: &[u8], count: usize) -> Result<Vec<f64>, Error> {
        let mut out = vec![0.0; count];
        Decoder::new(bytes).fill(&mut out).map(|()| out)
    }

    #[test]
    fn a_window_before_there_is_one_is_corrupt() {
        let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0b1000_0000];
        assert_eq!(decode(&bytes, 2).map_err(|e| e.kind()), Err(ErrorKind::Corrupt));
    }

    #[test]
    fn a_window_wider_than_a_word_is_corrupt() {
        // 31 zeros and 64 bits.
        let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF];
        assert_eq!(decode(&bytes, 2).map_err(|e| (e.kind(), e.offset())), Err((ErrorKind::Corrupt, 8)));
    }

    #[test]
    fn points_behind_the_end_are_missing_not_equal() {
        let bytes = [0x40, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(decode(&bytes, 9), Ok(vec![2.0; 9]));
        assert_eq!(decode(&bytes, 10).map_err(|e| e.kind()), Err(ErrorKind::Truncated));
    }
}
