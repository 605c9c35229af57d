//! Value columns (§8): one file for each encoding. Values are bit patterns; nothing looks at what they mean but ALP,
//! which checks that it gives back the same bits.

mod alp;
mod chimp;
mod gorilla;

use crate::bytes::Endian;
use crate::error::Error;
use crate::header::ValueEncoding;
use crate::timestamps::raw;

/// Yields the values of one column, a slice at a time.
// The variants are as large as their state; one lives on the stack for as long as a column is read.
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub(crate) enum Decoder<'a> {
    Raw(raw::Decoder<'a>),
    Gorilla(gorilla::Decoder<'a>),
    Chimp(chimp::Decoder<'a>),
    Alp(alp::Decoder<'a>),
}

impl<'a> Decoder<'a> {
    /// `count` is what the index says; [`least_len`] has been compared with the column.
    pub(crate) fn new(
        encoding: ValueEncoding,
        endian: Endian,
        column: &'a [u8],
        count: usize,
    ) -> Result<Self, Error> {
        Ok(match encoding {
            ValueEncoding::Raw => Self::Raw(raw::Decoder::new(column, endian)),
            ValueEncoding::Gorilla => Self::Gorilla(gorilla::Decoder::new(column)),
            ValueEncoding::Chimp => Self::Chimp(chimp::Decoder::new(column)),
            ValueEncoding::Alp => Self::Alp(alp::Decoder::new(column, count, endian)?),
        })
    }

    /// Fills `out` with the next values; offsets of errors count from the start of the column.
    pub(crate) fn fill(&mut self, out: &mut [f64]) -> Result<(), Error> {
        match self {
            Self::Raw(decoder) => decoder.fill(out, f64::from_bits),
            Self::Gorilla(decoder) => decoder.fill(out),
            Self::Chimp(decoder) => decoder.fill(out),
            Self::Alp(decoder) => decoder.fill(out),
        }
    }

    /// Goes to point `index` at once, where the encoding allows it; says whether it does.
    pub(crate) fn seek(&mut self, index: usize) -> bool {
        match self {
            Self::Raw(decoder) => decoder.seek(index),
            Self::Alp(decoder) => decoder.seek(index),
            Self::Gorilla(_) | Self::Chimp(_) => return false,
        }
        true
    }
}

/// The shortest column that can hold `count` points, at least one.
pub(crate) fn least_len(encoding: ValueEncoding, count: u64) -> u64 {
    match encoding {
        ValueEncoding::Raw => 8 * count,
        // A whole value, then at least one bit (Gorilla) or two (Chimp) for each more.
        ValueEncoding::Gorilla => 8 + (count - 1).div_ceil(8),
        ValueEncoding::Chimp => 8 + (count - 1).div_ceil(4),
        ValueEncoding::Alp => alp::least_len(count),
    }
}

/// Appends the column of `values`, at least one.
pub(crate) fn encode(encoding: ValueEncoding, endian: Endian, values: &[f64], out: &mut Vec<u8>) {
    match encoding {
        ValueEncoding::Raw => raw::encode(values.iter().map(|v| v.to_bits()), endian, out),
        ValueEncoding::Gorilla => gorilla::encode(values, out),
        ValueEncoding::Chimp => chimp::encode(values, out),
        ValueEncoding::Alp => alp::encode(values, endian, out),
    }
}

/// A bit stream that is not as long as its points need.
#[cold]
fn stream_ends(column: &[u8]) -> Error {
    Error::truncated(column.len(), "the values end before the last point")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(encoding: ValueEncoding, values: &[f64]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(encoding, Endian::Little, values, &mut out);
        out
    }

    /// §14.1 and §14.2: the columns of the worked example.
    #[test]
    fn the_worked_example_encodes_to_its_bytes() {
        let values = [10.0, 10.0, 10.5, 12.0];
        let first = [0x40, 0x24, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            encoded(ValueEncoding::Gorilla, &values),
            [&first[..], &[0x6F, 0x03, 0xB0, 0x3D]].concat()
        );
        assert_eq!(encoded(ValueEncoding::Chimp, &values), [&first[..], &[0x14, 0x20, 0xA8, 0x4D]].concat());
        assert_eq!(
            encoded(ValueEncoding::Alp, &values),
            [0, 1, 0, 5, 0, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x14, 0x0A]
        );
    }

    #[test]
    fn the_shortest_column_of_each_encoding_has_the_least_length() {
        for &encoding in ValueEncoding::ALL {
            for count in 1..40 {
                let len = encoded(encoding, &vec![0.0; count]).len() as u64;
                assert_eq!(len, least_len(encoding, count as u64), "{count} × {encoding}");
            }
        }
    }

    #[test]
    fn filling_in_pieces_gives_what_filling_at_once_gives() {
        let values: Vec<f64> = (0..300)
            .map(|i| match i % 50 {
                0 => f64::NAN,
                1 => -0.0,
                _ => f64::from(i * i % 977) / 8.0,
            })
            .collect();
        for &encoding in ValueEncoding::ALL {
            let column = encoded(encoding, &values);
            for piece in [1, 2, 3, 5, 64, 299, 300] {
                let mut decoder =
                    Decoder::new(encoding, Endian::Little, &column, values.len()).expect("a good column");
                let mut decoded = vec![0.0; values.len()];
                for part in decoded.chunks_mut(piece) {
                    decoder.fill(part).expect("a good column");
                }
                let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&decoded), bits(&values), "{encoding} in pieces of {piece}");
            }
        }
    }
}
