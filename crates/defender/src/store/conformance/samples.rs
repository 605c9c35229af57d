//! Rows to store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::{SignedDuration, Timestamp};
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;

use crate::record::{
    Alarm, AlarmState, Chamber, Context, Flags, Limits, Mark, Outcome, Past, Results, Severity, StateRow,
    UChart,
};

/// A chamber nobody else has, also not in an earlier run on the same store.
pub(super) fn chamber() -> Chamber {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let (now, n) = (Timestamp::now().as_microsecond(), COUNT.fetch_add(1, Ordering::Relaxed));
    Chamber::new(&format!("tool-{now}"), &format!("c{n}")).expect("a good name")
}

/// Some time ago, to the nanosecond: recent enough that nothing has expired.
pub(super) fn at(seconds: i64) -> Timestamp {
    static START: std::sync::OnceLock<Timestamp> = std::sync::OnceLock::new();
    let start = *START.get_or_init(|| Timestamp::now() - SignedDuration::from_hours(24 * 5));
    start + SignedDuration::new(seconds, 123_456_789)
}

pub(super) fn position(sequence: u64) -> Position {
    Position { generation: 1_700_000_000_000_000, sequence: Sequence(sequence) }
}

/// The message of that number and an attempt at it. Stamps are near each other, as of messages that came together.
pub(super) fn mark(sequence: u64, take: u64) -> Mark {
    static START: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let start = *START.get_or_init(|| u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(0));
    Mark { position: position(sequence), take, stamp: start + sequence * 100 }
}

pub(super) fn chart(indicator: &str, seconds: i64, value: f64) -> UChart {
    UChart {
        indicator: indicator.into(),
        timestamp: at(seconds),
        context: format!("run-{seconds}").into(),
        value: Some(value),
        limits: Some(Limits { center: 1.0, lcl: Some(0.5), ucl: Some(1.5), sigma: Some(0.1) }),
        n: 25,
        flags: Flags::default(),
        strategy: "v1".into(),
    }
}

pub(super) fn alarm(chamber: &Chamber, id: &str, seconds: i64) -> Alarm {
    Alarm {
        id: format!("{chamber}/{id}").into(),
        chamber: chamber.clone(),
        raised_at: at(seconds),
        indicator: "power".into(),
        rule: "limits".into(),
        severity: Severity::Critical,
        value: Some(2.5),
        limit: Some(1.5),
        context: format!("run-{seconds}").into(),
        state: AlarmState::Open,
        cleared: None,
        message: "RF power 2.5 is above 1.5 · Grüße".to_owned(),
    }
}

/// What a message leaves behind that has nothing to say but its own number.
pub(super) fn results(chamber: &Chamber, sequence: u64, take: u64) -> Results {
    let mark = mark(sequence, take);
    let seconds = i64::try_from(sequence).unwrap_or(0);
    let past = |sequence: u64| Past {
        context: format!("run-{sequence}").into(),
        generation: mark.position.generation,
        sequence,
        take,
    };
    Results {
        chamber: chamber.clone(),
        mark,
        charts: Vec::new(),
        alarms: Vec::new(),
        context: Context {
            position: mark.position,
            take,
            context: format!("run-{sequence}").into(),
            timestamp: at(seconds),
            strategy: "v1".into(),
            outcome: Outcome::Processed,
        },
        state: StateRow {
            mark,
            predecessor: (sequence > 1).then(|| position(sequence - 1)),
            context: Arc::from(format!("run-{}", sequence - 1)),
            stream: 7,
            history: (1..=sequence).rev().take(100).map(past).collect(),
            state: format!("state of {sequence} by {take}").into_bytes(),
        },
    }
}

/// The same with one point.
pub(super) fn with_point(chamber: &Chamber, sequence: u64, take: u64, value: Option<f64>) -> Results {
    let seconds = i64::try_from(sequence).unwrap_or(0);
    let point = UChart { value, ..chart("power", seconds, 0.0) };
    Results { charts: vec![point], ..results(chamber, sequence, take) }
}
