//! Real upstream files, and files that are not what they say, against counts taken by other means.

use crate::util;
use std::fs;

use crate::util::load;
use phalanx_etl::engine::Summary;
use phalanx_etl::store::Reader;
use phalanx_testkit::shared;
use serde_json::Value;

#[track_caller]
fn assert_adds_up(summary: &Summary, read: i64, outcome: &str) {
    let run = &summary.runs[0];
    assert_eq!((run.read, run.outcome.as_deref()), (read, Some(outcome)), "{run:?}");
    assert_eq!(run.read, run.stored + run.unchanged + run.dead_lettered + run.skipped, "{run:?}");
}

#[test]
fn both_versions_of_asvs_are_loaded_whole() {
    let Some(feeds) = shared("fixtures/feeds/asvs") else { return };
    let dir = tempfile::tempdir().unwrap();
    for (version, requirements) in [("4.0.3", 286), ("5.0.0", 345)] {
        let file = feeds.join(format!("asvs-{version}-en.csv"));
        let summary = load(&dir.path().join("x.db"), "asvs", &file);
        assert_adds_up(&summary, requirements, "completed");
        assert_eq!(summary.runs[0].stored, requirements);
        // Every requirement has its id in a row of its own, right after the name of its section.
        let text = fs::read_to_string(&file).unwrap();
        let ids = text.lines().filter(|line| line.starts_with('V')).count() as i64;
        assert_eq!(ids, requirements);
    }
}

#[test]
fn every_requirement_equals_that_of_the_published_json() {
    let Some(feeds) = shared("fixtures/feeds/asvs") else { return };
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    load(&db, "asvs", &feeds.join("asvs-5.0.0-en.csv"));
    let json: Value =
        serde_json::from_str(&fs::read_to_string(feeds.join("asvs-5.0.0-en.flat.json")).unwrap()).unwrap();
    let rows = json["requirements"].as_array().or(json.as_array()).expect("a list of requirements");
    let reader = Reader::open(&db).unwrap();
    for row in rows {
        let id = row["req_id"].as_str().unwrap();
        let record = reader.record(&format!("v2e::owasp::asvs::5.0.0-{id}")).unwrap();
        assert_eq!(record.expect(id).text, row["req_description"].as_str().unwrap().trim(), "{id}");
    }
    assert_eq!(rows.len(), 345);
}

#[test]
fn the_nvd_pages_are_loaded_whole_with_their_weaknesses() {
    let Some(feeds) = shared("fixtures/feeds/nvd") else { return };
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    let (mut count, mut links) = (0, std::collections::BTreeSet::new());
    for entry in fs::read_dir(&feeds).unwrap() {
        let page: Value = serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap();
        for one in page["vulnerabilities"].as_array().unwrap() {
            count += 1;
            for text in one["cve"]["weaknesses"].as_array().into_iter().flatten() {
                for value in text["description"].as_array().unwrap() {
                    let value = value["value"].as_str().unwrap();
                    if value.starts_with("CWE-") {
                        links.insert((one["cve"]["id"].to_string(), value.to_owned()));
                    }
                }
            }
        }
    }
    assert_adds_up(&load(&db, "cve", &feeds), count, "completed");
    let store = rusqlite::Connection::open(&db).unwrap();
    let stored: i64 = store.query_row("SELECT count(*) FROM links", [], |row| row.get(0)).unwrap();
    assert_eq!(stored, links.len() as i64);
}

#[test]
fn a_feed_that_declares_more_than_it_holds_completes_with_gaps() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("nvdcve-2.0-2024.json");
    let records: Vec<_> = (0..7).map(util::cve).collect();
    fs::write(&file, util::page_of(0, 9, &records, 9)).unwrap();
    let summary = load(&dir.path().join("x.db"), "cve", &file);
    assert_adds_up(&summary, 7, "completed with gaps");
    assert!(summary.runs[0].reason.as_ref().unwrap().contains("declares 9 records and holds 7"));
}

#[test]
fn a_feed_cut_anywhere_keeps_what_is_whole_and_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (0..20).map(util::cve).collect();
    let text = util::page_of(0, 20, &records, 20);
    for (round, len) in (0..text.len()).step_by(text.len() / 12).enumerate() {
        let file = dir.path().join(format!("cut-{round}.json"));
        fs::write(&file, &text[..len]).unwrap();
        let summary = load(&dir.path().join(format!("{round}.db")), "cve", &file);
        let run = &summary.runs[0];
        assert_ne!(run.outcome.as_deref(), Some("completed"), "cut at {len} of {}", text.len());
        assert_eq!(run.dead_lettered, 0, "half a record is no record");
    }
}

#[test]
fn a_compressed_feed_is_read_like_a_plain_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("nvdcve-2.0-2024.json.gz");
    let records: Vec<_> = (0..250).map(util::cve).collect();
    let mut gzip =
        flate2::write::GzEncoder::new(fs::File::create(&file).unwrap(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, util::page_of(0, 250, &records, 250).as_bytes()).unwrap();
    gzip.finish().unwrap();
    assert_adds_up(&load(&dir.path().join("x.db"), "cve", &file), 250, "completed");
}

#[test]
fn loading_again_what_has_not_changed_changes_no_row() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("nvdcve-2.0-2024.json");
    let records: Vec<_> = (0..250).map(util::cve).collect();
    fs::write(&file, util::page_of(0, 250, &records, 250)).unwrap();
    let db = dir.path().join("x.db");
    let rows = || -> Vec<String> {
        let store = rusqlite::Connection::open(&db).unwrap();
        let mut all = Vec::new();
        for sql in [
            "SELECT json_array(id, urn, version, hex(hash), hex(raw), title, text, details) FROM records ORDER BY id",
            "SELECT json_array(record_id, source_id, position, run_id, stored_ms) FROM provenance ORDER BY 1",
            "SELECT json_array(from_urn, kind, to_urn) FROM links ORDER BY 1",
            "SELECT json_array(urn, version) FROM record_versions ORDER BY 1",
        ] {
            let mut statement = store.prepare(sql).unwrap();
            all.extend(statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap));
        }
        all
    };
    load(&db, "cve", &file);
    let before = rows();
    assert_eq!(before.len(), 3 * 250);
    let again = load(&db, "cve", &file);
    assert_eq!((again.runs[0].stored, again.runs[0].unchanged), (0, 250));
    assert_eq!(rows(), before);
}
