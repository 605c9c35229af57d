//! The T-chart codec: reads and writes Mebo blobs, compressed columns of time series.
//!
//! A blob holds many metrics. All timestamps of a metric form one column and all values another; columns of all metrics
//! stand one after the other in a payload, and an index says where each begins. [`Blob::open`] reads the index and
//! checks that it fits; nothing is decoded until a metric is asked for, and then only that metric's columns.
//!
//! ```
//! use phalanx_mebo::{Encoder, EncoderOptions, NumericBlob};
//!
//! let mut encoder = Encoder::new(1_735_689_600_000_000, EncoderOptions::default());
//! encoder.add("cpu.usage", &[1_735_689_600_000_000, 1_735_689_601_000_000], &[10.0, 10.5])?;
//! encoder.add("mem.free", &[1_735_689_600_000_000], &[512.0])?;
//! let bytes = encoder.finish()?;
//!
//! let blob = NumericBlob::open(&bytes)?;
//! let cpu = blob.find("cpu.usage").expect("it was added");
//! let (mut timestamps, mut values) = (Vec::new(), Vec::new());
//! cpu.decode_into(&mut timestamps, &mut values)?;
//! assert_eq!(values, [10.0, 10.5]);
//! assert_eq!(cpu.point(1)?.timestamp, 1_735_689_601_000_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to | see |
//! |---|---|
//! | read a blob of numbers | [`NumericBlob`], [`Metric`] |
//! | read a blob of texts | [`TextBlob`], [`TextMetric`] |
//! | read either, told apart by its first bytes | [`Blob`] |
//! | read several blobs as one series per metric | [`BlobSet`], [`Series`] |
//! | write a blob of numbers | [`Encoder`] |
//! | bound what a hostile blob can cost | [`Limits`] |
//!
//! The section numbers (§) in this crate's docs are those of the format's specification; `docs/mebo.md` explains the
//! format to newcomers.

mod bitpack;
mod bits;
mod blob;
mod bytes;
mod compression;
mod encoder;
mod error;
mod header;
mod index;
mod limits;
mod metric;
mod names;
mod numeric;
mod points;
mod set;
mod shared;
mod tags;
mod text;
mod timestamps;
mod values;
mod varint;

pub use blob::Blob;
pub use bytes::Endian;
pub use encoder::{EncodeError, Encoder, EncoderOptions};
pub use error::{Error, ErrorKind, Section};
pub use header::{Compression, Family, Header, Layout, TextHeader, TimestampEncoding, ValueEncoding};
pub use limits::{Limits, ReadOptions};
pub use metric::Metric;
pub use names::Key;
pub use numeric::NumericBlob;
pub use points::{Point, Points};
pub use set::{BlobSet, Part, Series};
pub use text::{TextBlob, TextMetric, TextPoints};
