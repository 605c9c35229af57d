//! A plan for people and for programs.

use std::collections::BTreeMap;
use std::io::{self, Write as _};

use phalanx_cluster::core::planner::Statistics;
use phalanx_cluster::core::types::Weight;
use serde_json::{Map, Value, json};

use super::partitions::Partition;

pub(super) struct Report<'a> {
    pub(super) partitions: &'a [Partition],
    pub(super) before_workers: &'a [u32],
    pub(super) after_workers: &'a [u32],
    pub(super) before: &'a [u32],
    pub(super) after: &'a [u32],
    pub(super) statistics: Statistics,
    pub(super) threshold: f64,
    pub(super) calculation_micros: u128,
}

impl Report<'_> {
    pub(super) fn print_json(&self, full: bool) -> io::Result<()> {
        let statistics = &self.statistics;
        let moves: Vec<Value> = self
            .moves()
            .map(|(partition, from, to)| {
                json!({"partition": partition.name, "from": worker(from), "to": worker(to), "weight": partition.weight})
            })
            .collect();
        let mut report = json!({
            "partitions": statistics.partitions,
            "workersBefore": self.before_workers.len(),
            "workersAfter": self.after_workers.len(),
            "threshold": self.threshold,
            "movedCount": statistics.moved_count,
            "movedWeight": statistics.moved_weight.0,
            "totalWeight": statistics.total_weight.0,
            "lowerBoundWeight": statistics.lower_bound_weight.0,
            "ratioToLowerBound": statistics.ratio_to_lower_bound(),
            "maxOverMean": statistics.max_over_mean(),
            "minOverMean": statistics.min_over_mean(),
            "calculationMicros": self.calculation_micros,
            "moves": moves,
        });
        if full {
            report["before"] = self.owners(self.before);
            report["after"] = self.owners(self.after);
        }
        writeln!(io::stdout(), "{report}")
    }

    pub(super) fn print_table(&self) -> io::Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let (before, after) = (self.shares(self.before), self.shares(self.after));
        let mean = self.statistics.mean_weight();
        writeln!(
            out,
            "{:<14}{:>10}{:>18}{:>10}{:>18}{:>9}",
            "worker", "before", "weight", "after", "weight", "of mean"
        )?;
        let ids: std::collections::BTreeSet<u32> =
            self.before_workers.iter().chain(self.after_workers).copied().collect();
        for id in ids {
            let (had, had_weight) = before.get(&id).copied().unwrap_or_default();
            let (has, has_weight) = after.get(&id).copied().unwrap_or_default();
            let gone = !self.after_workers.contains(&id);
            let share = if gone || mean == 0.0 {
                "–".to_owned()
            } else {
                format!("{:.1} %", 100.0 * has_weight as f64 / mean)
            };
            writeln!(out, "{:<14}{had:>10}{had_weight:>18}{has:>10}{has_weight:>18}{share:>9}", worker(id))?;
        }
        let statistics = &self.statistics;
        let part = |of: Weight| {
            if statistics.total_weight == Weight(0) {
                0.0
            } else {
                100.0 * of.0 as f64 / statistics.total_weight.0 as f64
            }
        };
        let count_part = 100.0 * statistics.moved_count as f64 / (statistics.partitions.max(1)) as f64;
        writeln!(out)?;
        writeln!(
            out,
            "moves {} of {} partitions ({count_part:.1} %), {:.1} % of the weight",
            statistics.moved_count,
            statistics.partitions,
            part(statistics.moved_weight)
        )?;
        writeln!(
            out,
            "the least possible is {:.1} % of the weight; this plan is {:.3} times that",
            part(statistics.lower_bound_weight),
            statistics.ratio_to_lower_bound()
        )?;
        let verdict = if statistics.balanced { "inside" } else { "NOT inside" };
        writeln!(
            out,
            "loads are {:.1}–{:.1} % of the mean, {verdict} the band of ±{:.0} %; calculated in {} µs",
            100.0 * statistics.min_over_mean(),
            100.0 * statistics.max_over_mean(),
            100.0 * self.threshold,
            self.calculation_micros
        )?;
        out.flush()
    }

    fn moves(&self) -> impl Iterator<Item = (&Partition, u32, u32)> {
        let owners = self.before.iter().copied().zip(self.after.iter().copied());
        self.partitions
            .iter()
            .zip(owners)
            .filter(|(_, (from, to))| from != to)
            .map(|(p, (from, to))| (p, from, to))
    }

    fn owners(&self, owners: &[u32]) -> Value {
        let pairs =
            self.partitions.iter().zip(owners).map(|(p, &id)| (p.name.clone(), Value::from(worker(id))));
        Value::Object(pairs.collect::<Map<_, _>>())
    }

    /// Count and weight of each worker, added up from the owners.
    fn shares(&self, owners: &[u32]) -> BTreeMap<u32, (usize, u64)> {
        let mut shares: BTreeMap<u32, (usize, u64)> = BTreeMap::new();
        for (partition, &id) in self.partitions.iter().zip(owners) {
            let share = shares.entry(id).or_default();
            share.0 += 1;
            share.1 += partition.weight;
        }
        shares
    }
}

fn worker(id: u32) -> String {
    format!("defender-{id}")
}
