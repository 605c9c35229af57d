//! Writes numeric blobs (§10), byte for byte as the reference writer does where nothing is compressed.

mod columns;
mod error;
mod index;
mod options;

use std::collections::HashMap;

use crate::header::{Compression, HEADER_LEN, Header, Layout};
use crate::names::{self, Key};
use crate::{shared, tags, timestamps, values};
use columns::{Columns, Payload, deltas};
pub use error::EncodeError;
use index::IndexEntry;
pub use options::EncoderOptions;

/// The most metrics of a blob.
const METRICS_MOST: usize = 1 << 16;

/// Collects metrics and writes them as one blob.
///
/// A metric is added whole, in one call: there is no state between calls that could leak from one metric into the next
/// or change the order of points, which is what the known defects of other writers come from (§12.1, §12.2).
///
/// ```
/// use phalanx_mebo::{Encoder, EncoderOptions};
///
/// let mut encoder = Encoder::new(1_735_689_600_000_000, EncoderOptions::default());
/// let timestamps = [0, 1_000_000, 2_000_000, 3_000_500].map(|t| t + 1_735_689_600_000_000);
/// encoder.add("cpu.usage", &timestamps, &[10.0, 10.0, 10.5, 12.0])?;
/// assert_eq!(encoder.finish()?.len(), 74);
/// # Ok::<(), phalanx_mebo::EncodeError>(())
/// ```
#[derive(Debug)]
pub struct Encoder {
    start_time: i64,
    options: EncoderOptions,
    metrics: Vec<Entry>,
    timestamps: Columns,
    values: Columns,
    tags: Columns,
    /// Whether some point has a tag that is not empty.
    tagged: bool,
    /// Whether two names have the same id: then all names are stored.
    collision: bool,
    by_id: HashMap<u64, Vec<u32>>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    /// `None` where metrics are added by id.
    name: Option<String>,
    count: u32,
}

impl Encoder {
    /// An encoder of an empty blob. The start time is a sort key of the blob, by convention the Unix microseconds of its
    /// first point.
    pub fn new(start_time: i64, options: EncoderOptions) -> Self {
        Self {
            start_time,
            options,
            metrics: Vec::new(),
            timestamps: Columns::default(),
            values: Columns::default(),
            tags: Columns::default(),
            tagged: false,
            collision: false,
            by_id: HashMap::new(),
        }
    }

    /// Adds a metric with all its points. After an error the encoder is as it was.
    ///
    /// Timestamps need not ascend. Two steps in a row that differ by 2⁶² or more make a delta that some readers in the
    /// field stop at; no real clock does that.
    pub fn add<'k>(
        &mut self,
        key: impl Into<Key<'k>>,
        timestamps: &[i64],
        values: &[f64],
    ) -> Result<(), EncodeError> {
        self.begin(key.into(), timestamps.len(), values.len(), None)?;
        self.encode(timestamps, values);
        // One empty tag for each point; written only if some other point has one.
        self.tags.push_empty();
        Ok(())
    }

    /// Adds a metric with a tag for each point. Where all tags of a blob are empty, it is written without tags.
    pub fn add_tagged<'k>(
        &mut self,
        key: impl Into<Key<'k>>,
        timestamps: &[i64],
        values: &[f64],
        tags: &[impl AsRef<str>],
    ) -> Result<(), EncodeError> {
        self.begin(key.into(), timestamps.len(), values.len(), Some(tags.len()))?;
        self.encode(timestamps, values);
        self.tagged |= tags.iter().any(|tag| !tag.as_ref().is_empty());
        self.tags.push(|out| tags.iter().for_each(|tag| tags::encode(tag.as_ref(), out)));
        Ok(())
    }

    fn encode(&mut self, timestamps: &[i64], values: &[f64]) {
        let EncoderOptions { endian, timestamps: timestamp_encoding, values: value_encoding, .. } =
            self.options;
        self.timestamps.push(|out| timestamps::encode(timestamp_encoding, endian, timestamps, out));
        self.values.push(|out| values::encode(value_encoding, endian, values, out));
    }

    /// Checks everything that can be wrong with a metric, then takes note of it.
    fn begin(
        &mut self,
        key: Key<'_>,
        timestamps: usize,
        values: usize,
        tags: Option<usize>,
    ) -> Result<(), EncodeError> {
        let metric = || match key {
            Key::Id(id) => format!("{id:#018x}"),
            Key::Name(name) => format!("{name:?}"),
        };
        match key {
            Key::Id(0) => return Err(EncodeError::ZeroId),
            Key::Name("") => return Err(EncodeError::EmptyName),
            _ => {}
        }
        if let Some(first) = self.metrics.first()
            && first.name.is_some() != matches!(key, Key::Name(_))
        {
            return Err(EncodeError::MixedKeys { metric: metric() });
        }
        if timestamps == 0 {
            return Err(EncodeError::NoPoints { metric: metric() });
        }
        if timestamps != values || tags.is_some_and(|tags| tags != timestamps) {
            return Err(EncodeError::Lengths { metric: metric(), timestamps, values, tags });
        }
        let most = self.options.points_most();
        if timestamps as u64 > most {
            return Err(EncodeError::TooManyPoints { metric: metric(), points: timestamps, most });
        }
        if self.metrics.len() == METRICS_MOST {
            return Err(EncodeError::TooManyMetrics { most: METRICS_MOST });
        }
        let name = match key {
            Key::Id(_) => None,
            Key::Name(name) => Some(name),
        };
        let same_id = self.by_id.entry(key.id()).or_default();
        if same_id.iter().any(|&i| self.metrics[i as usize].name.as_deref() == name) {
            return Err(EncodeError::Duplicate { metric: metric() });
        }
        self.collision |= !same_id.is_empty();
        same_id.push(self.metrics.len() as u32);
        self.metrics.push(Entry { id: key.id(), name: name.map(str::to_owned), count: timestamps as u32 });
        Ok(())
    }

    /// Writes the blob.
    pub fn finish(mut self) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        self.finish_into(&mut out)?;
        Ok(out)
    }

    /// Empties the encoder for another blob but keeps its memory, which spares a writer of many blobs asking for it again
    /// each time.
    ///
    /// ```
    /// # use phalanx_mebo::{Encoder, EncoderOptions};
    /// let mut encoder = Encoder::new(0, EncoderOptions::default());
    /// let mut blob = Vec::new();
    /// for start in [0, 60_000_000] {
    ///     encoder.restart(start);
    ///     encoder.add("cpu.usage", &[start], &[10.0])?;
    ///     blob.clear();
    ///     encoder.finish_into(&mut blob)?;
    /// }
    /// # Ok::<(), phalanx_mebo::EncodeError>(())
    /// ```
    pub fn restart(&mut self, start_time: i64) {
        self.start_time = start_time;
        self.metrics.clear();
        self.timestamps.clear();
        self.values.clear();
        self.tags.clear();
        self.by_id.clear();
        (self.tagged, self.collision) = (false, false);
    }

    /// Appends the blob to the caller's buffer; after an error the buffer is as it was.
    pub fn finish_into(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if self.metrics.is_empty() {
            return Err(EncodeError::NoMetrics);
        }
        let options = self.options;
        let mut order: Vec<usize> = (0..self.metrics.len()).collect();
        if options.layout == Layout::V2 {
            // Stable: metrics of the same id stay in the order they were added.
            order.sort_by_key(|&i| self.metrics[i].id);
        }
        if self.tagged {
            self.tags.fill_empty(|i| self.metrics[i].count as usize);
        }
        let mut timestamps = self.timestamps.pick(&order);
        let values = self.values.pick(&order);
        let tags = if self.tagged { self.tags.pick(&order) } else { Vec::new() };

        let mut table = Vec::new();
        if options.layout == Layout::V2 && options.shared_timestamps && order.len() >= 2 {
            let owners = shared::owners(&timestamps);
            if shared::write(&owners, options.endian, &mut table) {
                let shared = owners.iter().zip(0..).filter(|&(&owner, i)| owner != i);
                shared.for_each(|(_, i)| timestamps[i as usize] = &[]);
            }
        }
        let names = self.names(&order)?;
        let index = self.index(&order, &timestamps, &values, &tags)?;
        let extended = options.layout == Layout::V2 && index.iter().any(|entry| !entry.is_compact());
        if options.layout == Layout::V1
            && let Some(i) = index.iter().position(|entry| !entry.is_compact())
        {
            return Err(EncodeError::ColumnTooLarge { before: self.describe(i) });
        }

        let timestamps = Payload::new(timestamps, options.timestamp_compression)?;
        let values = Payload::new(values, options.value_compression)?;
        let tags = Payload::new(tags, Compression::Zstd)?;

        let mut header = Header {
            layout: options.layout,
            extended,
            endian: options.endian,
            has_tags: self.tagged,
            has_names: self.collision,
            has_shared_timestamps: !table.is_empty(),
            timestamp_encoding: options.timestamps,
            value_encoding: options.values,
            timestamp_compression: options.timestamp_compression,
            value_compression: options.value_compression,
            start_time: self.start_time,
            metric_count: index.len() as u32,
            index_offset: (HEADER_LEN + names.len()) as u32,
            timestamps_offset: 0,
            values_offset: 0,
            tags_offset: 0,
        };
        let t = HEADER_LEN + names.len() + index.len() * header.entry_len() + table.len();
        let (v, g) = (t + timestamps.len(), t + timestamps.len() + values.len());
        let size = g + tags.len();
        if u32::try_from(size).is_err() {
            return Err(EncodeError::TooLarge { size });
        }
        (header.timestamps_offset, header.values_offset, header.tags_offset) = (t as u32, v as u32, g as u32);

        out.reserve(size);
        header.write(out);
        out.extend_from_slice(&names);
        index.iter().for_each(|entry| entry.write(extended, options.endian, out));
        out.extend_from_slice(&table);
        for payload in [timestamps, values, tags] {
            payload.write(out);
        }
        Ok(())
    }

    /// The names payload, in the order of the index; empty where no two names have the same id.
    fn names(&self, order: &[usize]) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        if self.collision {
            let name = |i: &usize| self.metrics[*i].name.as_deref().unwrap_or_default();
            if let Some(long) = order.iter().map(name).find(|name| name.len() > usize::from(u16::MAX)) {
                return Err(EncodeError::NameTooLong { bytes: long.len() });
            }
            if order.len() > usize::from(u16::MAX) {
                return Err(EncodeError::TooManyMetrics { most: u16::MAX.into() });
            }
            names::write(order.iter().map(name), self.options.endian, &mut out);
        }
        Ok(out)
    }

    fn index(
        &self,
        order: &[usize],
        timestamps: &[&[u8]],
        values: &[&[u8]],
        tags: &[&[u8]],
    ) -> Result<Vec<IndexEntry>, EncodeError> {
        let (timestamps, values, tags) = (deltas(timestamps)?, deltas(values)?, deltas(tags)?);
        Ok((0..order.len())
            .map(|i| IndexEntry {
                id: self.metrics[order[i]].id,
                count: self.metrics[order[i]].count,
                timestamps: timestamps[i],
                values: values[i],
                tags: tags.get(i).copied().unwrap_or(0),
            })
            .collect())
    }

    fn describe(&self, i: usize) -> String {
        match &self.metrics[i] {
            Entry { name: Some(name), .. } => format!("{name:?}"),
            Entry { id, .. } => format!("{id:#018x}"),
        }
    }
}
