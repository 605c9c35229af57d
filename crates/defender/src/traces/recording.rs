//! Traces on their way in: what a file has, as chunks to be stored.

use std::collections::HashMap;

use phalanx_mebo::{EncodeError, Encoder, EncoderOptions, Layout};
use thiserror::Error;

use super::{EncodedTraces, csv, json, number};

/// The largest file of traces, in bytes.
pub const MAX_INPUT: usize = 256 << 20;
/// The most SVIDs of a run.
pub const MAX_SVIDS: usize = 10_000;
/// The most points of a run, over all SVIDs.
pub const MAX_POINTS: usize = 20_000_000;
/// The largest JSON file: two bytes of it can be a point, all of which are in memory before they are counted.
const MAX_JSON: usize = 64 << 20;
/// The most bytes of the name of an SVID.
const LONGEST_SVID: usize = 256;
/// Points of one chunk: about a megabyte when nothing can be made shorter, which suits the stores.
const CHUNK_POINTS: usize = 120_000;

/// The traces of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    series: Vec<Series>,
    places: HashMap<String, usize>,
    points: usize,
}

/// The points of one SVID.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The SVID.
    pub svid: String,
    /// When, in microseconds.
    pub timestamps: Vec<i64>,
    /// What; values that are not finite are part of traces.
    pub values: Vec<f64>,
}

/// Traces that are refused.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// A file that is too large to be a run.
    #[error("the traces have {found} bytes, {most} is the most")]
    TooLarge {
        /// How large it is.
        found: usize,
        /// How large it may be.
        most: usize,
    },
    /// A line of a CSV file, or a place in a JSON file, that is wrong.
    #[error("{place}: {message}")]
    Wrong {
        /// Where.
        place: String,
        /// What.
        message: String,
    },
    /// There is nothing in it.
    #[error("there are no points in the traces; a run has at least one")]
    Empty,
    /// The traces could not be packed.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl RecordingError {
    pub(super) fn at(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Wrong { place: place.into(), message: message.into() }
    }
}

impl Recording {
    /// Reads a CSV file: *wide* with one column for each SVID (`time,RF_POWER,TEMP`; an empty cell is no point), or
    /// *long* with one line for each point (`time,svid,value`, or `timestamp,metric,value`).
    ///
    /// Times are whole microseconds, or like `2025-10-24T10:30:45.250Z`.
    pub fn from_csv(bytes: &[u8]) -> Result<Self, RecordingError> {
        sized(bytes, MAX_INPUT)?;
        csv::read(bytes)?.checked()
    }

    /// Reads a JSON file: `{"time": […], "traces": {"RF_POWER": […], …}}`, where `null` is no point; or, where SVIDs are
    /// sampled apart, `{"traces": {"RF_POWER": {"time": […], "values": […]}, …}}`.
    ///
    /// ```
    /// use phalanx_defender::traces::Recording;
    /// let shared = br#"{"time": [0, 1000000], "traces": {"A": [1.5, 2.5], "B": [null, 7]}}"#;
    /// let recording = Recording::from_json(shared)?;
    /// assert_eq!(recording.series()[1].timestamps, [1_000_000]);
    /// # Ok::<(), phalanx_defender::traces::RecordingError>(())
    /// ```
    pub fn from_json(bytes: &[u8]) -> Result<Self, RecordingError> {
        sized(bytes, MAX_JSON)?;
        json::read(bytes)?.checked()
    }

    /// Takes traces up as they are.
    pub fn from_series(series: impl IntoIterator<Item = Series>) -> Result<Self, RecordingError> {
        let mut recording = Self::default();
        for one in series {
            let wrong = |message: String| RecordingError::at(format!("SVID {:?}", one.svid), message);
            if one.timestamps.len() != one.values.len() {
                let (times, values) = (one.timestamps.len(), one.values.len());
                return Err(wrong(format!(
                    "it has {times} times and {values} values; there must be as many"
                )));
            }
            let place = recording.place(&one.svid).map_err(wrong)?;
            for (&time, &value) in one.timestamps.iter().zip(&one.values) {
                recording.push(place, time, value).map_err(wrong)?;
            }
        }
        recording.checked()
    }

    /// The SVIDs in the order in which they first appear.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// How many points all SVIDs have together.
    pub fn points(&self) -> usize {
        self.points
    }

    /// The place of an SVID, which is made where it is new.
    pub(super) fn place(&mut self, svid: &str) -> Result<usize, String> {
        if let Some(&place) = self.places.get(svid) {
            return Ok(place);
        }
        if svid.is_empty() || svid.len() > LONGEST_SVID || svid.contains(['"', '\n', '\r', '\0']) {
            let shown: String = svid.chars().take(40).collect();
            return Err(format!(
                "{shown:?} is not the name of an SVID; it has 1 to {LONGEST_SVID} bytes without quotes and line ends"
            ));
        }
        if self.series.len() == MAX_SVIDS {
            return Err(format!("there are more than {MAX_SVIDS} SVIDs"));
        }
        self.places.insert(svid.to_owned(), self.series.len());
        self.series.push(Series { svid: svid.to_owned(), timestamps: Vec::new(), values: Vec::new() });
        Ok(self.series.len() - 1)
    }

    pub(super) fn push(&mut self, place: usize, time: i64, value: f64) -> Result<(), String> {
        if self.points == MAX_POINTS {
            return Err(format!("there are more than {MAX_POINTS} points"));
        }
        self.points += 1;
        self.series[place].timestamps.push(time);
        self.series[place].values.push(value);
        Ok(())
    }

    /// In the order of time, and with at least one point; an SVID without points is left out.
    fn checked(mut self) -> Result<Self, RecordingError> {
        self.series.retain(|series| !series.values.is_empty());
        if self.series.is_empty() {
            return Err(RecordingError::Empty);
        }
        for series in &mut self.series {
            if let Some(order) = super::put_in_order(&mut series.timestamps) {
                series.values = order.iter().map(|&i| series.values[i]).collect();
            }
        }
        self.places = (0..).zip(&self.series).map(|(place, series)| (series.svid.clone(), place)).collect();
        Ok(self)
    }

    /// Packs the traces into Mebo blobs of a size that stores like, one for most runs.
    pub fn to_chunks(&self) -> Result<EncodedTraces, RecordingError> {
        self.chunks_of(CHUNK_POINTS)
    }

    pub(super) fn chunks_of(&self, most: usize) -> Result<EncodedTraces, RecordingError> {
        // Each SVID is cut into as many pieces; where all are sampled together, pieces are pieces of time.
        let chunks = self.points.div_ceil(most.max(1)).max(1);
        let options =
            EncoderOptions { layout: Layout::V2, shared_timestamps: true, ..EncoderOptions::default() };
        // Blobs go by names or by numbers, not both; where one SVID has a name, all are taken for names.
        let numbers: Option<Vec<u64>> = self.series.iter().map(|series| number(&series.svid)).collect();
        let (mut out, mut svids) = (Vec::with_capacity(chunks), 0);
        for chunk in 0..chunks {
            let piece = |series: &Series| {
                let cut = |i: usize| series.values.len() * i / chunks;
                cut(chunk)..cut(chunk + 1)
            };
            let first =
                self.series.iter().filter_map(|series| series.timestamps[piece(series)].first()).min();
            let Some(&start) = first else { continue };
            let (mut encoder, mut added) = (Encoder::new(start, options), 0);
            for (place, series) in self.series.iter().enumerate() {
                let range = piece(series);
                if range.is_empty() {
                    continue;
                }
                let (times, values) = (&series.timestamps[range.clone()], &series.values[range]);
                match &numbers {
                    Some(numbers) => encoder.add(numbers[place], times, values)?,
                    None => encoder.add(series.svid.as_str(), times, values)?,
                }
                added += 1;
            }
            svids = svids.max(added);
            out.push(encoder.finish()?.into());
        }
        Ok(EncodedTraces::encoded(out, svids, self.points as u64))
    }
}

fn sized(bytes: &[u8], most: usize) -> Result<(), RecordingError> {
    if bytes.len() > most { Err(RecordingError::TooLarge { found: bytes.len(), most }) } else { Ok(()) }
}

/// A time as files have it, in microseconds.
pub(super) fn time(text: &str) -> Result<i64, String> {
    if let Ok(micros) = text.parse::<i64>() {
        return Ok(micros);
    }
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(time.as_microsecond());
    }
    let shown: String = text.chars().take(40).collect();
    Err(format!(
        "the time {shown:?} is neither a whole number of microseconds nor a time like 2025-10-24T10:30:45.250Z"
    ))
}
