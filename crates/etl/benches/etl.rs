//! Records per second from local NVD pages into the store, memory while a feed of 500 MB passes, all real feeds in one
//! run, and how quickly words find records among 300,000.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use phalanx_etl::engine::{Engine, Options};
use phalanx_etl::source::Source;
use phalanx_etl::store::{Query, Reader};
use phalanx_testkit::shared;
use serde_json::Value;

const RECORDS: usize = 40_000;
const ROUNDS: usize = 3;
const LARGE_FEED_BYTES: usize = 500_000_000;
const SEARCHED_RECORDS: usize = 300_000;
const QUERIES: usize = 200;

fn main() {
    let Some(page) = shared("fixtures/feeds/nvd/api2-full-page-38.json") else { return };
    let page: Value = serde_json::from_slice(&fs::read(page).expect("a readable page")).expect("JSON");
    let records = page["vulnerabilities"].as_array().expect("a list of records");
    let dir = tempfile::tempdir().expect("a folder");
    // First, so that the peak is its own.
    all_feeds(dir.path());

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
    fs::remove_file(dir.path().join("large.db")).expect("it was written");
    search(dir.path(), &feed, records);
}

/// Every real feed in one run.
fn all_feeds(dir: &Path) {
    let Some(feeds) = shared("fixtures/feeds") else { return };
    let mut options = Options::new(dir.join("all.db"));
    options.mirror = Some(Source::parse(&feeds.display().to_string(), None));
    let engine = Engine::new(options).expect("the built-in set is sound");
    let ids = engine.ids().to_vec();
    let start = Instant::now();
    let summary = engine.run(&ids, &mut |_| {}).expect("a run");
    let seconds = start.elapsed().as_secs_f64();
    let (read, stored) = summary.runs.iter().fold((0, 0), |sum, run| (sum.0 + run.read, sum.1 + run.stored));
    println!("all seven feeds in one run: {read} items read, {stored} records stored in {seconds:.1} s");
    println!("  {:.0} records/s, peak memory {} MB", stored as f64 / seconds, peak_memory_mb());
}

/// How long it takes to find the 20 best of many records: by one word, by two, with filters, by the most common words.
fn search(dir: &Path, feed: &Path, records: &[Value]) {
    let (count, _) = write_feed(feed, records, |count, _| count < SEARCHED_RECORDS);
    let db = dir.join("search.db");
    load(feed, &db, count);
    let reader = Reader::open(&db).expect("the store is there");
    let words: Vec<String> = records
        .iter()
        .filter_map(|record| record["cve"]["descriptions"][0]["value"].as_str())
        .flat_map(|text| text.split(|one: char| !one.is_alphanumeric()).filter(|word| word.len() > 4))
        .map(str::to_owned)
        .collect();
    let queries = |per_query: usize| {
        let words = &words;
        (0..QUERIES).map(move |round| {
            let start = round * 7 % (words.len() - per_query);
            words[start..start + per_query].join(" ")
        })
    };
    let common = ["vulnerability", "attacker", "remote", "allows", "code", "user", "access", "version"];
    let common = common.iter().cycle().take(QUERIES).map(|&word| word.to_owned());
    println!("search among {count} records, 20 best, {QUERIES} queries each");
    let (high, since) = (Some("HIGH".to_owned()), Some("2023-03".to_owned()));
    time_search(&reader, "one word", queries(1), &Query::default());
    time_search(&reader, "two words", queries(2), &Query::default());
    time_search(&reader, "two words, severity", queries(2), &Query { severity: high, ..Query::default() });
    time_search(&reader, "two words, since", queries(2), &Query { since, ..Query::default() });
    time_search(&reader, "the most common words", common, &Query::default());
}

fn time_search(reader: &Reader, name: &str, texts: impl Iterator<Item = String>, query: &Query) {
    let mut times: Vec<f64> = texts
        .map(|text| {
            let query = Query { text, limit: 20, ..query.clone() };
            let start = Instant::now();
            reader.search(&query).expect("a search");
            start.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times[times.len() * part / 100];
    println!("  {name}: p50 {:.1} ms, p95 {:.1} ms (target p95 below 20)", at(50), at(95));
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
