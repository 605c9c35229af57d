//! The map as JSON: every field of the requirements in every publication.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::records::id_of;
use super::{FORMAT, UnknownFields, check_partition};
use crate::core::planner::ratio_to_lower_bound;
use crate::core::types::{Assignment, AssignmentMap, Epoch, Lifecycle, Version, Weight, WorkerId};

/// What stands in a published map beside what was decided.
#[derive(Clone, Copy, Debug)]
pub struct MapMetadata<'a> {
    /// The wall-clock time, for people to read.
    pub now: &'a str,
    /// Who holds each id.
    pub pods: &'a BTreeMap<WorkerId, Arc<str>>,
    /// How long the calculation took; none if the map is rewritten as it was.
    pub calculation: Option<Duration>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MapRecord<'a> {
    v: u32,
    version: u64,
    timestamp: &'a str,
    state: &'a str,
    lifecycle_state: &'a str,
    first_assignment_at: &'a str,
    leader_epoch: u64,
    fleet_size: Option<u32>,
    defender_count: usize,
    chamber_count: usize,
    assignments: BTreeMap<&'a str, String>,
    weights: BTreeMap<&'a str, u64>,
    /// Partitions that are not in the list.
    adopted: Vec<&'a str>,
    defender_info: BTreeMap<String, DefenderInfo<'a>>,
    statistics: Statistics,
    #[serde(flatten)]
    rest: &'a UnknownFields,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DefenderInfo<'a> {
    chambers: usize,
    weight: u64,
    pod_name: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Statistics {
    min_chambers_per_defender: usize,
    max_chambers_per_defender: usize,
    avg_chambers_per_defender: f64,
    min_weight_per_defender: u64,
    max_weight_per_defender: u64,
    avg_weight_per_defender: f64,
    weight_variance_percent: f64,
    calculation_duration_ms: f64,
    chambers_moved: usize,
    moved_weight: u64,
    lower_bound_weight: u64,
    ratio_to_lower_bound: f64,
    min_over_mean: f64,
    max_over_mean: f64,
}

/// Kept from map to map, like a field that is not known.
const FIRST: &str = "firstAssignmentAt";
const CALCULATION: &str = "calculationDurationMs";

pub(super) fn encode(map: &AssignmentMap, facts: &MapMetadata<'_>, rest: &mut UnknownFields) -> Bytes {
    // A new cold start begins a new count.
    let first = rest.remove(FIRST).and_then(|first| first.as_str().map(str::to_owned));
    let first = first.filter(|_| map.lifecycle != Lifecycle::PostColdStart || facts.calculation.is_none());
    let first = first.unwrap_or_else(|| facts.now.to_owned());
    let before = rest.remove(CALCULATION).and_then(|ms| ms.as_f64()).unwrap_or_default();
    let calculation = facts.calculation.map_or(before, |time| time.as_secs_f64() * 1000.0);
    let mut loads: BTreeMap<WorkerId, (usize, u64)> = map.workers.iter().map(|id| (*id, (0, 0))).collect();
    for assignment in map.assignments.values() {
        let load = loads.entry(assignment.owner).or_default();
        load.0 += 1;
        load.1 = load.1.saturating_add(assignment.weight.0);
    }
    let info = loads.iter().map(|(id, &(chambers, weight))| {
        let pod_name = facts.pods.get(id).map_or("", |pod| &**pod);
        (id.to_string(), DefenderInfo { chambers, weight, pod_name })
    });
    let record = MapRecord {
        v: FORMAT,
        version: map.version.0,
        timestamp: facts.now,
        state: "stable",
        lifecycle_state: map.lifecycle.name(),
        first_assignment_at: &first,
        leader_epoch: map.epoch.0,
        fleet_size: map.fleet_size,
        defender_count: map.workers.len(),
        chamber_count: map.assignments.len(),
        assignments: map.assignments.iter().map(|(name, a)| (&**name, a.owner.to_string())).collect(),
        weights: map.assignments.iter().map(|(name, a)| (&**name, a.weight.0)).collect(),
        adopted: map.assignments.iter().filter(|(_, a)| a.adopted).map(|(name, _)| &**name).collect(),
        defender_info: info.collect(),
        statistics: statistics(&loads, map, calculation),
        rest,
    };
    // Strings and numbers always become JSON.
    serde_json::to_vec(&record).unwrap_or_default().into()
}

fn statistics(loads: &BTreeMap<WorkerId, (usize, u64)>, map: &AssignmentMap, calculation: f64) -> Statistics {
    let count = loads.len().max(1) as f64;
    let counts = || loads.values().map(|(chambers, _)| *chambers);
    let weights = || loads.values().map(|(_, weight)| *weight);
    let mean = weights().map(|weight| weight as f64).sum::<f64>() / count;
    let variance = weights().map(|weight| (weight as f64 - mean).powi(2)).sum::<f64>() / count;
    let over_mean = |weight: u64| if mean > 0.0 { weight as f64 / mean } else { 0.0 };
    let (min, max) = (weights().min().unwrap_or_default(), weights().max().unwrap_or_default());
    Statistics {
        min_chambers_per_defender: counts().min().unwrap_or_default(),
        max_chambers_per_defender: counts().max().unwrap_or_default(),
        avg_chambers_per_defender: counts().sum::<usize>() as f64 / count,
        min_weight_per_defender: min,
        max_weight_per_defender: max,
        avg_weight_per_defender: mean,
        weight_variance_percent: if mean > 0.0 { 100.0 * variance.sqrt() / mean } else { 0.0 },
        calculation_duration_ms: calculation,
        chambers_moved: map.moved,
        moved_weight: map.moved_weight.0,
        lower_bound_weight: map.lower_bound_weight.0,
        ratio_to_lower_bound: ratio_to_lower_bound(map.moved_weight, map.lower_bound_weight),
        min_over_mean: over_mean(min),
        max_over_mean: over_mean(max),
    }
}

/// What is read of a statistic that survives a rewriting.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct KeptStatistics {
    chambers_moved: usize,
    moved_weight: u64,
    lower_bound_weight: u64,
    calculation_duration_ms: f64,
}

pub(super) fn decode(bytes: &[u8]) -> Result<(AssignmentMap, UnknownFields), String> {
    let mut fields: BTreeMap<String, Box<RawValue>> = parse(bytes)?;
    let mut take = |name: &str| fields.remove(name);
    let needed = |name: &str, raw: Option<Box<RawValue>>| raw.ok_or_else(|| format!("it has no {name}"));
    let version = field("version", &needed("version", take("version"))?)?;
    let epoch: u64 = field("leaderEpoch", &needed("leaderEpoch", take("leaderEpoch"))?)?;
    let lifecycle: String = field("lifecycleState", &needed("lifecycleState", take("lifecycleState"))?)?;
    let fleet_size: Option<u32> = take("fleetSize").map_or(Ok(None), |raw| field("fleetSize", &raw))?;
    let owners = needed("assignments", take("assignments"))?;
    let owners: BTreeMap<String, &str> = field("assignments", &owners)?;
    let weights = needed("weights", take("weights"))?;
    let weights: BTreeMap<&str, u64> = field("weights", &weights)?;
    let adopted = take("adopted");
    let adopted: BTreeSet<&str> =
        adopted.as_ref().map_or(Ok(BTreeSet::new()), |raw| field("adopted", raw))?;
    let info = needed("defenderInfo", take("defenderInfo"))?;
    let info: BTreeMap<String, serde::de::IgnoredAny> = field("defenderInfo", &info)?;
    let kept: KeptStatistics =
        take("statistics").map_or(Ok(KeptStatistics::default()), |raw| field("statistics", &raw))?;
    let first = take(FIRST);
    for known in ["v", "timestamp", "state", "defenderCount", "chamberCount"] {
        take(known);
    }
    let workers = info.keys().map(|id| id_of(id)).collect::<Result<BTreeSet<_>, _>>()?;
    let assignments = owners
        .into_iter()
        .map(|(name, owner)| {
            check_partition(&name).map_err(|e| e.to_string())?;
            let weight = *weights.get(name.as_str()).ok_or_else(|| format!("{name} has no weight"))?;
            let adopted = adopted.contains(name.as_str());
            Ok((Arc::from(name), Assignment { owner: id_of(owner)?, weight: Weight(weight), adopted }))
        })
        .collect::<Result<BTreeMap<Arc<str>, _>, String>>()?;
    let lifecycle = [Lifecycle::ColdStart, Lifecycle::PostColdStart, Lifecycle::Stable]
        .into_iter()
        .find(|known| known.name() == lifecycle)
        .ok_or_else(|| format!("{lifecycle:?} is no lifecycle state"))?;
    let map = AssignmentMap {
        version: Version(version),
        epoch: Epoch(epoch),
        lifecycle,
        workers,
        assignments,
        fleet_size,
        moved: kept.chambers_moved,
        moved_weight: Weight(kept.moved_weight),
        lower_bound_weight: Weight(kept.lower_bound_weight),
    };
    let mut rest: UnknownFields = fields
        .into_iter()
        .map(|(name, raw)| field(&name, &raw).map(|value| (name, value)))
        .collect::<Result<_, _>>()?;
    if let Some(first) = first {
        rest.insert(FIRST.to_owned(), field(FIRST, &first)?);
    }
    rest.insert(CALCULATION.to_owned(), kept.calculation_duration_ms.into());
    Ok((map, rest))
}

fn field<'a, T: Deserialize<'a>>(name: &str, raw: &'a RawValue) -> Result<T, String> {
    serde_json::from_str(raw.get()).map_err(|e| format!("{name}: {e}"))
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|e| e.to_string())
}
