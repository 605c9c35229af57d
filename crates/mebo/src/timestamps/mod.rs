//! Timestamp columns (§7): one file for each encoding.

mod delta;
mod packed;
pub(crate) mod raw;

use crate::bytes::Endian;
use crate::error::Error;
use crate::header::TimestampEncoding;
use crate::varint;

/// Yields the timestamps of one column, a slice at a time.
pub(crate) enum Decoder<'a> {
    Raw(raw::Decoder<'a>),
    Delta(delta::Decoder<'a>),
    Packed(packed::Decoder<'a>),
}

impl<'a> Decoder<'a> {
    /// `count` is what the index says; [`least_len`] has been compared with the column.
    pub(crate) fn new(
        encoding: TimestampEncoding,
        endian: Endian,
        column: &'a [u8],
        count: usize,
        repair: bool,
    ) -> Self {
        match encoding {
            TimestampEncoding::Raw => Self::Raw(raw::Decoder::new(column, endian)),
            TimestampEncoding::Delta => Self::Delta(delta::Decoder::new(column, repair)),
            TimestampEncoding::DeltaPacked => Self::Packed(packed::Decoder::new(column, count)),
        }
    }

    /// Fills `out` with the next timestamps; offsets of errors count from the start of the column.
    pub(crate) fn fill(&mut self, out: &mut [i64]) -> Result<(), Error> {
        match self {
            Self::Raw(decoder) => decoder.fill(out, |bits| bits as i64),
            Self::Delta(decoder) => decoder.fill(out),
            Self::Packed(decoder) => decoder.fill(out),
        }
    }

    /// Goes to point `index` at once, where the encoding allows it; says whether it does.
    pub(crate) fn seek(&mut self, index: usize) -> bool {
        match self {
            Self::Raw(decoder) => decoder.seek(index),
            Self::Delta(_) | Self::Packed(_) => return false,
        }
        true
    }
}

/// The shortest column that can hold `count` points.
pub(crate) fn least_len(encoding: TimestampEncoding, count: u64) -> u64 {
    match encoding {
        TimestampEncoding::Raw => 8 * count,
        TimestampEncoding::Delta => count,
        TimestampEncoding::DeltaPacked => count + count.saturating_sub(2).div_ceil(4),
    }
}

/// Appends the column of `timestamps`.
pub(crate) fn encode(encoding: TimestampEncoding, endian: Endian, timestamps: &[i64], out: &mut Vec<u8>) {
    match encoding {
        TimestampEncoding::Raw => raw::encode(timestamps.iter().map(|&t| t as u64), endian, out),
        TimestampEncoding::Delta => delta::encode(timestamps, out),
        TimestampEncoding::DeltaPacked => packed::encode(timestamps, out),
    }
}

pub(crate) use delta::looks_doubled;

/// Reads a varint of a column, a fault as an error that says what was being read.
#[inline(always)]
fn read_varint(column: &[u8], at: usize) -> Result<(u64, usize), Error> {
    varint::read(column, at).map_err(|fault| varint_error(fault, at, column.len()))
}

#[cold]
fn varint_error(fault: varint::Fault, at: usize, len: usize) -> Error {
    match fault {
        varint::Fault::Ends => Error::truncated(len, "the timestamps end before the last point"),
        varint::Fault::Overflows => Error::corrupt(at, "a timestamp has more than 64 bits"),
    }
}

/// The zigzagged change of the change between points, what both delta encodings store from the third point on (§7.2).
/// The second point's is its distance from the first.
fn second_differences(timestamps: &[i64]) -> impl Iterator<Item = u64> {
    let mut step = 0i64;
    timestamps.windows(2).map(move |pair| {
        let next = pair[1].wrapping_sub(pair[0]);
        let change = next.wrapping_sub(step);
        step = next;
        varint::zigzag(change)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// §14.1 and §14.2: the columns of the worked example.
    #[test]
    fn the_worked_example_encodes_to_its_bytes() {
        let timestamps = [0, 1_000_000, 2_000_000, 3_000_500].map(|t| t + 1_735_689_600_000_000);
        let encoded = |encoding| {
            let mut out = Vec::new();
            encode(encoding, Endian::Little, &timestamps, &mut out);
            out
        };
        let head = [0x80, 0xC0, 0xB1, 0xD0, 0x9B, 0xD3, 0x8A, 0x03, 0x80, 0x89, 0x7A];
        assert_eq!(encoded(TimestampEncoding::Delta), [&head[..], &[0x00, 0xE8, 0x07]].concat());
        assert_eq!(encoded(TimestampEncoding::DeltaPacked), [&head[..], &[0x04, 0x00, 0xE8, 0x03]].concat());
    }

    #[test]
    fn the_shortest_column_of_each_encoding_has_the_least_length() {
        for &encoding in TimestampEncoding::ALL {
            for count in 1..40 {
                let mut out = Vec::new();
                encode(encoding, Endian::Little, &vec![0; count], &mut out);
                assert_eq!(out.len() as u64, least_len(encoding, count as u64), "{count} × {encoding}");
            }
        }
    }

    #[test]
    fn filling_in_pieces_gives_what_filling_at_once_gives() {
        let timestamps: Vec<i64> = (0..300i64).map(|i| i * 1000 + (i * i * 7919) % 1_000_003).collect();
        for &encoding in TimestampEncoding::ALL {
            let mut column = Vec::new();
            encode(encoding, Endian::Big, &timestamps, &mut column);
            for piece in [1, 2, 3, 5, 64, 299, 300] {
                let mut decoder = Decoder::new(encoding, Endian::Big, &column, timestamps.len(), false);
                let mut decoded = vec![0; timestamps.len()];
                for part in decoded.chunks_mut(piece) {
                    decoder.fill(part).expect("a good column");
                }
                assert_eq!(decoded, timestamps, "{encoding} in pieces of {piece}");
            }
        }
    }
}
