//! How a blob is to be written.

use crate::bytes::Endian;
use crate::header::{Compression, Layout, TimestampEncoding, ValueEncoding};

/// How a blob is written. The default is what suits most: V1, little-endian, delta and Gorilla, nothing compressed.
///
/// ```
/// use phalanx_mebo::{EncoderOptions, Layout, ValueEncoding};
///
/// let options = EncoderOptions { layout: Layout::V2, values: ValueEncoding::Alp, ..EncoderOptions::default() };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderOptions {
    /// Order of the metrics and width of the index.
    pub layout: Layout,
    /// Byte order of the fixed-width fields.
    pub endian: Endian,
    /// Encoding of the timestamps.
    pub timestamps: TimestampEncoding,
    /// Encoding of the values.
    pub values: ValueEncoding,
    /// Compression of the timestamp payload.
    pub timestamp_compression: Compression,
    /// Compression of the value payload.
    pub value_compression: Compression,
    /// Whether equal timestamp columns are stored once. V2 can do that, V1 ignores it.
    pub shared_timestamps: bool,
}

impl Default for EncoderOptions {
    fn default() -> Self {
        Self {
            layout: Layout::V1,
            endian: Endian::Little,
            timestamps: TimestampEncoding::Delta,
            values: ValueEncoding::Gorilla,
            timestamp_compression: Compression::None,
            value_compression: Compression::None,
            shared_timestamps: false,
        }
    }
}

impl EncoderOptions {
    /// The most points of a metric: in V1, as many as fit into 65,535 bytes even if none of them got shorter (§3).
    pub(super) fn points_most(&self) -> u64 {
        if self.layout == Layout::V2 {
            return u32::MAX.into();
        }
        let timestamp = match self.timestamps {
            TimestampEncoding::Raw => 8,
            TimestampEncoding::Delta => 9,
            TimestampEncoding::DeltaPacked => 5,
        };
        let value = match self.values {
            ValueEncoding::Raw => 8,
            ValueEncoding::Gorilla | ValueEncoding::Chimp | ValueEncoding::Alp => 9,
        };
        u64::from(u16::MAX) / timestamp.max(value)
    }
}
