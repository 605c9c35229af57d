//! Traces of a run: stored as Mebo blobs, decoded as far as the equations need them, and taken in from files.
//!
//! ```
//! use phalanx_defender::traces::{Recording, Traces};
//!
//! let recording = Recording::from_csv(b"time,RF_POWER,TEMP\n0,500,20\n1000000,502,21\n")?;
//! let chunks = recording.to_chunks()?;
//! let traces = Traces::decode(&chunks, &["RF_POWER".to_owned(), "GAS".to_owned()])?;
//! assert_eq!(traces.column(0).unwrap().values(), [500.0, 502.0]);
//! assert!(traces.column(1).is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod csv;
mod encoded;
mod json;
mod recording;

use phalanx_mebo::{Blob, Key, Limits, Metric, NumericBlob, ReadOptions};
use phalanx_spc::equation::{Column, Outcome};
use thiserror::Error;

pub use encoded::EncodedTraces;
pub use recording::{MAX_INPUT, MAX_POINTS, MAX_SVIDS, Recording, RecordingError, Series};

use crate::strategy::Charts;

/// The most points of one SVID in a chunk, and the most bytes a compressed part of it may become: far above any run,
/// far below what would hurt.
const LIMITS: Limits = Limits { decompressed_bytes: 128 << 20, points_per_metric: 1 << 22 };

/// A T-chart that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TraceError {
    /// There is no chunk.
    #[error("the run has no traces: it needs at least one chunk")]
    Empty,
    /// A chunk is corrupt, cut short, or of a kind this program does not know.
    #[error("chunk {chunk} of the T-chart cannot be read: {error}")]
    Chunk {
        /// Which chunk; the first is 1.
        chunk: usize,
        /// What is wrong with it.
        error: phalanx_mebo::Error,
    },
    /// What the equations need of it would take too much memory.
    #[error("the SVIDs in use have {points} points, {MAX_POINTS} is the most")]
    TooLarge {
        /// How many points they claim to have.
        points: usize,
    },
}

/// Decoded columns of some SVIDs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traces {
    start: i64,
    points: u64,
    svids: usize,
    /// Timestamps; SVIDs that were sampled together share theirs.
    times: Vec<Vec<i64>>,
    /// Of each wanted SVID: which timestamps, and its values.
    columns: Vec<Option<(usize, Vec<f64>)>>,
}

/// Where timestamps come from: the chunks, and the places of those who own them there.
type Source = Vec<(usize, usize)>;

/// The parts of an SVID: in which chunks, and where.
type Parts<'b> = Vec<(usize, Metric<'b>)>;

impl Traces {
    /// Decodes these SVIDs, and nothing else, from the chunks of a T-chart in their order. An SVID that is in none of
    /// them has no column. Points that are not in the order of time are put into it.
    pub fn decode<B: AsRef<[u8]>>(chunks: &[B], svids: &[String]) -> Result<Self, TraceError> {
        let blobs = open(chunks)?;
        let mut traces = Self {
            start: start(&blobs)?,
            points: point_count(&blobs),
            svids: svid_count(&blobs),
            ..Self::default()
        };
        // A few bytes can claim any number of points: they are counted before anything is made for them.
        let mut wanted = 0;
        let mut known: Vec<(Source, Option<Vec<usize>>)> = Vec::new();
        for svid in svids {
            let key = key(svid);
            let parts: Parts<'_> =
                blobs.iter().filter_map(|(chunk, blob)| Some((*chunk, blob.find(key)?))).collect();
            if parts.is_empty() {
                traces.columns.push(None);
                continue;
            }
            wanted += parts.iter().map(|(_, metric)| metric.len()).sum::<usize>();
            if wanted > MAX_POINTS {
                return Err(TraceError::TooLarge { points: wanted });
            }
            let shared: Source =
                parts.iter().map(|(chunk, metric)| (*chunk, metric.timestamps_of())).collect();
            let place = match known.iter().position(|(other, _)| *other == shared) {
                Some(place) => place,
                None => {
                    let mut times = gather(&parts, Metric::timestamps_into)?;
                    known.push((shared, put_in_order(&mut times)));
                    traces.times.push(times);
                    known.len() - 1
                }
            };
            let mut values = gather(&parts, Metric::values_into)?;
            if let Some(order) = &known[place].1 {
                values = order.iter().map(|&i| values[i]).collect();
            }
            traces.columns.push(Some((place, values)));
        }
        Ok(traces)
    }

    /// When the run began: the earliest of the first points of all SVIDs, decoded or not, in microseconds.
    pub fn start(&self) -> i64 {
        self.start
    }

    /// When it ended: the latest point of the SVIDs that were decoded, in microseconds.
    pub fn end(&self) -> i64 {
        self.times.iter().filter_map(|times| times.last()).copied().max().unwrap_or(self.start)
    }

    /// How many points the T-chart has in all SVIDs.
    pub fn points(&self) -> u64 {
        self.points
    }

    /// How many SVIDs the T-chart has.
    pub fn svids(&self) -> usize {
        self.svids
    }

    /// The column of a wanted SVID, by its place among those.
    pub fn column(&self, place: usize) -> Option<Column<'_>> {
        let (times, values) = self.columns.get(place)?.as_ref()?;
        // As many as there are points, and in order: decoding has seen to both.
        Column::new(&self.times[*times], values).ok()
    }

    /// What each chart's equation comes to, in the order of the charts; the traces must be of [`Charts::svids`].
    pub fn evaluate(&self, charts: &Charts) -> Vec<Outcome> {
        let columns: Vec<Option<Column<'_>>> =
            (0..self.columns.len()).map(|place| self.column(place)).collect();
        let mut chosen = Vec::new();
        charts
            .with_columns()
            .map(|(chart, places)| {
                chosen.clear();
                chosen.extend(places.iter().map(|&place| columns.get(place).copied().flatten()));
                chart.equation.evaluate(self.start, &chosen)
            })
            .collect()
    }
}

/// Opens the chunks that have numbers: texts have none to calculate with.
fn open<B: AsRef<[u8]>>(chunks: &[B]) -> Result<Vec<(usize, NumericBlob<'_>)>, TraceError> {
    let options = ReadOptions { limits: LIMITS, ..ReadOptions::default() };
    let mut blobs = Vec::with_capacity(chunks.len());
    for (chunk, bytes) in (1..).zip(chunks) {
        let blob = Blob::open_with(bytes.as_ref(), options);
        match blob.map_err(|error| TraceError::Chunk { chunk, error })? {
            Blob::Numeric(blob) => blobs.push((chunk, blob)),
            Blob::Text(_) => {}
        }
    }
    Ok(blobs)
}

/// Returns the number of SVIDs.
fn svid_count(blobs: &[(usize, NumericBlob<'_>)]) -> usize {
    blobs.iter().map(|(_, blob)| blob.len()).max().unwrap_or_default()
}

/// Returns the number of points of all SVIDs.
fn point_count(blobs: &[(usize, NumericBlob<'_>)]) -> u64 {
    blobs.iter().flat_map(|(_, blob)| blob.metrics()).map(|metric| metric.len() as u64).sum()
}

/// What an SVID is called by in a blob: its name, or its number written as `0x` and 16 hex digits.
fn key(svid: &str) -> Key<'_> {
    number(svid).map_or(Key::Name(svid), Key::Id)
}

/// The number of an SVID that is known by a number only.
pub(crate) fn number(svid: &str) -> Option<u64> {
    let digits = svid.strip_prefix("0x").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

fn start(blobs: &[(usize, NumericBlob<'_>)]) -> Result<i64, TraceError> {
    let mut earliest: Option<i64> = None;
    for (chunk, blob) in blobs {
        // Who shares the timestamps of another begins with it.
        let owners = blob.metrics().filter(|metric| metric.timestamps_of() == metric.index());
        for metric in owners.filter(|metric| !metric.is_empty()) {
            let first =
                metric.point(0).map_err(|error| TraceError::Chunk { chunk: *chunk, error })?.timestamp;
            earliest = Some(earliest.map_or(first, |earliest| earliest.min(first)));
        }
    }
    Ok(earliest.unwrap_or_default())
}

/// All parts of an SVID after one another.
fn gather<'b, T>(
    parts: &Parts<'b>,
    decode: impl Fn(&Metric<'b>, &mut Vec<T>) -> Result<(), phalanx_mebo::Error>,
) -> Result<Vec<T>, TraceError> {
    let mut out = Vec::new();
    for (chunk, metric) in parts {
        decode(metric, &mut out).map_err(|error| TraceError::Chunk { chunk: *chunk, error })?;
    }
    Ok(out)
}

/// Sorts timestamps where they go back, and gives the order in which the values must then stand.
fn put_in_order(times: &mut Vec<i64>) -> Option<Vec<usize>> {
    if times.is_sorted() {
        return None;
    }
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|&i| times[i]);
    *times = order.iter().map(|&i| times[i]).collect();
    Some(order)
}

#[cfg(test)]
#[path = "traces_test.rs"]
mod tests;
