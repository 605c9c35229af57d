//! The first 32 bytes of a blob (§1, §2, §11): what family it is, how it is encoded, where its sections start.

use std::fmt;

use crate::bytes::{Cursor, Endian};
use crate::error::Error;

/// Bytes of a header, of every family.
pub(crate) const HEADER_LEN: usize = 32;

const MAGIC_MASK: u16 = 0xFFF0;
const NUMERIC_V1: u16 = 0xEA10;
const NUMERIC_V2: u16 = 0xEA20;
const NUMERIC_V2_EXTENDED: u16 = 0xEA30;
const TEXT: u16 = 0xEB10;

const FLAG_TAGS: u16 = 1;
const FLAG_BIG_ENDIAN: u16 = 1 << 1;
const FLAG_NAMES: u16 = 1 << 2;
const FLAG_SHARED: u16 = 1 << 3;

/// What a blob holds, told by its magic number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// Numbers over time.
    Numeric,
    /// Texts over time.
    Text,
}

impl Family {
    /// The family of a blob by its first two bytes, which are little-endian in every blob.
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, Error> {
        match options(bytes)? & MAGIC_MASK {
            NUMERIC_V1 | NUMERIC_V2 | NUMERIC_V2_EXTENDED => Ok(Self::Numeric),
            TEXT => Ok(Self::Text),
            magic => Err(Error::unsupported(
                0,
                format!("magic number {magic:#06x} is none of a Mebo blob (0xea10, 0xea20, 0xea30, 0xeb10)"),
            )),
        }
    }
}

fn options(bytes: &[u8]) -> Result<u16, Error> {
    match bytes {
        [low, high, ..] if bytes.len() >= HEADER_LEN => Ok(u16::from_le_bytes([*low, *high])),
        _ => Err(Error::truncated(
            bytes.len(),
            format!("a header has {HEADER_LEN} bytes, the blob ends after {}", bytes.len()),
        )),
    }
}

/// How a numeric blob orders its metrics and how wide its index is (§3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// Metrics in the order they were added; at most 7,281 points a metric (8,191 where nothing is compressed).
    #[default]
    V1,
    /// Metrics by ascending id; any size; may share timestamps.
    V2,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1 => "V1",
            Self::V2 => "V2",
        })
    }
}

/// Declares an enum of on-disk codes with its names.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $code:literal, $text:literal;)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant = $code,)+ }

        impl $name {
            /// Every one there is.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            fn from_code(code: u8, at: usize) -> Result<Self, Error> {
                match code {
                    $($code => Ok(Self::$variant),)+
                    _ => Err(Error::unsupported(at, format!(concat!($what, " {} is not known"), code))),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)+ })
            }
        }
    };
}

codes! {
    /// How the timestamps of a metric are encoded (§7).
    TimestampEncoding, "timestamp encoding" {
        /// Eight bytes each.
        Raw = 1, "raw";
        /// Delta of deltas, one varint each.
        Delta = 2, "delta";
        /// Delta of deltas, four at a time behind a byte that tells their widths.
        DeltaPacked = 5, "packed";
    }
}

codes! {
    /// How the values of a metric are encoded (§8).
    ValueEncoding, "value encoding" {
        /// Eight bytes each.
        Raw = 1, "raw";
        /// The XOR with the previous value, its zeros cut off.
        Gorilla = 3, "gorilla";
        /// As Gorilla, with cheaper control bits for measured data.
        Chimp = 4, "chimp";
        /// Decimals as scaled integers; other doubles split into a dictionary and the rest.
        Alp = 6, "alp";
    }
}

codes! {
    /// How a payload is compressed as a whole (§9.2).
    Compression, "compression" {
        /// Not at all.
        None = 1, "none";
        /// One Zstandard frame.
        Zstd = 2, "zstd";
        /// One S2 block.
        S2 = 3, "s2";
        /// One LZ4 block without a frame.
        Lz4 = 4, "lz4";
    }
}

/// The header of a numeric blob (§2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Order of the metrics.
    pub layout: Layout,
    /// Whether index entries have 32 bytes instead of 16 (V2 blobs with large columns).
    pub extended: bool,
    /// Byte order of the fixed-width fields.
    pub endian: Endian,
    /// Whether every point has a tag.
    pub has_tags: bool,
    /// Whether the metrics' names are stored.
    pub has_names: bool,
    /// Whether metrics share timestamp columns.
    pub has_shared_timestamps: bool,
    /// Encoding of all timestamp columns.
    pub timestamp_encoding: TimestampEncoding,
    /// Encoding of all value columns.
    pub value_encoding: ValueEncoding,
    /// Compression of the timestamp payload.
    pub timestamp_compression: Compression,
    /// Compression of the value payload.
    pub value_compression: Compression,
    /// A sort key chosen by the writer, by convention Unix microseconds; the timestamps do not depend on it.
    pub start_time: i64,
    /// How many metrics there are.
    pub metric_count: u32,
    /// Where the index is said to start; readers compute the place themselves.
    pub index_offset: u32,
    /// Where the timestamp payload starts.
    pub timestamps_offset: u32,
    /// Where the value payload starts.
    pub values_offset: u32,
    /// Where the tag payload starts.
    pub tags_offset: u32,
}

impl Header {
    /// Bytes of one index entry.
    pub(crate) fn entry_len(&self) -> usize {
        if self.extended { 32 } else { 16 }
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Error> {
        let options = options(bytes)?;
        let (layout, extended) = match options & MAGIC_MASK {
            NUMERIC_V1 => (Layout::V1, false),
            NUMERIC_V2 => (Layout::V2, false),
            NUMERIC_V2_EXTENDED => (Layout::V2, true),
            magic => {
                return Err(Error::unsupported(
                    0,
                    format!("magic number {magic:#06x} is none of a numeric blob"),
                ));
            }
        };
        let endian = endian_of(options);
        let mut fields = Cursor::new(bytes, 2, endian);
        let encodings = fields.u8("header")?;
        let compressions = fields.u8("header")?;
        Ok(Self {
            layout,
            extended,
            endian,
            has_tags: options & FLAG_TAGS != 0,
            has_names: options & FLAG_NAMES != 0,
            has_shared_timestamps: options & FLAG_SHARED != 0,
            timestamp_encoding: TimestampEncoding::from_code(encodings & 0x0F, 2)?,
            value_encoding: ValueEncoding::from_code(encodings >> 4, 2)?,
            timestamp_compression: Compression::from_code(compressions & 0x0F, 3)?,
            value_compression: Compression::from_code(compressions >> 4, 3)?,
            start_time: fields.u64("header")? as i64,
            metric_count: fields.u32("header")?,
            index_offset: fields.u32("header")?,
            timestamps_offset: fields.u32("header")?,
            values_offset: fields.u32("header")?,
            tags_offset: fields.u32("header")?,
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let magic = match (self.layout, self.extended) {
            (Layout::V1, _) => NUMERIC_V1,
            (Layout::V2, false) => NUMERIC_V2,
            (Layout::V2, true) => NUMERIC_V2_EXTENDED,
        };
        let flag = |on: bool, flag: u16| if on { flag } else { 0 };
        let options = magic
            | flag(self.has_tags, FLAG_TAGS)
            | flag(self.endian == Endian::Big, FLAG_BIG_ENDIAN)
            | flag(self.has_names, FLAG_NAMES)
            | flag(self.has_shared_timestamps, FLAG_SHARED);
        out.extend_from_slice(&options.to_le_bytes());
        out.push(self.timestamp_encoding as u8 | (self.value_encoding as u8) << 4);
        out.push(self.timestamp_compression as u8 | (self.value_compression as u8) << 4);
        self.endian.put_u64(self.start_time as u64, out);
        for field in [
            self.metric_count,
            self.index_offset,
            self.timestamps_offset,
            self.values_offset,
            self.tags_offset,
        ] {
            self.endian.put_u32(field, out);
        }
    }
}

/// The header of a text blob (§11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextHeader {
    /// Byte order of the fixed-width fields.
    pub endian: Endian,
    /// Whether every point has a tag.
    pub has_tags: bool,
    /// Whether the metrics' names are stored.
    pub has_names: bool,
    /// Encoding of the timestamps: raw or delta.
    pub timestamp_encoding: TimestampEncoding,
    /// Compression of the data section.
    pub compression: Compression,
    /// What the first timestamp of each metric counts from, by convention Unix microseconds.
    pub start_time: i64,
    /// How many metrics there are.
    pub metric_count: u32,
    /// Where the index is said to start; readers compute the place themselves.
    pub index_offset: u32,
    /// Where the data section starts.
    pub data_offset: u32,
    /// Bytes of the data section before compression.
    pub data_size: u32,
}

impl TextHeader {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Error> {
        let options = options(bytes)?;
        if options & MAGIC_MASK != TEXT {
            let magic = options & MAGIC_MASK;
            return Err(Error::unsupported(0, format!("magic number {magic:#06x} is none of a text blob")));
        }
        if options & FLAG_SHARED != 0 {
            return Err(Error::unsupported(0, "a text blob cannot share timestamps, but bit 3 says so"));
        }
        let endian = endian_of(options);
        let mut fields = Cursor::new(bytes, 2, endian);
        let timestamp_encoding = TimestampEncoding::from_code(fields.u8("header")?, 2)?;
        if timestamp_encoding == TimestampEncoding::DeltaPacked {
            return Err(Error::unsupported(2, "text blobs have no packed timestamps"));
        }
        let header = Self {
            endian,
            has_tags: options & FLAG_TAGS != 0,
            has_names: options & FLAG_NAMES != 0,
            timestamp_encoding,
            compression: Compression::from_code(fields.u8("header")?, 3)?,
            start_time: fields.u64("header")? as i64,
            metric_count: fields.u32("header")?,
            index_offset: fields.u32("header")?,
            data_offset: fields.u32("header")?,
            data_size: fields.u32("header")?,
        };
        match fields.u32("header")? {
            0 => Ok(header),
            reserved => {
                Err(Error::unsupported(28, format!("reserved bytes of the header hold {reserved:#x}, not 0")))
            }
        }
    }
}

fn endian_of(options: u16) -> Endian {
    if options & FLAG_BIG_ENDIAN != 0 { Endian::Big } else { Endian::Little }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_as_it_was_written() {
        for endian in [Endian::Little, Endian::Big] {
            let header = Header {
                layout: Layout::V2,
                extended: true,
                endian,
                has_tags: true,
                has_names: false,
                has_shared_timestamps: true,
                timestamp_encoding: TimestampEncoding::DeltaPacked,
                value_encoding: ValueEncoding::Alp,
                timestamp_compression: Compression::S2,
                value_compression: Compression::Lz4,
                start_time: -5,
                metric_count: 1,
                index_offset: 32,
                timestamps_offset: 64,
                values_offset: 70,
                tags_offset: 90,
            };
            let mut bytes = Vec::new();
            header.write(&mut bytes);
            assert_eq!(bytes.len(), HEADER_LEN);
            assert_eq!(bytes[..2], if endian == Endian::Big { [0x3B, 0xEA] } else { [0x39, 0xEA] });
            assert_eq!(Header::read(&bytes), Ok(header));
        }
    }
}
