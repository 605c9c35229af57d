//! The map as JSON: every field in every publication.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::object::{ObjectReader, ObjectWriter};
use super::{FORMAT, UnknownFields, check_partition};
use crate::core::planner::ratio_to_lower_bound;
use crate::core::types::{Assignment, AssignmentMap, Epoch, Lifecycle, Version, Weight, WorkerId};
use crate::names::Names;

/// The facts of a published map that the planner does not decide.
#[derive(Clone, Copy, Debug)]
pub struct MapMetadata<'a> {
    /// The wall-clock time, for users to read.
    pub now: &'a str,
    /// The pod of each worker id.
    pub pods: &'a BTreeMap<WorkerId, Arc<str>>,
    /// The duration of the calculation; none if the map is rewritten unchanged.
    pub calculation: Option<Duration>,
}

/// The number and the weight of the partitions of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) partitions: usize,
    pub(crate) weight: Weight,
}

/// Returns the load of each worker of a map, also of those that own nothing.
pub(crate) fn loads(map: &AssignmentMap) -> BTreeMap<WorkerId, Load> {
    let mut loads: BTreeMap<WorkerId, Load> = map.workers.iter().map(|id| (*id, Load::default())).collect();
    for assignment in map.assignments.values() {
        let load = loads.entry(assignment.owner).or_default();
        load.partitions += 1;
        load.weight += assignment.weight;
    }
    loads
}

/// The distribution of partitions and weight in a map, and what changed with it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MapStatistics {
    /// Partitions of the worker with the fewest.
    pub min_partitions: usize,
    /// Partitions of the worker with the most.
    pub max_partitions: usize,
    /// Mean number of partitions of a worker.
    pub mean_partitions: f64,
    /// Weight of the worker with the least.
    pub min_weight: u64,
    /// Weight of the worker with the most.
    pub max_weight: u64,
    /// Mean weight of a worker.
    pub mean_weight: f64,
    /// Standard deviation of the weights, in percent of their mean.
    pub deviation_percent: f64,
    /// Duration of the calculation, in milliseconds.
    pub calculation_ms: f64,
    /// Partitions that changed their owner with this map.
    pub moved: usize,
    /// The weight of these partitions.
    pub moved_weight: u64,
    /// The least weight that any plan would have moved.
    pub lower_bound_weight: u64,
    /// Moved weight over the lower bound.
    pub ratio_to_lower_bound: f64,
    /// The smallest weight over the mean.
    pub min_over_mean: f64,
    /// The largest weight over the mean.
    pub max_over_mean: f64,
}

impl MapStatistics {
    pub(crate) fn new(map: &AssignmentMap, calculation_ms: f64) -> Self {
        let loads = loads(map);
        let count = loads.len().max(1) as f64;
        let partitions = || loads.values().map(|load| load.partitions);
        let weights = || loads.values().map(|load| load.weight.0);
        let mean = weights().map(|weight| weight as f64).sum::<f64>() / count;
        let variance = weights().map(|weight| (weight as f64 - mean).powi(2)).sum::<f64>() / count;
        let over_mean = |weight: u64| if mean > 0.0 { weight as f64 / mean } else { 0.0 };
        let (min, max) = (weights().min().unwrap_or_default(), weights().max().unwrap_or_default());
        Self {
            min_partitions: partitions().min().unwrap_or_default(),
            max_partitions: partitions().max().unwrap_or_default(),
            mean_partitions: partitions().sum::<usize>() as f64 / count,
            min_weight: min,
            max_weight: max,
            mean_weight: mean,
            deviation_percent: if mean > 0.0 { 100.0 * variance.sqrt() / mean } else { 0.0 },
            calculation_ms,
            moved: map.moved,
            moved_weight: map.moved_weight.0,
            lower_bound_weight: map.lower_bound_weight.0,
            ratio_to_lower_bound: ratio_to_lower_bound(map.moved_weight, map.lower_bound_weight),
            min_over_mean: over_mean(min),
            max_over_mean: over_mean(max),
        }
    }

    fn to_json(self, names: &Names) -> Box<RawValue> {
        ObjectWriter::new(names)
            .field("minPartitionsPerWorker", &self.min_partitions)
            .field("maxPartitionsPerWorker", &self.max_partitions)
            .field("avgPartitionsPerWorker", &self.mean_partitions)
            .field("minWeightPerWorker", &self.min_weight)
            .field("maxWeightPerWorker", &self.max_weight)
            .field("avgWeightPerWorker", &self.mean_weight)
            .field("weightVariancePercent", &self.deviation_percent)
            .field(CALCULATION, &self.calculation_ms)
            .field(MOVED, &self.moved)
            .field("movedWeight", &self.moved_weight)
            .field("lowerBoundWeight", &self.lower_bound_weight)
            .field("ratioToLowerBound", &self.ratio_to_lower_bound)
            .field("minOverMean", &self.min_over_mean)
            .field("maxOverMean", &self.max_over_mean)
            .finish_raw()
    }
}

/// Fields that pass from map to map, like unknown ones.
const FIRST: &str = "firstAssignmentAt";
const CALCULATION: &str = "calculationDurationMs";
const MOVED: &str = "partitionsMoved";

/// Returns the duration of the last calculation, from the fields that pass from map to map.
pub(super) fn calculation_ms(rest: &UnknownFields) -> f64 {
    rest.get(CALCULATION).and_then(serde_json::Value::as_f64).unwrap_or_default()
}

/// Returns the group that a stored map names, if it names one.
pub(crate) fn group_of(bytes: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct GroupField {
        group: String,
    }

    serde_json::from_slice::<GroupField>(bytes).ok().map(|map| map.group)
}

pub(super) fn encode(
    names: &Names,
    map: &AssignmentMap,
    facts: &MapMetadata<'_>,
    rest: &mut UnknownFields,
) -> Bytes {
    // A new cold start begins a new count.
    let first = rest.remove(FIRST).and_then(|first| first.as_str().map(str::to_owned));
    let first = first.filter(|_| map.lifecycle != Lifecycle::PostColdStart || facts.calculation.is_none());
    let first = first.unwrap_or_else(|| facts.now.to_owned());
    let before = calculation_ms(rest);
    rest.remove(CALCULATION);
    let calculation = facts.calculation.map_or(before, |time| time.as_secs_f64() * 1000.0);
    let owners: BTreeMap<&str, String> =
        map.assignments.iter().map(|(name, assignment)| (&**name, names.worker(assignment.owner))).collect();
    let weights: BTreeMap<&str, u64> =
        map.assignments.iter().map(|(name, assignment)| (&**name, assignment.weight.0)).collect();
    let adopted: Vec<&str> = map
        .assignments
        .iter()
        .filter(|(_, assignment)| assignment.adopted)
        .map(|(name, _)| &**name)
        .collect();
    let info = |(id, load): (WorkerId, Load)| {
        let pod = facts.pods.get(&id).map_or("", |pod| &**pod);
        let info = ObjectWriter::new(names)
            .field("partitions", &load.partitions)
            .field("weight", &load.weight.0)
            .field("podName", pod);
        (names.worker(id), info.finish_raw())
    };
    let workers: BTreeMap<String, Box<RawValue>> = loads(map).into_iter().map(info).collect();
    ObjectWriter::new(names)
        .field("v", &FORMAT)
        .field("group", names.group())
        .field("version", &map.version.0)
        .field("timestamp", facts.now)
        .field("state", "stable")
        .field("lifecycleState", map.lifecycle.name())
        .field(FIRST, &first)
        .field("leaderEpoch", &map.epoch.0)
        .field("fleetSize", &map.fleet_size)
        .field("workerCount", &map.workers.len())
        .field("partitionCount", &map.assignments.len())
        .field("assignments", &owners)
        .field("weights", &weights)
        .field("adopted", &adopted)
        .field("workerInfo", &workers)
        .field("statistics", &MapStatistics::new(map, calculation).to_json(names))
        .unknown(rest)
        .finish()
}

pub(super) fn decode(names: &Names, bytes: &[u8]) -> Result<(AssignmentMap, UnknownFields), String> {
    let mut record = ObjectReader::parse(names, bytes)?;
    if let Some(group) = record.optional::<String>("group")?
        && group != names.group()
    {
        return Err(format!("it belongs to group {group:?}; this is group {:?}", names.group()));
    }
    let owners: BTreeMap<String, &str> = record.required("assignments")?;
    let weights: BTreeMap<&str, u64> = record.required("weights")?;
    let adopted: BTreeSet<&str> = record.or_default("adopted")?;
    let info: BTreeMap<String, serde::de::IgnoredAny> = record.required("workerInfo")?;
    let lifecycle: String = record.required("lifecycleState")?;
    let lifecycle = [Lifecycle::ColdStart, Lifecycle::PostColdStart, Lifecycle::Stable]
        .into_iter()
        .find(|known| known.name() == lifecycle)
        .ok_or_else(|| format!("unknown lifecycle state {lifecycle:?}"))?;
    let (mut moved, mut moved_weight, mut lower_bound_weight, mut calculation) = (0, 0, 0, 0.0);
    if let Some(statistics) = record.optional::<&RawValue>("statistics")? {
        let mut statistics = ObjectReader::parse(names, statistics.get().as_bytes())?;
        moved = statistics.or_default(MOVED)?;
        moved_weight = statistics.or_default("movedWeight")?;
        lower_bound_weight = statistics.or_default("lowerBoundWeight")?;
        calculation = statistics.or_default(CALCULATION)?;
    }
    let assignments = owners
        .into_iter()
        .map(|(name, owner)| {
            check_partition(&name).map_err(|e| e.to_string())?;
            let weight = *weights.get(name.as_str()).ok_or_else(|| format!("{name} has no weight"))?;
            let adopted = adopted.contains(name.as_str());
            Ok((
                Arc::from(name),
                Assignment { owner: names.require_worker(owner)?, weight: Weight(weight), adopted },
            ))
        })
        .collect::<Result<BTreeMap<Arc<str>, _>, String>>()?;
    let map = AssignmentMap {
        version: Version(record.required("version")?),
        epoch: Epoch(record.required("leaderEpoch")?),
        lifecycle,
        workers: info.keys().map(|id| names.require_worker(id)).collect::<Result<_, _>>()?,
        assignments,
        fleet_size: record.optional("fleetSize")?,
        moved,
        moved_weight: Weight(moved_weight),
        lower_bound_weight: Weight(lower_bound_weight),
    };
    let first: Option<serde_json::Value> = record.optional(FIRST)?;
    record.skip(&["v", "timestamp", "state", "workerCount", "partitionCount"]);
    let mut rest = record.unknown()?;
    rest.extend(first.map(|first| (FIRST.to_owned(), first)));
    rest.insert(CALCULATION.to_owned(), calculation.into());
    Ok((map, rest))
}
