//! Records per second from local NVD pages into the store, and memory while a feed of 500 MB passes.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use phalanx_etl::engine::{Engine, Options};
use phalanx_etl::source::Source;
use phalanx_testkit::shared;
use serde_json::Value;

const RECORDS: usize = 40_000;
const ROUNDS: usize = 3;
const LARGE_FEED_BYTES: usize = 500_000_000;

fn main() {
    let Some(page) = shared("fixtures/feeds/nvd/api2-full-page-38.json") else { return };
    let page: Value = serde_json::from_slice(&fs::read(page).expect("a readable page")).expect("JSON");
    let records = page["vulnerabilities"].as_array().expect("a list of records");
    let dir = tempfile::tempdir().expect("a folder");

    let feed = dir.path().join("nvdcve-2.0-2023.json");
    let (count, bytes) = write_feed(&feed, records, |count, _| count < RECORDS);
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|round| count as f64 / load(&feed, &dir.path().join(format!("{round}.db")), count))
        .collect();
    rates.sort_by(f64::total_cmp);
    println!("{count} records, {} MB: parsed and stored, median of {ROUNDS}", bytes / 1_000_000);
    println!("  {:.0} records/s (target 20,000)", rates[ROUNDS / 2]);
    let again = count as f64 / load(&feed, &dir.path().join("0.db"), count);
    println!("  {again:.0} records/s when nothing changed");

    let (count, bytes) = write_feed(&feed, records, |_, bytes| bytes < LARGE_FEED_BYTES);
    let rate = count as f64 / load(&feed, &dir.path().join("large.db"), count);
    println!("{count} records, {} MB in one feed", bytes / 1_000_000);
    println!("  {rate:.0} records/s, peak memory {} MB (target below 200)", peak_memory_mb());
}

/// Writes the records again and again under new ids, as the NVD writes them, while `more` wants it.
fn write_feed(file: &Path, records: &[Value], more: impl Fn(usize, usize) -> bool) -> (usize, usize) {
    let mut out = BufWriter::new(File::create(file).expect("a writable file"));
    let texts: Vec<(String, String)> = records
        .iter()
        .map(|record| {
            let id = record["cve"]["id"].as_str().expect("an id").to_owned();
            (format!("\"{id}\""), serde_json::to_string_pretty(record).expect("JSON"))
        })
        .collect();
    out.write_all(br#"{"format": "NVD_CVE", "version": "2.0", "vulnerabilities": ["#).expect("written");
    let (mut count, mut bytes) = (0, 0);
    while more(count, bytes) {
        let (id, text) = &texts[count % texts.len()];
        let text = text.replacen(id, &format!("\"CVE-2023-{:07}\"", count + 1_000_000), 1);
        if count > 0 {
            out.write_all(b",\n").expect("written");
        }
        out.write_all(text.as_bytes()).expect("written");
        bytes += text.len();
        count += 1;
    }
    write!(out, "], \"totalResults\": {count}}}").expect("written");
    out.flush().expect("written");
    (count, bytes)
}

/// How many seconds it takes, everything durable.
fn load(feed: &Path, db: &Path, count: usize) -> f64 {
    let mut options = Options::new(db.to_owned());
    options.providers.iter_mut().for_each(|provider| provider.dependencies.clear());
    options.sources.insert("cve".to_owned(), Source::parse(&feed.display().to_string(), None));
    let engine = Engine::new(options).expect("the built-in set is sound");
    let start = Instant::now();
    let summary = engine.run(&["cve".to_owned()], &mut |_| {}).expect("a run");
    let seconds = start.elapsed().as_secs_f64();
    let run = &summary.runs[0];
    assert_eq!((run.outcome.as_deref(), run.read), (Some("completed"), count as i64), "{run:?}");
    seconds
}

/// The most memory this process ever had, where the system says so.
fn peak_memory_mb() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or_else(|| "unknown".to_owned(), |kib| (kib / 1024).to_string())
}
