//! Invariant 16: 60 s after the faults stop, every message is resolved, every id in the map is held, there is one leader,
//! and load is balanced within the threshold.

use std::collections::BTreeMap;

use phalanx_cluster_core::types::{AssignmentMap, Time, Weight, WorkerId};

use crate::oracle::messages::Messages;
use crate::oracle::report::Report;

const NUMBER: u32 = 16;

/// The largest share by which a load may differ from the mean.
const IMBALANCE_THRESHOLD: f64 = 0.2;

/// The maximum number of messages that are reported.
const MAX_REPORTED: usize = 20;

/// A process as it is once everything has had time to converge.
#[derive(Debug)]
pub(crate) struct Member {
    /// Its name in reports.
    pub(crate) name: String,
    pub(crate) id: Option<WorkerId>,
    pub(crate) is_leader: bool,
    /// The state that it shows, if that is not the stable one.
    pub(crate) unstable: Option<String>,
    /// Its state and the cause of the last change, for a process without an id.
    pub(crate) cause: String,
}

/// Checks the fleet against the stored map. `workers` is the intended number of processes.
pub(crate) fn check_fleet(
    report: &mut Report,
    now: Time,
    members: &[Member],
    map: Option<&AssignmentMap>,
    workers: usize,
) {
    let mut wrong = Vec::new();
    let leaders = members.iter().filter(|member| member.is_leader).count();
    if leaders != 1 {
        wrong.push(format!("{leaders} leaders"));
    }
    match map {
        Some(map) => {
            check_ids(&mut wrong, members, map, workers);
            check_loads(&mut wrong, map);
        }
        None => wrong.push("no map".to_owned()),
    }
    wrong.into_iter().for_each(|what| report.violate(NUMBER, now, what));
}

fn check_ids(wrong: &mut Vec<String>, members: &[Member], map: &AssignmentMap, workers: usize) {
    for id in &map.workers {
        if !members.iter().any(|member| member.id == Some(*id)) {
            wrong.push(format!("no process holds {id}, which the map names"));
        }
    }
    for member in members {
        match (member.id, &member.unstable) {
            (Some(id), _) if !map.workers.contains(&id) => wrong.push(format!("{id} has no part in the map")),
            (Some(id), Some(state)) => wrong.push(format!("{id} shows {state}")),
            (Some(_), None) => {}
            (None, _) if map.fleet_size.is_some() && members.len() > workers => {}
            (None, _) => {
                let (name, cause, size) = (&member.name, &member.cause, map.fleet_size);
                wrong.push(format!("{name} has no id: {cause}; the fleet size is {size:?}"));
            }
        }
    }
}

fn check_loads(wrong: &mut Vec<String>, map: &AssignmentMap) {
    let mut loads: BTreeMap<u32, Weight> = map.workers.iter().map(|id| (id.0, Weight(0))).collect();
    for assignment in map.assignments.values() {
        *loads.entry(assignment.owner.0).or_default() += assignment.weight;
    }
    let mean = loads.values().copied().sum::<Weight>().0 as f64 / loads.len() as f64;
    let heaviest = map.assignments.values().map(|assignment| assignment.weight).max().unwrap_or_default();
    let threshold = IMBALANCE_THRESHOLD * mean;
    if heaviest.0 as f64 <= threshold {
        for (id, load) in loads.iter().filter(|(_, load)| (load.0 as f64 - mean).abs() > threshold + 1.0) {
            wrong.push(format!("worker {id} carries {:.2} of the mean", load.0 as f64 / mean));
        }
    }
}

/// Reports unresolved messages that the log holds.
pub(crate) fn check_messages(report: &mut Report, now: Time, messages: &Messages) {
    let open = messages.partitions().flat_map(|(partition, known)| {
        known.open().map(move |(sequence, message)| (partition, sequence, message))
    });
    for (partition, sequence, message) in open.take(MAX_REPORTED) {
        let (number, kind) = (message.number, message.kind);
        let what = format!(
            "message {number} ({kind:?}, sequence {sequence}) of partition {partition} is unresolved"
        );
        report.violate(NUMBER, now, what);
    }
}
