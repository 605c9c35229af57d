//! The real process, killed at random points, ends up with the tables of one that was left alone.
//!
//! The points are numbers of records: the process is killed once the store holds so many.

use crate::mirror;
use crate::util;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::mirror::{Answer, Mirror};
use crate::util::phalanx_command;
use rusqlite::{Connection, OpenFlags};
use serde_json::json;

const KILLS: u64 = 20;
/// Of those, how many at least must hit a run that has stored some of its records and not all.
const KILLED_UNDER_WAY_MIN: usize = 5;

/// A load that takes long enough to be killed.
struct Load {
    dir: tempfile::TempDir,
    arguments: Vec<String>,
    records: i64,
}

impl Load {
    fn command(&self, db: &Path) -> Command {
        let mut command = phalanx_command();
        command.current_dir(self.dir.path()).env("NVD_API_KEY", "key").args(["etl", "run"]);
        command.args(&self.arguments).arg("--db").arg(db).arg("--source").arg(util::cwe_source());
        command
    }

    #[track_caller]
    fn run_to_the_end(&self, db: &Path) {
        util::run(&mut self.command(db)).succeeds();
    }

    fn db(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{name}.db"))
    }
}

/// Records of a run so far, and whether it has ended; `None` while there is no run.
fn stored(db: &Path) -> Option<(i64, bool)> {
    let store = Connection::open_with_flags(db, OpenFlags::SQLITE_OPEN_READ_ONLY).ok()?;
    let sql = "SELECT read, ended_ms IS NOT NULL FROM runs WHERE provider <> 'cwe' ORDER BY seq LIMIT 1";
    store.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).ok()
}

/// Kills the process once the store holds `records`, and after that many looks more.
fn kill_at(mut child: Child, db: &Path, records: i64, looks: u64) {
    let is_over = |child: &mut Child| child.try_wait().expect("a child of ours").is_some();
    while stored(db).is_none_or(|(read, _)| read < records) && !is_over(&mut child) {
        std::thread::yield_now();
    }
    for _ in 0..looks {
        stored(db);
    }
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
}

/// Everything in the tables of records and links, in one order, and what the run counted.
fn tables(file: &Path) -> Vec<String> {
    let store = Connection::open(file).expect("a store");
    let mut rows = Vec::new();
    for query in [
        "SELECT urn || title || text || details || hex(hash) || hex(raw) || version FROM records
            WHERE provider <> 'cwe' ORDER BY urn",
        "SELECT from_urn || kind || to_urn FROM links ORDER BY 1",
        "SELECT read || ' read, ' || stored || ' stored, ' || unchanged FROM runs WHERE provider <> 'cwe' ORDER BY seq LIMIT 1",
        "SELECT count(*) || ' rows in the index' FROM search WHERE search MATCH 'record'",
    ] {
        let mut statement = store.prepare(query).expect("the tables are there");
        let found =
            statement.query_map([], |row| row.get::<_, String>(0)).expect("a query without parameters");
        rows.extend(found.map(|row| row.expect("a row of text")));
    }
    rows
}

/// splitmix64
fn random(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn survives_twenty_kills(load: &Load) {
    let whole = load.db("whole");
    load.run_to_the_end(&whole);
    let expected = tables(&whole);
    assert!(expected.len() as i64 > load.records, "{} rows", expected.len());

    let mut under_way = Vec::new();
    for seed in 0..KILLS {
        let db = load.db(&format!("killed-{seed}"));
        let child =
            load.command(&db).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
        let records = (random(seed) % (load.records as u64 * 9 / 10)) as i64;
        kill_at(child, &db, records, random(seed + KILLS) % 200);
        let killed = stored(&db);
        if let Some((read, false)) = killed
            && (1..load.records).contains(&read)
        {
            under_way.push(read);
        }
        load.run_to_the_end(&db);
        assert!(tables(&db) == expected, "seed {seed}, killed at {killed:?}: the tables differ");
        let store = Connection::open(&db).expect("a store");
        let recovered: i64 = store
            .query_row("SELECT count(*) FROM history WHERE cause LIKE 'recovered from %'", [], |row| {
                row.get(0)
            })
            .expect("a count");
        assert!(recovered == 1 || killed.is_none_or(|(read, ended)| ended || read == 0), "seed {seed}");
        drop(store);
        fs::remove_file(&db).expect("nobody holds it");
    }
    println!("measured: killed after {under_way:?} of {} records", load.records);
    assert!(under_way.len() >= KILLED_UNDER_WAY_MIN, "only {under_way:?} were killed under way");
}

#[test]
fn cve_from_files_survives_kills() {
    const FILES: usize = 15;
    const RECORDS_PER_FILE: usize = 400;
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("nvd")).unwrap();
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
        let file = dir.path().join(format!("nvd/nvdcve-2.0-{}.json", 2000 + file));
        fs::write(file, feed.to_string()).unwrap();
    }
    let arguments = ["cve", "--mirror", "."].map(str::to_owned).to_vec();
    survives_twenty_kills(&Load { dir, arguments, records: (FILES * RECORDS_PER_FILE) as i64 });
}

#[test]
fn cve_over_http_survives_kills() {
    const RECORDS: usize = 4000;
    let all: Vec<_> = (0..RECORDS).map(mirror::cve).collect();
    let mirror = Mirror::new(move |request| Answer::Body(mirror::page(request, &all, 250)));
    let arguments = vec!["cve".to_owned(), "--source".to_owned(), format!("cve={}", mirror.url)];
    let dir = tempfile::tempdir().unwrap();
    survives_twenty_kills(&Load { dir, arguments, records: RECORDS as i64 });
}

#[test]
fn asvs_survives_kills() {
    const RECORDS: usize = 6000;
    let dir = tempfile::tempdir().unwrap();
    let mut table = "chapter_id,chapter_name,section_id,section_name,req_id,req_description,level1,level2,level3,cwe,nist\n"
        .to_owned();
    for n in 0..RECORDS {
        let (chapter, section) = (n / 400, n / 20);
        let text = format!("Verify record {n}. ").repeat(10);
        table += &format!(
            "V{chapter},Chapter,V{chapter}.{section},Section,V{chapter}.{section}.{n},{text},,✓,✓,{},\n",
            n % 90 + 1
        );
    }
    fs::write(dir.path().join("asvs-4.0.3-en.csv"), table).unwrap();
    let arguments = ["asvs", "--source", "asvs=asvs-4.0.3-en.csv"].map(str::to_owned).to_vec();
    survives_twenty_kills(&Load { dir, arguments, records: RECORDS as i64 });
}
