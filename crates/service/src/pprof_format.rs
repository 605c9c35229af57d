//! Encodes a sampled profile in the format of `go tool pprof` (profile.proto).

use std::collections::HashMap;
use std::time::SystemTime;

use pprof::Report;
use prost::Message;

/// Encodes the samples of a report.
pub(crate) fn encode(report: &Report) -> Vec<u8> {
    let mut tables = Tables::default();
    // The format requires an empty string at index 0.
    tables.string("");
    let samples = ValueType { kind: tables.string("samples"), unit: tables.string("count") };
    let cpu = ValueType { kind: tables.string("cpu"), unit: tables.string("nanoseconds") };
    let thread = tables.string("thread");
    let period = 1_000_000_000 / i64::from(report.timing.frequency.max(1));
    let mut profile = Profile {
        sample_type: vec![samples, cpu],
        time_nanos: nanos(
            report.timing.start_time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
        ),
        duration_nanos: nanos(report.timing.duration),
        period_type: Some(cpu),
        period,
        ..Profile::default()
    };
    for (stack, &count) in &report.data {
        let count = count as i64;
        let label = Label { key: thread, text: tables.string(&stack.thread_name_or_id()) };
        let location_id = stack.frames.iter().flatten().map(|symbol| tables.location(symbol)).collect();
        profile.sample.push(Sample { location_id, value: vec![count, count * period], label: vec![label] });
    }
    profile.location = tables.locations;
    profile.function = tables.functions;
    profile.string_table = tables.strings;
    profile.encode_to_vec()
}

fn nanos(time: std::time::Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Tables that the samples refer to by index or id.
#[derive(Default)]
struct Tables {
    strings: Vec<String>,
    functions: Vec<Function>,
    locations: Vec<Location>,
    string_index: HashMap<String, i64>,
    function_id: HashMap<String, u64>,
    location_id: HashMap<(u64, u32), u64>,
}

impl Tables {
    fn string(&mut self, text: &str) -> i64 {
        if let Some(&index) = self.string_index.get(text) {
            return index;
        }
        let index = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.string_index.insert(text.to_owned(), index);
        index
    }

    fn location(&mut self, symbol: &pprof::Symbol) -> u64 {
        let (function_id, line) = (self.function(symbol), symbol.lineno());
        let next = self.locations.len() as u64 + 1;
        let id = *self.location_id.entry((function_id, line)).or_insert(next);
        if id == next {
            let line = Line { function_id, line: i64::from(line) };
            self.locations.push(Location { id, line: vec![line] });
        }
        id
    }

    fn function(&mut self, symbol: &pprof::Symbol) -> u64 {
        let name = symbol.name();
        if let Some(&id) = self.function_id.get(&name) {
            return id;
        }
        let id = self.functions.len() as u64 + 1;
        let function = Function {
            id,
            name: self.string(&name),
            system_name: self.string(&symbol.sys_name()),
            filename: self.string(&symbol.filename()),
        };
        self.functions.push(function);
        self.function_id.insert(name, id);
        id
    }
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    text: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}
