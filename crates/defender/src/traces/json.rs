//! JSON files of traces.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};

use super::recording::{Recording, RecordingError, time};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<'a> {
    #[serde(borrow)]
    time: Option<Vec<Time<'a>>>,
    // Sorted: the same file always gives the same blob.
    #[serde(borrow)]
    traces: BTreeMap<Cow<'a, str>, Trace<'a>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Time<'a> {
    Micros(i64),
    #[serde(borrow)]
    Text(Cow<'a, str>),
}

enum Trace<'a> {
    Values(Vec<Option<f64>>),
    Own(Own<'a>),
}

/// By hand: an enum that serde tells apart itself would keep every value twice.
impl<'de: 'a, 'a> Deserialize<'de> for Trace<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Trace<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of values, or a table with time and values")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(list)).map(Trace::Values)
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Self::Value, A::Error> {
                Deserialize::deserialize(MapAccessDeserializer::new(table)).map(Trace::Own)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Own<'a> {
    #[serde(borrow)]
    time: Vec<Time<'a>>,
    values: Vec<Option<f64>>,
}

pub(super) fn read(bytes: &[u8]) -> Result<Recording, RecordingError> {
    let file: File<'_> = serde_json::from_slice(bytes).map_err(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        let text = error.to_string();
        let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
        RecordingError::at(
            place,
            format!(
                "{message}; traces are {{\"time\": […], \"traces\": {{\"SVID\": […]}}}} or {{\"traces\": {{\"SVID\": {{\"time\": […], \"values\": […]}}}}}}"
            ),
        )
    })?;
    let shared = file.time.as_deref().map(|times| micros("time", times)).transpose()?;
    let mut recording = Recording::default();
    for (svid, trace) in &file.traces {
        let place = format!("trace {svid:?}");
        let own;
        let (times, values) = match trace {
            Trace::Values(values) => {
                let times = shared.as_deref().ok_or_else(|| {
                    RecordingError::at(
                        &place,
                        "it has values only, and the file has no \"time\" for all traces",
                    )
                })?;
                (times, values)
            }
            Trace::Own(Own { time, values }) => {
                own = micros(&place, time)?;
                (&own[..], values)
            }
        };
        if times.len() != values.len() {
            let message = format!("{} times and {} values; there must be as many", times.len(), values.len());
            return Err(RecordingError::at(place, message));
        }
        let wrong = |message| RecordingError::at(&place, message);
        let column = recording.place(svid).map_err(wrong)?;
        for (&time, value) in times.iter().zip(values) {
            if let Some(value) = value {
                recording.push(column, time, *value).map_err(wrong)?;
            }
        }
    }
    Ok(recording)
}

fn micros(place: &str, times: &[Time<'_>]) -> Result<Vec<i64>, RecordingError> {
    let one = |item: &Time<'_>| match item {
        Time::Micros(micros) => Ok(*micros),
        Time::Text(text) => time(text).map_err(|message| RecordingError::at(place, message)),
    };
    times.iter().map(one).collect()
}
