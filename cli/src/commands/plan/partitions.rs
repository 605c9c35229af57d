//! Where partitions come from: a CSV file, or a seed.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, bail};

/// A partition and its weight.
pub(super) struct Partition {
    pub(super) name: String,
    pub(super) weight: u64,
}

/// Weights as chambers have them: log-uniform over a factor of 120.
pub(super) fn synthetic(count: usize, seed: u64) -> Vec<Partition> {
    let mut state = seed;
    (0..count)
        .map(|i| Partition {
            name: format!("tool{:04}:chamber{}", i / 4, i % 4),
            weight: (30_000.0 * 120f64.powf(uniform(&mut state))).round() as u64,
        })
        .collect()
}

/// splitmix64, as a number in [0, 1).
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

const FACTORS: [&str; 3] = ["svid_count", "collection_freq_hz", "context_duration_seconds"];

/// Reads a file with a header. Errors name the line.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<Partition>> {
    let shown = file.display();
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_path(file)
        .with_context(|| format!("could not open {shown}"))?;
    let headers = reader.headers().with_context(|| format!("{shown}: no header"))?.clone();
    let column = |name: &str| headers.iter().position(|header| header == name);
    let (Some(tool), Some(chamber)) = (column("tool_id"), column("chamber_id")) else {
        bail!("{shown}: the header needs tool_id and chamber_id; it has {}", list(&headers));
    };
    let weight_columns: Vec<usize> = match column("weight") {
        Some(weight) => vec![weight],
        None => FACTORS.iter().filter_map(|name| column(name)).collect(),
    };
    if column("weight").is_none() && weight_columns.len() < FACTORS.len() {
        bail!("{shown}: the header needs weight, or {}; it has {}", FACTORS.join(", "), list(&headers));
    }
    let mut partitions = Vec::new();
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for record in reader.records() {
        let record = record.with_context(|| format!("{shown}: not CSV"))?;
        let line = record.position().map_or(0, csv::Position::line);
        let field = |at: usize| record.get(at).unwrap_or_default();
        let name =
            format!("{}:{}", checked(field(tool), &shown, line)?, checked(field(chamber), &shown, line)?);
        let mut weight = 1u64;
        for &at in &weight_columns {
            let factor: u64 = field(at).parse().with_context(|| {
                format!(
                    "{shown}, line {line}: {} is {:?}, and a whole number is needed",
                    &headers[at],
                    field(at)
                )
            })?;
            weight = weight
                .checked_mul(factor)
                .with_context(|| format!("{shown}, line {line}: the weight is too large"))?;
        }
        if let Some(first) = seen.insert(name.clone(), line) {
            bail!("{shown}, line {line}: {name} stands in line {first} already");
        }
        partitions.push(Partition { name, weight });
    }
    Ok(partitions)
}

fn list(headers: &csv::StringRecord) -> String {
    headers.iter().collect::<Vec<_>>().join(", ")
}

/// Names become subjects and keys, so they are checked where they enter.
fn checked<'a>(name: &'a str, shown: &std::path::Display<'_>, line: u64) -> anyhow::Result<&'a str> {
    phalanx_cluster::names::check(name).with_context(|| format!("{shown}, line {line}"))?;
    Ok(name)
}
