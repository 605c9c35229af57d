//! A blob of either family.

use crate::error::Error;
use crate::header::Family;
use crate::limits::ReadOptions;
use crate::numeric::NumericBlob;
use crate::text::TextBlob;

/// A blob, told apart by its magic number (§1).
///
/// ```
/// # use phalanx_mebo::{Blob, Encoder, EncoderOptions};
/// # let mut encoder = Encoder::new(0, EncoderOptions::default());
/// # encoder.add(7, &[0], &[1.0])?;
/// # let bytes = encoder.finish()?;
/// match Blob::open(&bytes)? {
///     Blob::Numeric(blob) => assert_eq!(blob.len(), 1),
///     Blob::Text(blob) => println!("{} metrics of text", blob.len()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "opened once and lent from then on")]
pub enum Blob<'a> {
    /// Numbers over time.
    Numeric(NumericBlob<'a>),
    /// Texts over time.
    Text(TextBlob<'a>),
}

impl<'a> Blob<'a> {
    /// Opens a blob: checks its structure, decodes nothing.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::open_with(bytes, ReadOptions::default())
    }

    /// Opens a blob with limits of your own.
    pub fn open_with(bytes: &'a [u8], options: ReadOptions) -> Result<Self, Error> {
        match Family::of(bytes)? {
            Family::Numeric => NumericBlob::open_with(bytes, options).map(Self::Numeric),
            Family::Text => TextBlob::open_with(bytes, options).map(Self::Text),
        }
    }
}
