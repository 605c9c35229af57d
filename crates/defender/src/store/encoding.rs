//! How values are written, the same in every store.

use std::sync::Arc;

use jiff::Timestamp;
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;

use super::StoreError;
use crate::record::{AlarmState, Chamber, Outcome, Past, Severity};

/// A time in two columns: whole milliseconds, which is what Cassandra calls a timestamp and what rows are ordered by, and
/// the nanoseconds beyond them, so that nothing is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) ms: i64,
    pub(crate) ns: i32,
}

impl From<Timestamp> for Time {
    fn from(time: Timestamp) -> Self {
        let total = time.as_nanosecond();
        let (ms, ns) = (total.div_euclid(1_000_000), total.rem_euclid(1_000_000));
        // What jiff can hold fits: years -9999 to 9999.
        Self { ms: i64::try_from(ms).unwrap_or(i64::MAX), ns: i32::try_from(ns).unwrap_or(0) }
    }
}

impl Time {
    pub(crate) fn read(self) -> Result<Timestamp, StoreError> {
        Timestamp::from_nanosecond(i128::from(self.ms) * 1_000_000 + i128::from(self.ns))
            .map_err(|e| damaged("a time", e))
    }
}

/// Microseconds, as write times are counted.
pub(crate) fn microseconds(time: Timestamp) -> i64 {
    time.as_microsecond()
}

/// Stores know signed numbers only.
pub(crate) fn signed(what: &str, value: u64) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| StoreError::Refused(format!("{what} is {value}, above {}", i64::MAX)))
}

pub(crate) fn unsigned(what: &str, value: i64) -> Result<u64, StoreError> {
    u64::try_from(value).map_err(|e| damaged(what, e))
}

pub(crate) fn small(what: &str, value: i64) -> Result<u32, StoreError> {
    u32::try_from(value).map_err(|e| damaged(what, e))
}

/// A position as the pair of numbers that orders it.
pub(crate) fn pair(position: Position) -> Result<(i64, i64), StoreError> {
    Ok((signed("a generation", position.generation)?, signed("a sequence", position.sequence.0)?))
}

/// The pair at which a list of messages begins: that message, or the newest.
pub(crate) fn newest_pair(from: Option<Position>) -> Result<(i64, i64), StoreError> {
    from.map_or(Ok((i64::MAX, i64::MAX)), pair)
}

pub(crate) fn position((generation, sequence): (i64, i64)) -> Result<Position, StoreError> {
    Ok(Position {
        generation: unsigned("a generation", generation)?,
        sequence: Sequence(unsigned("a sequence", sequence)?),
    })
}

/// A stored row that says what no program of ours wrote.
pub(crate) fn damaged(what: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Refused(format!("a stored row is damaged: {what}: {error}"))
}

pub(crate) fn chamber(tool: &str, chamber: &str) -> Result<Chamber, StoreError> {
    Chamber::new(tool, chamber).map_err(|e| damaged("a chamber", e))
}

/// The past as JSON.
pub(crate) fn history(past: &[Past]) -> String {
    // Texts and numbers: there is nothing that JSON could not say.
    serde_json::to_string(past).unwrap_or_default()
}

pub(crate) fn read_history(text: &str) -> Result<Vec<Past>, StoreError> {
    serde_json::from_str(text).map_err(|e| damaged("a history", e))
}

/// A closed list of words.
pub(crate) trait Word: Sized + Copy + 'static {
    const WORDS: &'static [Self];

    fn word(self) -> &'static str;

    fn read(word: &str) -> Result<Self, StoreError> {
        let found = Self::WORDS.iter().find(|known| known.word() == word);
        found.copied().ok_or_else(|| damaged("an unknown word", format!("{word:?}")))
    }
}

impl Word for Outcome {
    const WORDS: &'static [Self] = &Self::ALL;

    fn word(self) -> &'static str {
        self.name()
    }
}

impl Word for Severity {
    const WORDS: &'static [Self] = &Self::ALL;

    fn word(self) -> &'static str {
        self.name()
    }
}

impl Word for AlarmState {
    const WORDS: &'static [Self] = &Self::ALL;

    fn word(self) -> &'static str {
        self.name()
    }
}

/// Where a list of alarms goes on: after the alarm it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct After {
    pub(crate) raised_ms: i64,
    pub(crate) id: Arc<str>,
}

impl After {
    pub(crate) fn token(&self) -> String {
        format!("{}/{}", self.raised_ms, self.id)
    }

    pub(crate) fn read(token: &str) -> Result<Self, StoreError> {
        let bad = || StoreError::Refused(format!("{token:?} is no page of a list of alarms"));
        let (ms, id) = token.split_once('/').ok_or_else(bad)?;
        Ok(Self { raised_ms: ms.parse().map_err(|_| bad())?, id: id.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_comes_back_to_the_nanosecond() {
        for time in
            ["2025-10-24T10:30:45.123456789Z", "1969-12-31T23:59:59.999999999Z", "-000044-03-15T12:00:00Z"]
                .map(|text| text.parse::<Timestamp>().unwrap())
                .into_iter()
                .chain([Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH])
        {
            let split = Time::from(time);
            assert!((0..1_000_000).contains(&split.ns), "{time}: {split:?}");
            assert_eq!(split.read().unwrap(), time);
        }
    }

    #[test]
    fn every_word_comes_back_and_another_is_damage() {
        fn check<W: Word + PartialEq + std::fmt::Debug>() {
            for value in W::WORDS {
                assert_eq!(W::read(value.word()).unwrap(), *value);
            }
            assert!(W::read("nonsense").is_err());
        }
        check::<Outcome>();
        check::<Severity>();
        check::<AlarmState>();
    }

    #[test]
    fn a_page_token_that_nobody_gave_is_refused() {
        let after = After { raised_ms: -5, id: "a/b".into() };
        assert_eq!(After::read(&after.token()).unwrap(), after);
        for bad in ["", "5", "x/y"] {
            assert!(After::read(bad).unwrap_err().to_string().contains("no page"), "{bad}");
        }
    }
}
