//! Several blobs of one context, read as one series for each metric (§11.1).

use std::collections::HashSet;

use crate::blob::Blob;
use crate::error::Error;
use crate::metric::Metric;
use crate::names::Key;
use crate::numeric::NumericBlob;
use crate::points::{Point, Points};
use crate::text::{TextBlob, TextMetric, TextPoints};

/// Blobs of one context, by their start times.
///
/// There is no file of a set: it is blobs side by side. A metric's points are those of the first blob that has it, then
/// those of the next, as they are stored; nothing is sorted or made unique.
///
/// ```
/// # use phalanx_mebo::{Blob, BlobSet, Encoder, EncoderOptions};
/// # let blob = |start: i64, value: f64| {
/// #     let mut encoder = Encoder::new(start, EncoderOptions::default());
/// #     encoder.add("cpu.usage", &[start], &[value]).and_then(|()| encoder.finish())
/// # };
/// let (later, earlier) = (blob(2_000, 2.0)?, blob(1_000, 1.0)?);
/// let set = BlobSet::new([Blob::open(&later)?, Blob::open(&earlier)?]);
/// let cpu = set.series("cpu.usage");
/// assert_eq!(cpu.len(), 2);
/// assert_eq!(cpu.point(0)?.value, 1.0);
/// assert_eq!(cpu.duration()?, Some(1_000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct BlobSet<'a> {
    numeric: Vec<NumericBlob<'a>>,
    text: Vec<TextBlob<'a>>,
}

impl<'a> BlobSet<'a> {
    /// A set of these blobs. Of blobs with the same start time, the one named first comes first.
    pub fn new(blobs: impl IntoIterator<Item = Blob<'a>>) -> Self {
        let mut set = Self::default();
        for blob in blobs {
            match blob {
                Blob::Numeric(blob) => set.numeric.push(blob),
                Blob::Text(blob) => set.text.push(blob),
            }
        }
        set.numeric.sort_by_key(|blob| blob.header().start_time);
        set.text.sort_by_key(|blob| blob.header().start_time);
        set
    }

    /// The blobs of numbers by start time.
    pub fn numeric(&self) -> &[NumericBlob<'a>] {
        &self.numeric
    }

    /// The blobs of texts by start time.
    pub fn text(&self) -> &[TextBlob<'a>] {
        &self.text
    }

    /// The ids of all metrics of numbers, in the order they first appear.
    pub fn ids(&self) -> Vec<u64> {
        let mut seen = HashSet::new();
        let ids = self.numeric.iter().flat_map(|blob| blob.metrics().map(|metric| metric.id()));
        ids.filter(|id| seen.insert(*id)).collect()
    }

    /// The ids of all metrics of texts, in the order they first appear.
    pub fn text_ids(&self) -> Vec<u64> {
        let mut seen = HashSet::new();
        let ids = self.text.iter().flat_map(|blob| blob.metrics().map(|metric| metric.id()));
        ids.filter(|id| seen.insert(*id)).collect()
    }

    /// A metric of numbers over all blobs that have it; empty where none has.
    pub fn series<'k>(&self, key: impl Into<Key<'k>>) -> Series<Metric<'_>> {
        let key = key.into();
        Series { parts: self.numeric.iter().filter_map(|blob| blob.find(key)).collect() }
    }

    /// A metric of texts over all blobs that have it; empty where none has.
    pub fn text_series<'k>(&self, key: impl Into<Key<'k>>) -> Series<TextMetric<'_>> {
        let key = key.into();
        Series { parts: self.text.iter().filter_map(|blob| blob.find(key)).collect() }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Metric<'_> {}
    impl Sealed for super::TextMetric<'_> {}
}

/// A metric of one blob, of either family, as a part of a [`Series`].
pub trait Part<'b>: sealed::Sealed + Copy {
    /// What its values are.
    type Value: 'b;
    /// Its points one after the other.
    type Points: Iterator<Item = Result<Point<'b, Self::Value>, Error>>;

    /// How many points it has.
    fn count(self) -> usize;
    /// Its points one after the other.
    fn iterate(self) -> Result<Self::Points, Error>;
    /// The point at a place it has.
    fn at(self, index: usize) -> Result<Point<'b, Self::Value>, Error>;
    /// Appends all its points to the caller's buffers.
    fn append_to(self, timestamps: &mut Vec<i64>, values: &mut Vec<Self::Value>) -> Result<(), Error>;
}

impl<'b> Part<'b> for Metric<'b> {
    type Value = f64;
    type Points = Points<'b>;

    fn count(self) -> usize {
        self.len()
    }

    fn iterate(self) -> Result<Points<'b>, Error> {
        self.points()
    }

    fn at(self, index: usize) -> Result<Point<'b>, Error> {
        self.point(index)
    }

    fn append_to(self, timestamps: &mut Vec<i64>, values: &mut Vec<f64>) -> Result<(), Error> {
        self.decode_into(timestamps, values)
    }
}

impl<'b> Part<'b> for TextMetric<'b> {
    type Value = &'b str;
    type Points = TextPoints<'b>;

    fn count(self) -> usize {
        self.len()
    }

    fn iterate(self) -> Result<TextPoints<'b>, Error> {
        self.points()
    }

    fn at(self, index: usize) -> Result<Point<'b, &'b str>, Error> {
        self.point(index)
    }

    fn append_to(self, timestamps: &mut Vec<i64>, values: &mut Vec<&'b str>) -> Result<(), Error> {
        self.decode_into(timestamps, values)
    }
}

/// One metric over the blobs of a [`BlobSet`].
#[derive(Debug, Clone)]
pub struct Series<M> {
    parts: Vec<M>,
}

impl<'b, M: Part<'b>> Series<M> {
    /// The metric in each blob that has it.
    pub fn parts(&self) -> &[M] {
        &self.parts
    }

    /// How many points it has in all blobs.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.count()).sum()
    }

    /// Whether it has no points.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The points one after the other, blob by blob.
    pub fn points(&self) -> impl Iterator<Item = Result<Point<'b, M::Value>, Error>> {
        self.parts.iter().flat_map(|part| {
            let (points, error) = match part.iterate() {
                Ok(points) => (Some(points), None),
                Err(error) => (None, Some(Err(error))),
            };
            points.into_iter().flatten().chain(error)
        })
    }

    /// Appends all points to the caller's buffers. After an error the buffers are as they were.
    pub fn decode_into(&self, timestamps: &mut Vec<i64>, values: &mut Vec<M::Value>) -> Result<(), Error> {
        let before = (timestamps.len(), values.len());
        for part in &self.parts {
            if let Err(error) = part.append_to(timestamps, values) {
                timestamps.truncate(before.0);
                values.truncate(before.1);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The point at `index`, counted over all blobs.
    ///
    /// # Panics
    ///
    /// If the series has no such point, as indexing a slice does.
    pub fn point(&self, index: usize) -> Result<Point<'b, M::Value>, Error> {
        let mut left = index;
        for part in &self.parts {
            if left < part.count() {
                return part.at(left);
            }
            left -= part.count();
        }
        panic!("point {index} of a series of {} points", self.len());
    }

    /// The last timestamp minus the first one; `None` where there are no points.
    pub fn duration(&self) -> Result<Option<i64>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let (first, last) = (self.point(0)?, self.point(self.len() - 1)?);
        Ok(Some(last.timestamp.wrapping_sub(first.timestamp)))
    }
}
