//! The five catalogues: our own small files in the repository, the real ones where they are, and broken ones.

use std::fs;
use std::path::{Path, PathBuf};

use crate::util::load;
use phalanx_etl::engine::Summary;
use phalanx_etl::store::{Goal, Holding, Query, Reader, RecordView};
use phalanx_etl::{Urn, lookup, providers};
use phalanx_testkit::shared;

const FIVE: [&str; 5] = ["attack", "capec", "cce", "cwe", "ssg"];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

#[track_caller]
fn assert_adds_up(summary: &Summary) {
    for run in &summary.runs {
        assert_eq!(run.read, run.stored + run.unchanged + run.dead_lettered + run.skipped, "{run:?}");
    }
}

fn holding(db: &Path, id: &str) -> Holding {
    let all: Vec<_> = providers::all().into_iter().map(|one| (one.id().to_owned(), one.tallies())).collect();
    let holdings = Reader::open(db).expect("a store").holdings(&all).expect("counts");
    holdings.into_iter().find(|one| one.provider == id).expect("a provider")
}

#[track_caller]
fn assert_counts(db: &Path, id: &str, counts: &[(&str, i64)]) {
    let holding = holding(db, id);
    for (name, count) in counts {
        let found = holding.records.get(*name).or(holding.entries.get(*name));
        assert_eq!(found, Some(count), "{id}: {name} in {holding:?}");
    }
}

#[track_caller]
fn record(db: &Path, id: &str) -> RecordView {
    let urn = if id.contains("::") { id.parse() } else { Urn::guess(id) };
    lookup::record(&Reader::open(db).expect("a store"), &urn.expect(id)).expect("a query").expect(id)
}

fn links(record: &RecordView) -> Vec<(&str, &str)> {
    record
        .links
        .iter()
        .map(|link| (link.kind.as_str(), link.urn.rsplit("::").next().unwrap_or_default()))
        .collect()
}

/// Copies a folder to where it can be changed.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("it can be had");
    for entry in fs::read_dir(from).expect("it can be had") {
        let entry = entry.expect("it can be had");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::write(target, fs::read(entry.path()).expect("it can be had")).expect("it can be had");
        }
    }
}

#[test]
fn our_own_catalogues_are_loaded_and_a_second_run_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    // Per provider: stored, skipped. The REST folder of cwe holds one weakness fewer than it declares.
    for (id, stored, skipped) in
        [("attack", 7, 2), ("capec", 5, 0), ("cce", 4, 2), ("cwe", 4, 0), ("ssg", 5, 3)]
    {
        let summary = load(&db, id, &fixture("feeds").join(id));
        let run = &summary.runs[0];
        assert_adds_up(&summary);
        let outcome = if id == "cwe" { "completed with gaps" } else { "completed" };
        assert_eq!(
            (run.stored, run.skipped, run.outcome.as_deref()),
            (stored, skipped, Some(outcome)),
            "{run:?}"
        );
        let again = load(&db, id, &fixture("feeds").join(id));
        assert_eq!((again.runs[0].stored, again.runs[0].unchanged), (0, stored), "{:?}", again.runs[0]);
        assert_adds_up(&again);
    }
    let summary = load(&db, "cwe", &fixture("feeds/cwe"));
    let why = summary.runs[0].reason.clone().unwrap();
    assert!(why.contains("cwev.json declares 3 weaknesses, and there are 2"), "{why}");
}

#[test]
fn records_of_our_own_catalogues_say_what_the_files_say() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    for id in FIVE {
        load(&db, id, &fixture("feeds").join(id));
    }
    let weakness = record(&db, "CWE-10");
    assert_eq!((weakness.subtype.as_str(), weakness.severity.as_deref()), ("weakness", Some("High")));
    assert_eq!(weakness.text, "The product leaves a door unlocked.\n\nAnybody may enter.");
    assert_eq!(
        (weakness.published.as_deref(), weakness.modified.as_deref()),
        (Some("2020-01-02"), Some("2024-03-04"))
    );
    assert_eq!(
        links(&weakness),
        [("attack_pattern", "CAPEC-20"), ("child_of", "CWE-11"), ("observed_in", "CVE-2024-1000")]
    );
    let pattern = record(&db, "CAPEC-20");
    assert_eq!(pattern.text, "An adversary walks through a door & takes what is there.");
    assert_eq!(pattern.details["execution_flow"][0]["techniques"][0], "Walk around.");
    assert_eq!(
        (&pattern.details["skills"][0]["level"], &pattern.details["prerequisites"][0]),
        (&"Low".into(), &"There is a door.".into())
    );
    assert_eq!(
        links(&pattern),
        [
            ("child_of", "CAPEC-21"),
            ("reference", "REF-1"),
            ("technique", "T1001.001"),
            ("weakness", "CWE-10")
        ]
    );
    assert_eq!(record(&db, "v2e::mitre::capec::REF-1").title, "On Doors");
    let technique = record(&db, "T1001.001");
    assert_eq!(links(&technique), [("child_of", "T1001"), ("tactic", "TA0001")]);
    let named: Vec<_> = technique.linked_from.iter().map(|link| link.kind.as_str()).collect();
    assert_eq!(named, ["mitigates", "technique", "uses"]);
    let revoked = record(&db, "T1002");
    assert_eq!(
        (revoked.status.as_deref(), links(&revoked)),
        (Some("revoked"), vec![("revoked_by", "T1001")])
    );
    let group = record(&db, "G0001");
    assert_eq!(links(&group), [("uses", "S0001"), ("uses", "T1001.001")], "what is deprecated is no link");
    let kept = group.details["relationships"].as_array().unwrap();
    assert!(
        kept.iter().any(|one| one["withdrawn"] == true && one["description"] == "No longer."),
        "{kept:?}"
    );
    let rule = record(&db, "v2e::nist::ssg::shed/lock_door");
    assert_eq!((rule.severity.as_deref(), rule.text.as_str()), (Some("high"), "Turn the key."));
    assert_eq!(links(&rule), [("cce", "CCE-10001-4"), ("member_of", "shed/group/doors")]);
    let profile = record(&db, "v2e::nist::ssg::shed/profile/standard");
    assert_eq!(links(&profile), [("selects", "shed/lock_door")]);
    assert_eq!(profile.details["selections"].as_array().unwrap().len(), 2);
    assert_eq!(
        record(&db, "v2e::nist::ssg::guide-shed").details["benchmark"],
        "xccdf_org.ssgproject.content_benchmark_HOUSE"
    );
    let twice = record(&db, "CCE-10001-4");
    assert_eq!(twice.text, "The door should be locked.");
    assert_eq!(twice.details["platforms"], serde_json::json!(["barn", "shed"]));
    assert_eq!(twice.details["sources"][0]["references"]["A Guide to Sheds"], "page 7");
    assert_eq!(record(&db, "CCE-10004-8").text, "Give it hay,\nand water.");
    assert_eq!(record(&db, "CCE-10003-0").severity.as_deref(), Some("low"));
}

#[test]
fn the_bundle_and_the_workbook_give_the_same_techniques() {
    let dir = tempfile::tempdir().unwrap();
    let (stix, xlsx) = (dir.path().join("stix.db"), dir.path().join("xlsx.db"));
    load(&stix, "attack", &fixture("feeds/attack"));
    assert_adds_up(&load(&xlsx, "attack", &fixture("attack-workbook")));
    for id in ["T1001", "T1001.001", "TA0001", "M1001", "G0001", "S0001"] {
        let [one, other] = [&stix, &xlsx].map(|db| {
            let record = record(db, id);
            let day = |date: &Option<String>| date.as_ref().map(|date| date[..10].to_owned());
            let links: Vec<_> =
                record.links.iter().filter(|link| link.kind != "attack_pattern").cloned().collect();
            let details = ["tactics", "platforms", "is_subtechnique", "aliases", "stix", "domains"];
            let details = details.map(|name| record.details[name].clone());
            (record.title, record.text, day(&record.published), day(&record.modified), links, details)
        });
        assert_eq!(one, other, "{id}");
    }
}

#[test]
fn the_xml_catalogue_of_cwe_gives_what_the_rest_api_gives() {
    let dir = tempfile::tempdir().unwrap();
    let (json, xml) = (dir.path().join("json.db"), dir.path().join("xml.db"));
    load(&json, "cwe", &fixture("feeds/cwe"));
    let summary = load(&xml, "cwe", &fixture("cwe-catalogue"));
    assert_eq!((summary.runs[0].stored, summary.runs[0].outcome.as_deref()), (4, Some("completed")));
    let [one, other] = [&json, &xml].map(|db| {
        let record = record(db, "CWE-10");
        (
            record.title,
            record.text,
            record.published,
            record.modified,
            record.severity,
            record.details["consequences"].clone(),
        )
    });
    assert_eq!(one, other);
    let kinds = |db: &Path| record(db, "CWE-10").links;
    assert_eq!(
        kinds(&json).iter().map(|one| &one.urn).collect::<Vec<_>>(),
        kinds(&xml).iter().map(|one| &one.urn).collect::<Vec<_>>()
    );
}

#[test]
fn a_truncated_file_costs_what_is_cut_off_and_is_said() {
    for (id, file) in [
        ("attack", "enterprise-attack-1.0.json"),
        ("capec", "capec_v1.0.xml"),
        ("cce", "cce-COMBINED-1.xlsx"),
        ("cwe", "W/10.json"),
        ("ssg", "ssg-shed-ds.xml"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(id);
        copy(&fixture("feeds").join(id), &folder);
        let bytes = fs::read(folder.join(file)).unwrap();
        let db = dir.path().join("x.db");
        let whole = load(&db, id, &folder).runs[0].stored;
        for part in [1, 2, 3] {
            fs::write(folder.join(file), &bytes[..bytes.len() * part / 4]).unwrap();
            let summary = load(&dir.path().join(format!("{part}.db")), id, &folder);
            let run = &summary.runs[0];
            assert_adds_up(&summary);
            assert!(run.stored <= whole, "{id}: {run:?}");
            let said = run.outcome.as_deref() != Some("completed") || run.dead_lettered > 0;
            assert!(said, "{id} cut at {part}/4: {run:?}");
        }
    }
}

#[test]
fn a_mutated_entry_is_a_dead_letter_and_costs_no_other() {
    for (id, file, from, to) in [
        ("attack", "enterprise-attack-1.0.json", "\"name\": \"Locks\"", "\"nome\": \"Locks\""),
        ("capec", "capec_v1.0.xml", "CWE_ID=\"10\"", "CWE_ID=\"ten\""),
        ("cce", "cce_csv/stable.csv", "CCE-10004-8", "CCE-1x004-8"),
        ("cwe", "W/10.json", "\"ID\": \"10\"", "\"ID\": \"1O\""),
        ("ssg", "ssg-shed-ds.xml", "Paint the Door", ""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(id);
        copy(&fixture("feeds").join(id), &folder);
        let whole = load(&dir.path().join("x.db"), id, &folder).runs[0].stored;
        let text = fs::read_to_string(folder.join(file)).unwrap();
        assert!(text.contains(from), "{id}");
        fs::write(folder.join(file), text.replacen(from, to, 1)).unwrap();
        let db = dir.path().join("y.db");
        let summary = load(&db, id, &folder);
        let run = &summary.runs[0];
        assert_adds_up(&summary);
        assert_eq!((run.stored, run.dead_lettered), (whole - 1, 1), "{id}: {run:?}");
        let letters = Reader::open(&db).unwrap().dead_letters().unwrap();
        assert!(!letters[0].reason.is_empty() && !letters[0].raw.is_empty());
    }
}

#[test]
fn the_real_catalogues_have_the_counts_their_publishers_say() {
    let Some(feeds) = shared("fixtures/feeds") else { return };
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    for id in FIVE {
        let summary = load(&db, id, &feeds.join(id));
        let run = &summary.runs[0];
        assert_adds_up(&summary);
        assert_eq!(
            run.dead_lettered,
            0,
            "{id}: {:?}",
            Reader::open(&db).unwrap().dead_letters().unwrap().first()
        );
        let outcome = if id == "cwe" { "completed with gaps" } else { "completed" };
        assert_eq!(run.outcome.as_deref(), Some(outcome), "{run:?}");
        let again = load(&db, id, &feeds.join(id));
        assert_eq!((again.runs[0].stored, again.runs[0].unchanged), (0, run.stored), "{id} changes nothing");
        println!("{:?}", holding(&db, id));
    }
    assert_counts(&db, "cwe", &[("weakness", 873), ("category", 420), ("view", 58)]);
    assert_counts(
        &db,
        "capec",
        &[("pattern", 615), ("category", 78), ("view", 13), ("reference", 440), ("ATT&CK mappings", 272)],
    );
    // The centos7 and firefox data streams; the plain XCCDF of firefox is the same benchmark once more.
    assert_counts(
        &db,
        "ssg",
        &[
            ("benchmark", 2),
            ("profile", 6),
            ("group", 206),
            ("rule", 427),
            ("CCE idents", 394),
            ("selections", 1157),
        ],
    );
    assert_counts(&db, "cce", &[("configuration", 15_721)]);
    // Counted in the files by other means: the rows of the enterprise workbook and the objects of the newest ics bundle.
    assert_counts(
        &db,
        "attack",
        &[("technique", 691 + 118), ("tactic", 14 + 12), ("asset", 18), ("data source", 17)],
    );
}

#[test]
fn ids_in_more_than_one_sheet_are_one_record_with_several_sources() {
    let Some(feeds) = shared("fixtures/feeds/cce") else { return };
    // The workbook's 44 sheets have 54 such ids: 50 stand in both of SLES 15, two in aix5.3 and solaris9, two in both of
    // macOS. The 34 CSV files lack aix5.3, and so have 52.
    for (place, ids) in [(feeds.clone(), 54), (feeds.join("cce_csv"), 52)] {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("x.db");
        load(&db, "cce", &place);
        let several: i64 = rusqlite::Connection::open(&db)
            .unwrap()
            .query_row(
                "SELECT count(*) FROM records WHERE json_array_length(details, '$.platforms') > 1
                    AND json_array_length(details, '$.sources') > 1",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(several, ids, "{}", place.display());
    }
}

#[test]
fn records_of_the_real_catalogues_say_what_the_files_say() {
    let Some(feeds) = shared("fixtures/feeds") else { return };
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    for id in FIVE {
        load(&db, id, &feeds.join(id));
    }
    let xss = record(&db, "CWE-79");
    assert!(
        xss.title.starts_with("Improper Neutralization of Input During Web Page Generation"),
        "{}",
        xss.title
    );
    assert_eq!((xss.severity.as_deref(), xss.status.as_deref()), (Some("High"), Some("Stable")));
    assert!(links(&xss).contains(&("child_of", "CWE-74")) && links(&xss).contains(&("peer_of", "CWE-352")));
    assert_eq!(record(&db, "CWE-1000").subtype, "view");
    assert_eq!(record(&db, "CWE-100").status.as_deref(), Some("Deprecated"));
    let sql = record(&db, "CAPEC-66");
    assert_eq!((sql.title.as_str(), sql.severity.as_deref()), ("SQL Injection", Some("High")));
    assert_eq!(sql.details["execution_flow"].as_array().unwrap().len(), 4);
    assert!(
        links(&sql).contains(&("child_of", "CAPEC-248")) && links(&sql).contains(&("weakness", "CWE-89"))
    );
    let mapped: Vec<_> =
        record(&db, "CAPEC-571").links.into_iter().filter(|one| one.kind == "technique").collect();
    assert!(mapped.iter().any(|one| one.urn.ends_with("::T1562.002")), "{mapped:?}");
    assert_eq!(record(&db, "T0803").status.as_deref(), Some("revoked"), "the newest bundle says so");
    let technique = record(&db, "T0800");
    assert_eq!(technique.title, "Activate Firmware Update Mode");
    assert!(links(&technique).contains(&("tactic", "TA0107")), "{:?}", technique.links);
    assert_eq!(record(&db, "G0034").details["domains"], serde_json::json!(["enterprise", "ics"]));
    let rule = record(&db, "v2e::nist::ssg::centos7/partition_for_var_log");
    assert_eq!(
        (rule.severity.as_deref(), rule.title.as_str()),
        (Some("low"), "Ensure /var/log Located On Separate Partition")
    );
    assert!(links(&rule).contains(&("cce", "CCE-26967-0")));
    assert_eq!(record(&db, "v2e::nist::ssg::guide-firefox").details["version"], "0.1.46");
    let cce = record(&db, "CCE-80206-6");
    assert_eq!(
        (cce.title.as_str(), &cce.details["mechanism"]),
        ("Disable debug-shell SystemD Service", &"via systemctl".into())
    );
    assert_eq!(
        record(&db, "CCE-5658-0").text,
        "/export/home should be configured on an appropriate filesystem partition"
    );
    assert_eq!(record(&db, "CCE-27905-9").modified.as_deref(), Some("2013-02-11"));
}

#[test]
fn a_real_path_leads_from_a_vulnerability_to_techniques_and_words_find_records() {
    let Some(feeds) = shared("fixtures/feeds") else { return };
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    for (id, folder) in [("cwe", "cwe"), ("capec", "capec"), ("attack", "attack"), ("cve", "nvd")] {
        load(&db, id, &feeds.join(folder));
    }
    let reader = Reader::open(&db).unwrap();
    let from: String = rusqlite::Connection::open(&db)
        .unwrap()
        .query_row(
            "SELECT from_urn FROM links WHERE to_urn LIKE '%::CWE-79' AND from_urn LIKE '%::cve::%' LIMIT 1",
            [],
            |row| row.get(0),
        )
        .unwrap();
    let paths = reader
        .paths(&lookup::path(), &from.parse().unwrap(), &Goal::Kind("attack".to_owned()))
        .unwrap()
        .unwrap();
    let tree = paths.tree.expect("a path");
    println!("measured: {} paths of {} steps from {from}", paths.count, paths.steps);
    let mut stop = &tree;
    let mut kinds = vec![stop.urn.split("::").nth(2).unwrap()];
    while let Some(next) = stop.next.first() {
        stop = next;
        kinds.push(stop.urn.split("::").nth(2).unwrap());
    }
    assert_eq!((kinds.first(), kinds.last(), kinds.len()), (Some(&"cve"), Some(&"attack"), paths.steps + 1));
    let query = Query {
        text: "sql injection".to_owned(),
        types: vec!["cwe".to_owned()],
        severity: Some("high".to_owned()),
        since: Some("2024".to_owned()),
        limit: 5,
        ..Query::default()
    };
    let hits = reader.search(&query).unwrap();
    assert_eq!(hits[0].urn, "v2e::mitre::cwe::CWE-89", "{hits:?}");
    let whole = Query { text: "sql injection".to_owned(), limit: 5, ..Query::default() };
    let best: Vec<_> = reader.search(&whole).unwrap().into_iter().map(|hit| hit.urn).collect();
    let place = best.iter().position(|urn| urn == "v2e::mitre::capec::CAPEC-66");
    assert!(place.is_some_and(|place| place < 2), "its title says just that: {best:?}");
    assert!(hits.iter().all(|hit| hit.kind == "cwe" && hit.severity.as_deref() == Some("High")));
}

#[test]
fn all_shortest_paths_are_found_in_both_directions_and_ends_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("x.db");
    for (id, folder) in [("cwe", "cwe"), ("capec", "capec"), ("attack", "attack"), ("cve", "nvd")] {
        load(&db, id, &fixture("feeds").join(folder));
    }
    let reader = Reader::open(&db).unwrap();
    let paths = |from: &str, to: Goal| {
        reader.paths(&lookup::path(), &Urn::guess(from).unwrap(), &to).unwrap().unwrap()
    };
    let attack = || Goal::Kind("attack".to_owned());
    let forward = paths("CVE-2024-1000", attack());
    assert_eq!((forward.count, forward.steps), (1, 3));
    let back = paths("T1001.001", Goal::Record(Urn::guess("CVE-2024-1000").unwrap()));
    assert_eq!((back.count, back.steps), (1, 3));
    let nowhere = paths("CVE-2024-1001", attack());
    assert_eq!((nowhere.count, nowhere.tree), (0, None));
    assert_eq!(
        (nowhere.ends[0].urn.as_str(), nowhere.ends[0].why.as_str()),
        ("v2e::mitre::cwe::CWE-11", "it leads to no capec")
    );
}
