//! What every store keeps to: what it takes, how long it keeps it, and what it lets go of.

use std::time::Duration;

use bytes::Bytes;
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;

use super::StoreError;
use crate::record::{Acknowledgement, Alarm, AlarmState, Results, StateRow};

/// The largest part of a run's traces. Cassandra takes at most half a commit log segment in one write, 16 MiB as it is
/// shipped; this leaves room for nodes that are set up smaller.
pub const CHUNK_BYTES_MAX: usize = 3 << 20;

/// How many parts the traces of a run may have.
pub const CHUNKS_MAX: usize = 256;

/// The largest chart state.
pub const STATE_BYTES_MAX: usize = 2 << 20;

const DAY: u64 = 24 * 60 * 60;

/// How long points and `contexts` rows are kept.
pub const U_CHARTS_KEPT: Duration = Duration::from_secs(30 * DAY);

/// How long traces are kept: as long as the notifications that name them.
pub const T_CHARTS_KEPT: Duration = Duration::from_secs(7 * DAY);

/// How long an alarm is kept after it was last written, and what people said of it.
pub const ALARMS_KEPT: Duration = Duration::from_secs(365 * DAY);

/// How many runs' chart states stay behind the newest.
const STATES_KEPT: usize = 4;

/// Chart states below this position are no longer needed once `state` is written: never its predecessor, which is what a
/// repetition begins with, and a few runs more.
pub(crate) fn prune_below(state: &StateRow) -> Option<Position> {
    let predecessor = state.predecessor?;
    let earlier = state.history.get(STATES_KEPT - 1);
    let earlier =
        earlier.map(|past| Position { generation: past.generation, sequence: Sequence(past.sequence) });
    Some(earlier.map_or(predecessor, |earlier| earlier.min(predecessor)))
}

/// Refuses what cannot be kept as it is, before anything of it is written.
pub(crate) fn check(results: &Results) -> Result<(), StoreError> {
    let refused = |reason: String| Err(StoreError::Refused(format!("{}: {reason}", results.chamber)));
    if results.state.state.len() > STATE_BYTES_MAX {
        let len = results.state.state.len();
        return refused(format!("the chart state has {len} bytes, at most {STATE_BYTES_MAX} are kept"));
    }
    if results.state.mark != results.mark
        || (results.context.position, results.context.take) != (results.mark.position, results.mark.take)
    {
        return refused("the rows of one message speak of two".to_owned());
    }
    for chart in &results.charts {
        let limits = chart.limits.iter();
        let limits = limits.flat_map(|l| [Some(l.center), l.lcl, l.ucl, l.sigma]);
        let numbers = limits.chain([chart.value]).flatten();
        if let Some(bad) = { numbers }.find(|number| !number.is_finite()) {
            return refused(format!("{} has the number {bad}; what has no value is none", chart.indicator));
        }
    }
    for alarm in &results.alarms {
        if let Some(bad) = [alarm.value, alarm.limit].into_iter().flatten().find(|number| !number.is_finite())
        {
            return refused(format!("alarm {} has the number {bad}; what has no value is none", alarm.id));
        }
        if alarm.chamber != results.chamber {
            return refused(format!("alarm {} is of chamber {}", alarm.id, alarm.chamber));
        }
    }
    Ok(())
}

/// Refuses traces that not every store could keep.
pub(crate) fn check_chunks(chunks: &[Bytes]) -> Result<(), StoreError> {
    if chunks.is_empty() || chunks.len() > CHUNKS_MAX {
        let n = chunks.len();
        return Err(StoreError::Refused(format!("traces in {n} parts; 1 to {CHUNKS_MAX} are taken")));
    }
    match chunks.iter().enumerate().find(|(_, chunk)| chunk.len() > CHUNK_BYTES_MAX) {
        Some((index, chunk)) => Err(StoreError::Refused(format!(
            "part {index} of the traces has {} bytes, at most {CHUNK_BYTES_MAX} are taken: use more parts",
            chunk.len()
        ))),
        None => Ok(()),
    }
}

/// Of the parts that are there, in order and each with the number of parts its writer had: all of one writing, or none.
pub(crate) fn complete(parts: Vec<(i64, i64, Bytes)>) -> Option<Vec<Bytes>> {
    let count = parts.first().map(|(_, count, _)| *count)?;
    let whole: Vec<Bytes> = parts
        .into_iter()
        .zip(0..count)
        .filter(|((index, of, _), expected)| index == expected && *of == count)
        .map(|((_, _, data), _)| data)
        .collect();
    (i64::try_from(whole.len()) == Ok(count)).then_some(whole)
}

/// An alarm as readers see it: acknowledged where it is open and a person has seen it.
pub(crate) fn seen(mut alarm: Alarm, said: Option<Acknowledgement>) -> (Alarm, Option<Acknowledgement>) {
    if said.is_some() && alarm.state == AlarmState::Open {
        alarm.state = AlarmState::Acknowledged;
    }
    (alarm, said)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::record::{Mark, Past};

    fn at(sequence: u64) -> Position {
        Position { generation: 1, sequence: Sequence(sequence) }
    }

    fn state(sequence: u64, predecessor: Option<u64>, history: &[u64]) -> StateRow {
        let past = |&sequence: &u64| Past { context: "c".into(), generation: 1, sequence, take: 1 };
        StateRow {
            mark: Mark { position: at(sequence), take: 1, stamp: sequence },
            predecessor: predecessor.map(at),
            context: Arc::from(""),
            stream: 1,
            history: history.iter().map(past).collect(),
            state: Vec::new(),
        }
    }

    #[test]
    fn the_predecessor_is_never_pruned_and_a_few_more_are_kept() {
        assert_eq!(prune_below(&state(1, None, &[1])), None);
        assert_eq!(prune_below(&state(9, Some(8), &[])), Some(at(8)));
        assert_eq!(prune_below(&state(9, Some(8), &[9, 8])), Some(at(8)));
        assert_eq!(prune_below(&state(9, Some(8), &[9, 8, 7, 5, 4])), Some(at(5)));
        assert_eq!(prune_below(&state(90, Some(8), &[90, 80, 70, 60])), Some(at(8)));
    }

    #[test]
    fn parts_are_whole_or_not_there() {
        let part = |index, count| (index, count, Bytes::from(vec![index as u8]));
        assert_eq!(complete(vec![]), None);
        assert_eq!(complete(vec![part(0, 2)]), None);
        assert_eq!(complete(vec![part(1, 2)]), None);
        assert_eq!(complete(vec![part(0, 2), part(2, 2)]), None);
        assert_eq!(complete(vec![part(0, 2), part(1, 3)]), None);
        assert_eq!(complete(vec![part(0, 2), part(1, 2)]).unwrap().len(), 2);
        // What a longer earlier writing left behind is not ours.
        assert_eq!(complete(vec![part(0, 1), part(1, 2)]).unwrap().len(), 1);
    }
}
