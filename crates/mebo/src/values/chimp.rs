//! XOR with the previous value, in the manner of Chimp (§8.3): leading zeros in eight steps, and four cases.
//!
//! | difference | bits | leading zeros remembered |
//! |---|---|---|
//! | none | `00` | no |
//! | more than 6 trailing zeros | `01`, leading (3 bits), size (6 bits), the size's bits | no |
//! | as many leading zeros as remembered | `10`, all but the leading zeros | as before |
//! | other | `11`, leading (3 bits), all but the leading zeros | yes |

use super::stream_ends;
use crate::bits::{CHUNK, Writer, window};
use crate::error::Error;

/// The leading zeros each code stands for: a count is rounded down to one of these.
const LEADING: [u32; 8] = [0, 8, 12, 16, 18, 20, 22, 24];

/// The code for each count of leading zeros.
const CODE: [u8; 64] = {
    let mut codes = [0; 64];
    let mut zeros = 0;
    while zeros < 64 {
        let mut code = 7;
        while LEADING[code] > zeros as u32 {
            code -= 1;
        }
        codes[zeros] = code as u8;
        zeros += 1;
    }
    codes
};

const TRAILING_THRESHOLD: u32 = 6;

/// Stands for "no leading zeros remembered".
const NONE: u32 = 64;

pub(crate) struct Decoder<'a> {
    column: &'a [u8],
    /// The next bit.
    at: usize,
    started: bool,
    previous: u64,
    leading: u32,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(column: &'a [u8]) -> Self {
        Self { column, at: 0, started: false, previous: 0, leading: NONE }
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
        let (mut at, mut previous, mut leading) = (self.at, self.previous, self.leading);
        for slot in out {
            let bits = window(column, at);
            match bits >> 62 {
                0b00 => {
                    leading = NONE;
                    at += 2;
                }
                0b01 => {
                    let zeros = LEADING[(bits >> 59) as usize & 7];
                    // Six bits cannot say 64; 0 is free for it.
                    let size = match (bits >> 53) as u32 & 63 {
                        0 => 64,
                        size => size,
                    };
                    if zeros + size > 64 {
                        return Err(Error::corrupt(
                            at / 8,
                            format!("{size} bits behind {zeros} zeros do not fit into 64"),
                        ));
                    }
                    previous ^= window(column, at + 11) >> (64 - size) << (64 - zeros - size);
                    leading = NONE;
                    at += 11 + size as usize;
                }
                case => {
                    if case == 0b10 {
                        at += 2;
                    } else {
                        leading = LEADING[(bits >> 59) as usize & 7];
                        at += 5;
                    }
                    if leading == NONE {
                        return Err(Error::corrupt(at / 8, "leading zeros are used before they were stored"));
                    }
                    previous ^= window(column, at) >> leading;
                    at += (64 - leading) as usize;
                }
            }
            *slot = f64::from_bits(previous);
        }
        (self.at, self.previous, self.leading) = (at, previous, leading);
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
    let mut stored = NONE;
    for value in rest {
        let difference = previous ^ value.to_bits();
        previous = value.to_bits();
        if difference == 0 {
            bits.put(0b00, 2);
            stored = NONE;
            continue;
        }
        let code = CODE[difference.leading_zeros() as usize & 63];
        let leading = LEADING[code as usize & 7];
        let trailing = difference.trailing_zeros();
        if trailing > TRAILING_THRESHOLD {
            let size = 64 - leading - trailing;
            let head = 0b01 << 9 | u64::from(code) << 6 | u64::from(size);
            let kept = difference >> trailing;
            if size <= 53 {
                bits.put(head << size | kept, size + 11);
            } else {
                bits.put(head, 11);
                bits.put(kept, size);
            }
            stored = NONE;
        } else if leading == stored {
            bits.put(0b10, 2);
            bits.put(difference, 64 - leading);
        } else {
            bits.put(0b11 << 3 | u64::from(code), 5);
            bits.put(difference, 64 - leading);
            stored = leading;
        }
    }
    bits.finish();
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
    fn leading_zeros_are_rounded_down() {
        let expect = [(0, 0), (7, 0), (8, 1), (11, 1), (12, 2), (15, 2), (16, 3), (17, 3), (18, 4), (19, 4)];
        for (zeros, code) in expect.into_iter().chain([(20, 5), (21, 5), (22, 6), (23, 6), (24, 7), (63, 7)])
        {
            assert_eq!(CODE[zeros], code, "{zeros} zeros");
        }
    }

    #[test]
    fn leading_zeros_before_they_were_stored_are_corrupt() {
        let mut bytes = [0; 24];
        bytes[8] = 0b1000_0000;
        assert_eq!(decode(&bytes, 2).map_err(|e| e.kind()), Err(ErrorKind::Corrupt));
    }

    #[test]
    fn a_size_of_zero_means_64_and_fits_behind_no_zeros_only() {
        // 01, code, 000000, then 64 bits, the first of which is set.
        let mut bytes = vec![0; 8];
        bytes.extend([0b0100_0000, 0b0001_0000, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(decode(&bytes, 2).map(|v| v[1].to_bits()), Ok(1 << 63));
        bytes[8] = 0b0100_1000;
        assert_eq!(decode(&bytes, 2).map_err(|e| (e.kind(), e.offset())), Err((ErrorKind::Corrupt, 8)));
    }

    #[test]
    fn points_behind_the_end_are_missing_not_equal() {
        let bytes = [0x40, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(decode(&bytes, 5), Ok(vec![2.0; 5]));
        assert_eq!(decode(&bytes, 6).map_err(|e| e.kind()), Err(ErrorKind::Truncated));
    }
}
