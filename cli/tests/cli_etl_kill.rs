//! The real process, killed at random points, ends up with the tables of one that was left alone.

mod util;

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::json;
use util::phalanx_command;

const FILES: usize = 15;
const RECORDS_PER_FILE: usize = 400;
const ARGUMENTS: [&str; 5] = ["etl", "run", "cve", "--mirror", "."];
const KILLS: u64 = 20;

fn write_feeds(dir: &Path) {
    fs::create_dir_all(dir.join("nvd")).expect("it works");
    for file in 0..FILES {
        let records: Vec<_> = (0..RECORDS_PER_FILE)
            .map(|n| {
                let id = format!("CVE-{}-{:05}", 2000 + file, 10_000 + n);
                let text = format!("Record {n} of file {file}. ").repeat(20);
                json!({"cve": {"id": id, "descriptions": [{"lang": "en", "value": text}],
                    "weaknesses": [{"description": [{"lang": "en", "value": format!("CWE-{}", n % 90 + 1)}]}]}})
            })
            .collect();
        let feed = json!({"totalResults": RECORDS_PER_FILE, "format": "NVD_CVE", "version": "2.0",
            "vulnerabilities": records});
        fs::write(dir.join(format!("nvd/nvdcve-2.0-{}.json", 2000 + file)), feed.to_string())
            .expect("it works");
    }
}

fn start(dir: &Path, db: &str) -> Child {
    phalanx_command()
        .current_dir(dir)
        .args(ARGUMENTS)
        .args(["--db", db])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts")
}

#[track_caller]
fn run_to_the_end(dir: &Path, db: &str) {
    let ended = util::run(phalanx_command().current_dir(dir).args(ARGUMENTS).args(["--db", db]));
    ended.succeeds();
}

/// Everything in the tables of records and links, in one order.
fn tables(file: &Path) -> Vec<String> {
    let store = Connection::open(file).expect("it works");
    let mut rows = Vec::new();
    for query in [
        "SELECT urn || title || text || details || hex(hash) || hex(raw) || version FROM records ORDER BY urn",
        "SELECT from_urn || kind || to_urn FROM links ORDER BY 1",
        "SELECT read || ' read, ' || stored || ' stored, ' || unchanged FROM runs ORDER BY seq LIMIT 1",
        "SELECT count(*) || ' rows in the index' FROM search WHERE search MATCH 'record'",
    ] {
        let mut statement = store.prepare(query).expect("it works");
        rows.extend(
            statement
                .query_map([], |row| row.get::<_, String>(0))
                .expect("it works")
                .map(|row| row.expect("a row")),
        );
    }
    rows
}

/// Where to kill, as a part of a whole run: splitmix64 of the seed.
fn part(seed: u64) -> f64 {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

#[test]
fn killed_at_twenty_random_points_it_ends_with_the_same_tables() {
    let dir = tempfile::tempdir().unwrap();
    write_feeds(dir.path());
    let begin = Instant::now();
    run_to_the_end(dir.path(), "whole.db");
    let whole: Duration = begin.elapsed();
    let expected = tables(&dir.path().join("whole.db"));
    assert_eq!(expected.len(), 2 * FILES * RECORDS_PER_FILE + 2);

    let mut went_on = 0;
    for seed in 0..KILLS {
        let db = format!("killed-{seed}.db");
        let mut child = start(dir.path(), &db);
        std::thread::sleep(whole.mul_f64(part(seed)));
        child.kill().unwrap();
        child.wait().unwrap();
        run_to_the_end(dir.path(), &db);
        let found = tables(&dir.path().join(&db));
        assert!(found == expected, "seed {seed}: the tables differ");
        let store = Connection::open(dir.path().join(&db)).unwrap();
        let recovered: i64 = store
            .query_row("SELECT count(*) FROM history WHERE cause = 'recovered from RUNNING'", [], |row| {
                row.get(0)
            })
            .unwrap();
        went_on += recovered;
        drop(store);
        fs::remove_file(dir.path().join(&db)).unwrap();
    }
    assert!(went_on >= KILLS as i64 / 4, "only {went_on} runs were killed under way");
}
