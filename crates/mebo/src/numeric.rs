//! Blobs of numbers (§2–§5): opened without decoding anything.

use crate::bytes::Cursor;
use crate::compression::Payload;
use crate::error::{Error, Section};
use crate::header::{Compression, HEADER_LEN, Header, Layout, TimestampEncoding};
use crate::index::{Column, Entry, Index};
use crate::limits::ReadOptions;
use crate::metric::Metric;
use crate::names::{Key, Names};
use crate::{shared, timestamps, values, varint};

/// A blob of numbers over time.
///
/// Opening checks the structure: the header, the index, the names, the table of shared timestamps, and for payloads that
/// are not compressed that every column can hold its points. Payloads that are compressed are restored, whole, when a
/// metric is first decoded, and kept.
///
/// ```
/// # use phalanx_mebo::{Encoder, EncoderOptions, NumericBlob};
/// # let mut encoder = Encoder::new(0, EncoderOptions::default());
/// # encoder.add("cpu.usage", &[0, 1000], &[10.0, 10.5])?;
/// # let bytes = encoder.finish()?;
/// let blob = NumericBlob::open(&bytes)?;
/// for metric in blob.metrics() {
///     for point in metric.points()? {
///         let point = point?;
///         println!("{:#018x} {} {}", metric.id(), point.timestamp, point.value);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct NumericBlob<'a> {
    bytes: &'a [u8],
    header: Header,
    index: Index,
    names: Option<Names>,
    /// For each metric, the one whose timestamp column it reads; `None` where nothing is shared.
    owners: Option<Vec<u32>>,
    timestamps: Payload,
    values: Payload,
    tags: Option<Payload>,
    repair_legacy: bool,
}

impl<'a> NumericBlob<'a> {
    /// Opens a blob: checks its structure, decodes nothing.
    pub fn open(bytes: &'a [u8]) -> Result<Self, Error> {
        Self::open_with(bytes, ReadOptions::default())
    }

    /// Opens a blob with limits of your own.
    pub fn open_with(bytes: &'a [u8], options: ReadOptions) -> Result<Self, Error> {
        let header = Header::read(bytes)?;
        let mut cursor = Cursor::new(bytes, HEADER_LEN, header.endian);
        let names = match header.has_names {
            true => Some(Names::read(&mut cursor, header.metric_count)?),
            false => None,
        };
        let index = Index::read(&mut cursor, header.metric_count, header.extended)?;
        let index_end = cursor.at();
        let limits = options.limits;
        for (entry, i) in index.entries().iter().zip(0..) {
            if entry.count > limits.points_per_metric {
                return Err(Error::too_large(
                    index.place(i),
                    format!(
                        "metric {i} has {} points, the limit is {} (Limits::points_per_metric)",
                        entry.count, limits.points_per_metric
                    ),
                ));
            }
        }
        let names = match names {
            Some(names) => {
                let ids: Vec<u64> = index.entries().iter().map(|entry| entry.id).collect();
                Some(names.match_ids(bytes, &ids, header.layout == Layout::V2)?)
            }
            None => None,
        };

        let [t, v, g] = section_starts(&header, index_end, bytes.len())?;
        let owners = match header.has_shared_timestamps {
            true => {
                let counts: Vec<u32> = index.entries().iter().map(|entry| entry.count).collect();
                Some(shared::read(bytes, index_end, t, header.endian, &counts)?)
            }
            false => None,
        };
        let limit = limits.decompressed_bytes;
        let blob = Self {
            bytes,
            timestamps: Payload::new(header.timestamp_compression, Section::Timestamps, t, v, limit),
            values: Payload::new(header.value_compression, Section::Values, v, g, limit),
            // Tags are a zstd frame whatever the header says of the other payloads (§9.1).
            tags: header
                .has_tags
                .then(|| Payload::new(Compression::Zstd, Section::Tags, g, bytes.len(), limit)),
            header,
            index,
            names,
            owners,
            repair_legacy: options.repair_legacy,
        };
        for column in [Column::Timestamps, Column::Values, Column::Tags] {
            if let Some(payload) = blob.payload(column)
                && payload.is_plain()
            {
                blob.check_columns(column, payload.stored_len())?;
            }
        }
        Ok(blob)
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How many metrics there are.
    pub fn len(&self) -> usize {
        self.index.entries().len()
    }

    /// Whether there are no metrics.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the whole blob.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// All metrics, in the order of the blob: V1 as they were added, V2 by ascending id.
    pub fn metrics(&self) -> impl ExactSizeIterator<Item = Metric<'_>> {
        (0..self.len()).map(|i| Metric::new(self, i))
    }

    /// The metric at a place in the blob's order.
    pub fn metric(&self, index: usize) -> Option<Metric<'_>> {
        (index < self.len()).then(|| Metric::new(self, index))
    }

    /// The metric with an id or a name.
    ///
    /// A name is compared with the stored names where there are any, which is where two names have the same id; otherwise
    /// its hash is looked up. An id that several metrics have finds the last of them.
    pub fn find<'k>(&self, key: impl Into<Key<'k>>) -> Option<Metric<'_>> {
        let key = key.into();
        let places = self.index.find(key.id());
        let found = match (key, &self.names) {
            (Key::Name(name), Some(names)) => {
                places.iter().find(|&&i| names.get(self.bytes, i as usize) == Some(name))
            }
            _ => places.last(),
        };
        found.map(|&i| Metric::new(self, i as usize))
    }

    pub(crate) fn entry(&self, i: usize) -> &Entry {
        &self.index.entries()[i]
    }

    pub(crate) fn name(&self, i: usize) -> Option<&str> {
        self.names.as_ref()?.get(self.bytes, i)
    }

    pub(crate) fn payload(&self, column: Column) -> Option<&Payload> {
        match column {
            Column::Timestamps => Some(&self.timestamps),
            Column::Values => Some(&self.values),
            Column::Tags => self.tags.as_ref(),
        }
    }

    /// Whose timestamp column metric `i` reads.
    pub(crate) fn owner(&self, i: usize) -> usize {
        self.owners.as_ref().map_or(i, |owners| owners[i] as usize)
    }

    /// The bytes of one column and where they start in the payload; decompresses the payload if that was not done yet.
    pub(crate) fn column(&self, i: usize, column: Column) -> Result<Option<(&[u8], usize)>, Error> {
        let Some(payload) = self.payload(column) else { return Ok(None) };
        let bytes = payload.bytes(self.bytes, |plain| self.check_columns(column, plain.len()))?;
        let i = if column == Column::Timestamps { self.owner(i) } else { i };
        let range = self.index.range(i, column, bytes.len());
        #[cfg(test)]
        touched::note(column, i);
        Ok(Some((&bytes[range.clone()], range.start)))
    }

    /// Whether the timestamps of metric `i` are to be read as the defect of §12.2 wrote them.
    pub(crate) fn repairs(&self, i: usize, column: &[u8]) -> bool {
        // The defect was gone before there was a V2 layout; the first metric never had it.
        self.repair_legacy
            && i > 0
            && self.header.layout == Layout::V1
            && self.header.timestamp_encoding == TimestampEncoding::Delta
            && timestamps::looks_doubled(column, self.entry(i).count, self.reference_time())
    }

    /// A time that is right whatever the writer's version: the first of the first metric, or the blob's own.
    fn reference_time(&self) -> i64 {
        match self.column(0, Column::Timestamps) {
            Ok(Some((column, _))) => {
                varint::read(column, 0).map_or(self.header.start_time, |(time, _)| time as i64)
            }
            _ => self.header.start_time,
        }
    }

    /// Checks, before anything is allocated for points, that every column of a payload can hold those the index claims.
    fn check_columns(&self, column: Column, payload_len: usize) -> Result<(), Error> {
        self.index.check_starts(column, payload_len)?;
        for (entry, i) in self.index.entries().iter().zip(0..) {
            if entry.count == 0 {
                continue;
            }
            let count = u64::from(entry.count);
            let (least, owner, what) = match column {
                Column::Timestamps => (
                    timestamps::least_len(self.header.timestamp_encoding, count),
                    self.owner(i),
                    "timestamps",
                ),
                Column::Values => (values::least_len(self.header.value_encoding, count), i, "values"),
                Column::Tags => (count, i, "tags"),
            };
            let len = self.index.range(owner, column, payload_len).len();
            if (len as u64) < least {
                return Err(Error::truncated(
                    self.index.place(i),
                    format!(
                        "the {what} of metric {i} have {len} bytes, {count} points need at least {least}"
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Where timestamps, values and tags start; each behind what comes before it, none behind the end (§2.1).
fn section_starts(header: &Header, index_end: usize, len: usize) -> Result<[usize; 3], Error> {
    let starts =
        [header.timestamps_offset, header.values_offset, header.tags_offset].map(|start| start as usize);
    let mut least = index_end;
    for ((start, what), field) in starts.iter().zip(["timestamps", "values", "tags"]).zip([20, 24, 28]) {
        if *start > len {
            return Err(Error::truncated(
                field,
                format!("the {what} are said to start at byte {start}, the blob ends after {len}"),
            ));
        }
        if *start < least {
            return Err(Error::corrupt(
                field,
                format!("the {what} are said to start at byte {start}, inside what ends at byte {least}"),
            ));
        }
        least = *start;
    }
    Ok(starts)
}

/// Which columns were looked at, for the test that only those of the wanted metric are.
#[cfg(test)]
pub(crate) mod touched {
    use std::cell::RefCell;

    use crate::index::Column;

    thread_local! {
        static TOUCHED: RefCell<Vec<(Column, usize)>> = const { RefCell::new(Vec::new()) };
    }

    pub(crate) fn note(column: Column, metric: usize) {
        TOUCHED.with_borrow_mut(|touched| touched.push((column, metric)));
    }

    pub(crate) fn take() -> Vec<(Column, usize)> {
        TOUCHED.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::{Encoder, EncoderOptions};

    fn two_hundred(options: EncoderOptions) -> Vec<u8> {
        let mut encoder = Encoder::new(0, options);
        for id in 1..=200 {
            let timestamps: Vec<i64> = (0..50).map(|i| i * 1000 + id as i64).collect();
            let values: Vec<f64> = (0..50).map(|i| f64::from(i % 7) + id as f64).collect();
            encoder.add(id, &timestamps, &values).expect("a good metric");
        }
        encoder.finish().expect("a good blob")
    }

    #[test]
    fn decoding_one_metric_of_200_touches_its_columns_only() {
        for layout in [Layout::V1, Layout::V2] {
            let bytes = two_hundred(EncoderOptions { layout, ..EncoderOptions::default() });
            touched::take();
            let blob = NumericBlob::open(&bytes).expect("a good blob");
            assert_eq!(touched::take(), [], "opening decodes nothing");
            let metric = blob.find(77).expect("it was added");
            assert_eq!(touched::take(), [], "finding decodes nothing");
            let (mut timestamps, mut values) = (Vec::new(), Vec::new());
            metric.decode_into(&mut timestamps, &mut values).expect("a good metric");
            assert_eq!(touched::take(), [(Column::Timestamps, 76), (Column::Values, 76)]);
            assert_eq!((timestamps[1], values[1]), (1077, 78.0));
            metric.values_into(&mut values).expect("a good metric");
            assert_eq!(touched::take(), [(Column::Values, 76)], "values without their timestamps");
        }
    }

    #[test]
    fn the_columns_of_other_metrics_may_be_garbage() {
        let mut bytes = two_hundred(EncoderOptions::default());
        let blob = NumericBlob::open(&bytes).expect("a good blob");
        let [times, numbers] = [&blob.timestamps, &blob.values].map(Payload::stored_len);
        let (start, values_start) =
            (blob.header.timestamps_offset as usize, blob.header.values_offset as usize);
        let keep_times = blob.index.range(76, Column::Timestamps, times);
        let keep_values = blob.index.range(76, Column::Values, numbers);
        for i in (0..times).filter(|i| !keep_times.contains(i)) {
            bytes[start + i] = 0xFF;
        }
        for i in (0..numbers).filter(|i| !keep_values.contains(i)) {
            bytes[values_start + i] = 0xFF;
        }
        let blob = NumericBlob::open(&bytes).expect("the structure is as it was");
        let (mut timestamps, mut values) = (Vec::new(), Vec::new());
        let metric = blob.find(77).expect("it was added");
        metric.decode_into(&mut timestamps, &mut values).expect("an untouched metric");
        assert_eq!((timestamps[49], values[49]), (49_077, 77.0));
        let other = blob.find(78).expect("it was added");
        other.decode_into(&mut timestamps, &mut values).expect_err("garbage");
        assert_eq!((timestamps.len(), values.len()), (50, 50), "buffers are as they were");
    }
}
