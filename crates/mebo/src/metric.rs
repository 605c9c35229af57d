//! One metric of a numeric blob: decoded whole, point by point, or at one place.

use crate::error::Error;
use crate::header::ValueEncoding;
use crate::index::Column;
use crate::numeric::NumericBlob;
use crate::points::{Point, Points};
use crate::{tags, timestamps, values};

/// One metric of a [`NumericBlob`]. Cheap to copy; nothing is decoded before one of its methods does.
///
/// ```
/// # use phalanx_mebo::{Encoder, EncoderOptions, NumericBlob};
/// # let mut encoder = Encoder::new(0, EncoderOptions::default());
/// # encoder.add(7, &[0, 1000], &[10.0, 10.5])?;
/// # let bytes = encoder.finish()?;
/// let blob = NumericBlob::open(&bytes)?;
/// let metric = blob.find(7).expect("metric 7 was added");
/// assert_eq!(metric.len(), 2);
///
/// // Buffers are appended to, so one pair serves many metrics.
/// let (mut timestamps, mut values) = (Vec::new(), Vec::new());
/// metric.decode_into(&mut timestamps, &mut values)?;
/// assert_eq!((&timestamps[..], &values[..]), (&[0, 1000][..], &[10.0, 10.5][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Metric<'b> {
    blob: &'b NumericBlob<'b>,
    index: usize,
}

impl<'b> Metric<'b> {
    pub(crate) fn new(blob: &'b NumericBlob<'b>, index: usize) -> Self {
        Self { blob, index }
    }

    /// The metric's id: chosen by its owner, or the hash of its name.
    pub fn id(&self) -> u64 {
        self.blob.entry(self.index).id
    }

    /// The metric's name, where the blob stores names: numeric blobs do so only if two names have the same id (§4).
    pub fn name(&self) -> Option<&'b str> {
        self.blob.name(self.index)
    }

    /// Its place in the blob's order.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many points it has.
    pub fn len(&self) -> usize {
        self.blob.entry(self.index).count as usize
    }

    /// Whether it has no points.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its points have tags.
    pub fn has_tags(&self) -> bool {
        self.blob.header().has_tags
    }

    /// The metric whose timestamps this one shares, by place; its own place where it has its own.
    pub fn timestamps_of(&self) -> usize {
        self.blob.owner(self.index)
    }

    /// Bytes of its timestamp column before compression; 0 where another metric's are shared.
    pub fn timestamps_size(&self) -> Result<usize, Error> {
        match self.timestamps_of() == self.index {
            true => self.column(Column::Timestamps).map(|(bytes, _)| bytes.len()),
            false => Ok(0),
        }
    }

    /// Bytes of its value column before compression.
    pub fn values_size(&self) -> Result<usize, Error> {
        self.column(Column::Values).map(|(bytes, _)| bytes.len())
    }

    /// Appends all points to the caller's buffers. After an error the buffers are as they were.
    pub fn decode_into(&self, timestamps: &mut Vec<i64>, values: &mut Vec<f64>) -> Result<(), Error> {
        let before = timestamps.len();
        self.timestamps_into(timestamps)?;
        self.values_into(values).inspect_err(|_| timestamps.truncate(before))
    }

    /// Appends all timestamps to the caller's buffer; looks at no value.
    pub fn timestamps_into(&self, out: &mut Vec<i64>) -> Result<(), Error> {
        let (mut decoder, at) = self.timestamp_decoder()?;
        append(out, self.len(), 0, |slots| decoder.fill(slots))
            .map_err(|error| self.locate(Column::Timestamps, error, at))
    }

    /// Appends all values to the caller's buffer.
    pub fn values_into(&self, out: &mut Vec<f64>) -> Result<(), Error> {
        let (mut decoder, at) = self.value_decoder()?;
        append(out, self.len(), 0.0, |slots| decoder.fill(slots))
            .map_err(|error| self.locate(Column::Values, error, at))
    }

    /// Appends all tags to the caller's buffer; nothing where the blob has none.
    pub fn tags_into(&self, out: &mut Vec<&'b str>) -> Result<(), Error> {
        let Some((mut decoder, at)) = self.tag_decoder()? else { return Ok(()) };
        // One byte of tags for each point was found to be there.
        append(out, self.len(), "", |slots| {
            slots.iter_mut().try_for_each(|slot| decoder.next().map(|tag| *slot = tag))
        })
        .map_err(|error| self.locate(Column::Tags, error, at))
    }

    /// The points one after the other.
    pub fn points(&self) -> Result<Points<'b>, Error> {
        Points::new(*self)
    }

    /// The point at `index`.
    ///
    /// Raw timestamps and raw or ALP values are read where they lie; of the other encodings, whatever comes before the
    /// point is decoded, too.
    ///
    /// # Panics
    ///
    /// If the metric has no such point, as indexing a slice does.
    pub fn point(&self, index: usize) -> Result<Point<'b>, Error> {
        assert!(index < self.len(), "point {index} of a metric of {} points", self.len());
        let (mut decoder, at) = self.timestamp_decoder()?;
        let passed = if decoder.seek(index) { 0 } else { index };
        let timestamp = last_of(passed, 0, |slots| decoder.fill(slots))
            .map_err(|error| self.locate(Column::Timestamps, error, at))?;
        let (mut decoder, at) = self.value_decoder()?;
        let passed = if decoder.seek(index) { 0 } else { index };
        let value = last_of(passed, 0.0, |slots| decoder.fill(slots))
            .map_err(|error| self.locate(Column::Values, error, at))?;
        let tag = match self.tag_decoder()? {
            None => None,
            Some((mut decoder, at)) => decoder
                .skip(index)
                .and_then(|()| decoder.next())
                .map(Some)
                .map_err(|error| self.locate(Column::Tags, error, at))?,
        };
        Ok(Point { timestamp, value, tag })
    }

    /// A decoder of the timestamps, and where they start in their payload.
    pub(crate) fn timestamp_decoder(&self) -> Result<(timestamps::Decoder<'b>, usize), Error> {
        let (column, at) = self.column(Column::Timestamps)?;
        let header = self.blob.header();
        let repair = self.blob.repairs(self.index, column);
        let decoder =
            timestamps::Decoder::new(header.timestamp_encoding, header.endian, column, self.len(), repair);
        Ok((decoder, at))
    }

    /// A decoder of the values, and where they start in their payload.
    pub(crate) fn value_decoder(&self) -> Result<(values::Decoder<'b>, usize), Error> {
        let header = self.blob.header();
        if header.value_encoding == ValueEncoding::Alp {
            // ALP can claim any number of equal values in 16 bytes; the timestamps cannot, and vouch for it.
            self.column(Column::Timestamps)?;
        }
        let (column, at) = self.column(Column::Values)?;
        let decoder = if self.is_empty() {
            values::Decoder::new(ValueEncoding::Raw, header.endian, column, 0)
        } else {
            values::Decoder::new(header.value_encoding, header.endian, column, self.len())
        };
        Ok((decoder.map_err(|error| self.locate(Column::Values, error, at))?, at))
    }

    /// A decoder of the tags, and where they start in their payload.
    pub(crate) fn tag_decoder(&self) -> Result<Option<(tags::Decoder<'b>, usize)>, Error> {
        let column = self.blob.column(self.index, Column::Tags)?;
        Ok(column.map(|(column, at)| (tags::Decoder::new(column), at)))
    }

    fn column(&self, column: Column) -> Result<(&'b [u8], usize), Error> {
        Ok(self.blob.column(self.index, column)?.unwrap_or_default())
    }

    /// An error inside a column as an error of the blob.
    #[cold]
    pub(crate) fn locate(&self, column: Column, error: Error, at: usize) -> Error {
        match self.blob.payload(column) {
            Some(payload) => payload.locate(error, at),
            None => error,
        }
    }
}

/// Appends `count` decoded things to `out`, or nothing.
fn append<T: Clone>(
    out: &mut Vec<T>,
    count: usize,
    blank: T,
    fill: impl FnOnce(&mut [T]) -> Result<(), Error>,
) -> Result<(), Error> {
    let before = out.len();
    out.resize(before + count, blank);
    fill(&mut out[before..]).inspect_err(|_| out.truncate(before))
}

/// Decodes `passed` things on the stack and gives the one behind them.
fn last_of<T: Copy>(
    passed: usize,
    blank: T,
    mut fill: impl FnMut(&mut [T]) -> Result<(), Error>,
) -> Result<T, Error> {
    let mut chunk = [blank; 64];
    let mut left = passed + 1;
    loop {
        let len = left.min(chunk.len());
        fill(&mut chunk[..len])?;
        left -= len;
        if left == 0 {
            return Ok(chunk[len - 1]);
        }
    }
}
