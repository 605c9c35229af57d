use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use super::*;
use crate::core::Outcome;
use crate::core::provider::Saved;
use crate::record::{Compressor, Entry, Item, Link, Record, Reject, SourceRef, Verdict};
use crate::{ProviderState, Urn};

const AT: Duration = Duration::from_secs(1_700_000_000);

fn record(id: &str, text: &str, weakness: &str) -> Record {
    Record {
        subtype: "vulnerability",
        urn: Urn::new("cve", id).unwrap(),
        title: id.to_owned(),
        text: text.to_owned(),
        published: None,
        modified: None,
        status: None,
        severity: None,
        details: "{}".to_owned(),
        links: vec![Link { kind: "weakness", to: Urn::new("cwe", weakness).unwrap() }],
    }
}

fn entry(position: u64, verdict: Result<Verdict, Reject>) -> Entry {
    let raw = format!("{verdict:?}").into_bytes();
    Entry::new(&Item { position, raw }, verdict, &mut Compressor::new())
}

fn stored(position: u64, record: Record) -> Entry {
    entry(position, Ok(Verdict::Record(Box::new(record))))
}

fn commit(run_id: &str, entries: Vec<Entry>) -> Commit {
    let source = SourceRef { location: "file".to_owned(), checksum: None, fetched: AT };
    Commit {
        provider: "cve".to_owned(),
        run_id: run_id.to_owned(),
        at: AT,
        source: Some(source),
        entries,
        cursor: Some(("file".to_owned(), "7".to_owned())),
        saved: Some(Saved { state: ProviderState::Running, processed: 7, ..Saved::default() }),
        ..Commit::default()
    }
}

fn begin(file: &Path) -> (Writer, String) {
    let mut writer = Writer::open(file).unwrap();
    writer.register("cve", "cve", AT).unwrap();
    let run = writer.begin_run("cve", "file", AT).unwrap();
    (writer, run)
}

#[test]
fn writing_again_what_is_there_changes_no_row() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let (mut writer, run) = begin(&file);
    let entries = || {
        vec![
            stored(0, record("CVE-2024-1000", "one", "CWE-1")),
            entry(1, Err(Reject("bad".to_owned()))),
            entry(2, Ok(Verdict::Skip("a heading"))),
        ]
    };
    let first = writer.commit(&[commit(&run, entries())]).unwrap();
    let second = writer.commit(&[commit(&run, entries())]).unwrap();
    let counts = |stored, unchanged| Counts { read: 3, stored, unchanged, dead_lettered: 1, skipped: 1 };
    assert_eq!((first[0], second[0]), (counts(1, 0), counts(0, 1)));
    let reader = Reader::open(&file).unwrap();
    let view = reader.record("v2e::nvd::cve::CVE-2024-1000").unwrap().unwrap();
    assert_eq!((view.version, view.versions.len()), (1, 0));
    assert_eq!(reader.dead_letters().unwrap().len(), 1, "the same bytes are the same letter");
    assert_eq!(reader.runs().unwrap()[0].skips["a heading"], 2);
}

#[test]
fn a_changed_record_keeps_its_earlier_version_and_what_changed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let (mut writer, run) = begin(&file);
    writer.commit(&[commit(&run, vec![stored(0, record("CVE-2024-1000", "apple", "CWE-1"))])]).unwrap();
    writer.commit(&[commit(&run, vec![stored(0, record("CVE-2024-1000", "pear", "CWE-2"))])]).unwrap();
    let reader = Reader::open(&file).unwrap();
    let view = reader.record("v2e::nvd::cve::CVE-2024-1000").unwrap().unwrap();
    assert_eq!((view.version, view.text.as_str()), (2, "pear"));
    assert_eq!(view.versions[0].text, "apple");
    assert_eq!(view.versions[0].changed, serde_json::json!(["text", "raw"]));
    let weakness = LinkView { kind: "weakness".into(), urn: "v2e::mitre::cwe::CWE-2".into(), title: None };
    assert_eq!(view.links, [weakness]);
    let find = |text: &str| -> Vec<String> {
        let query = Query { text: text.to_owned(), limit: 10, ..Query::default() };
        reader.search(&query).unwrap().into_iter().map(|hit| hit.urn).collect()
    };
    assert_eq!(find("pear"), ["v2e::nvd::cve::CVE-2024-1000"]);
    assert_eq!(find("apple"), Vec::<String>::new(), "the index forgets what changed");
}

#[test]
fn records_cursor_counters_and_checkpoint_come_and_go_together() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let (mut writer, run) = begin(&file);
    {
        let mut batch = writer.batch().unwrap();
        batch.add(&commit(&run, vec![stored(0, record("CVE-2024-1000", "one", "CWE-1"))])).unwrap();
        // Dropped without being committed: as if the process were killed here.
    }
    assert_eq!(writer.cursor("cve", "file").unwrap(), None);
    let reader = Reader::open(&file).unwrap();
    assert_eq!((reader.runs().unwrap()[0].read, reader.checkpoints(9).unwrap().len()), (0, 0));

    writer.commit(&[commit(&run, vec![stored(0, record("CVE-2024-1000", "one", "CWE-1"))])]).unwrap();
    assert_eq!(writer.cursor("cve", "file").unwrap().as_deref(), Some("7"));
    assert_eq!(reader.runs().unwrap()[0].read, 1);
    let checkpoints = serde_json::to_value(reader.checkpoints(9).unwrap()).unwrap();
    assert_eq!(
        checkpoints,
        serde_json::json!([{"URN": "v2e::nvd::cve::CVE-2024-1000", "ProviderID": "cve",
            "ProcessedAt": "2023-11-14T22:13:20Z", "Success": true}])
    );
    let left = writer.unfinished("cve").unwrap().unwrap();
    assert_eq!((left.run_id, left.saved.state, left.saved.processed), (run, ProviderState::Running, 7));
}

#[test]
fn a_run_that_failed_leaves_a_checkpoint_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let (mut writer, run) = begin(&file);
    let ended = Some((Outcome::Failed, "no luck".to_owned()));
    writer.commit(&[Commit { ended, ..commit(&run, vec![]) }]).unwrap();
    let checkpoint = Reader::open(&file).unwrap().checkpoints(1).unwrap().remove(0);
    assert_eq!((checkpoint.success, checkpoint.error_message.as_deref()), (false, Some("no luck")));
    assert!(writer.unfinished("cve").unwrap().is_none());
}

#[test]
fn a_second_writer_is_refused_with_the_pid_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let first = Writer::open(&file).unwrap();
    let Err(Error::Locked { pid, .. }) = Writer::open(&file) else { panic!("two writers") };
    assert_eq!(pid, std::process::id().to_string());
    drop(first);
    Writer::open(&file).unwrap();
}

#[test]
fn a_newer_file_is_refused_for_reading_and_for_writing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    Connection::open(&file).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(Writer::open(&file), Err(Error::Newer { found: 99, .. })));
    assert!(matches!(Reader::open(&file), Err(Error::Newer { found: 99, .. })));
}

#[test]
fn a_short_id_without_a_version_is_that_of_the_newest_version() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let (mut writer, run) = begin(&file);
    let asvs =
        |id: &str| Record { urn: Urn::new("asvs", id).unwrap(), ..record("CVE-2024-1000", id, "CWE-1") };
    let entries =
        ["4.0.3-V1.1.1", "10.0.0-V1.1.1", "5.0.0-V1.1.1", "5.0.0-V11.1.1"].map(|id| stored(0, asvs(id)));
    writer.commit(&[commit(&run, entries.into())]).unwrap();
    let reader = Reader::open(&file).unwrap();
    let found = |urn: &str| crate::lookup::record(&reader, &urn.parse().unwrap()).unwrap();
    for bare in ["v2e::owasp::asvs::V1.1.1", "v2e::owasp::asvs::1.1.1"] {
        assert_eq!(found(bare).unwrap().urn, "v2e::owasp::asvs::10.0.0-V1.1.1");
    }
    assert!(found("v2e::owasp::asvs::V1.1.9").is_none());
}

#[test]
fn a_file_without_tables_counts_as_missing_and_a_writer_makes_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    Connection::open(&file).unwrap().pragma_update(None, "journal_mode", "wal").unwrap();
    assert!(matches!(Reader::open(&file), Err(Error::Missing(_))));
    Writer::open(&file).unwrap();
    Reader::open(&file).unwrap();
}

#[test]
fn a_file_of_the_first_schema_is_migrated_and_keeps_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let old = Connection::open(&file).unwrap();
    old.execute_batch(migrate::MIGRATIONS[0]).unwrap();
    old.execute_batch(
        "INSERT INTO macro VALUES ('main', 'DRAINING', 1, 2);
         INSERT INTO runs (id, provider, source, started_ms, ended_ms, outcome) VALUES ('cve-1', 'cve', 'f', 1, 2, 'completed');
         INSERT INTO events (at_ms, provider, kind, detail) VALUES (1, 'cve', 'PROVIDER_STARTED', '');
         PRAGMA user_version = 1;",
    )
    .unwrap();
    drop(old);
    let reader = Reader::open(&file).unwrap();
    assert_eq!(reader.macro_stats().unwrap().unwrap().event_queue_len, 0, "what is old was taken long ago");
    assert_eq!(reader.runs().unwrap()[0].outcome.as_deref(), Some("completed"));
    let (mut writer, run) = begin(&file);
    assert_eq!(run, "cve-2");
    writer.commit(&[commit(&run, vec![stored(0, record("CVE-2024-1000", "one", "CWE-1"))])]).unwrap();
}

#[test]
fn events_nobody_has_taken_are_the_queue_and_a_new_process_begins_with_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let (mut writer, run) = begin(&file);
    writer.macro_begins(AT).unwrap();
    let events = vec![(crate::core::EventKind::Checkpoint, String::new()); 3];
    writer.commit(&[Commit { events, ..commit(&run, vec![]) }]).unwrap();
    let queue_len = || Reader::open(&file).unwrap().macro_stats().unwrap().unwrap().event_queue_len;
    assert_eq!(queue_len(), 3);
    writer.events_handled(2).unwrap();
    assert_eq!(queue_len(), 1);
    writer.macro_begins(AT).unwrap();
    assert_eq!(queue_len(), 0);
}

#[test]
fn a_dead_letter_keeps_its_very_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let (mut writer, run) = begin(&file);
    let raw = b"{\"id\": \"\xFF\xFE\"}".to_vec();
    let reject = Err(Reject("not UTF-8".to_owned()));
    let letter = Entry::new(&Item { position: 4, raw: raw.clone() }, reject, &mut Compressor::new());
    writer.commit(&[commit(&run, vec![letter])]).unwrap();
    let letters = writer.letters().unwrap();
    assert_eq!((letters[0].raw.as_slice(), letters[0].position), (raw.as_slice(), 4));
    let shown = Reader::open(&file).unwrap().dead_letters().unwrap().remove(0);
    assert_eq!(shown.raw_hex.as_deref(), Some("7b226964223a2022fffe227d"));
}

#[test]
fn a_retry_is_a_run_of_its_own_that_satisfies_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let (mut writer, run) = begin(&file);
    writer.commit(&[commit(&run, vec![entry(0, Err(Reject("bad".to_owned())))])]).unwrap();
    let retry = writer.begin_retry("cve", AT).unwrap();
    let ended = Some((Outcome::Completed, "tried".to_owned()));
    writer.commit(&[Commit { ended, saved: None, cursor: None, ..commit(&retry, vec![]) }]).unwrap();
    assert_eq!((run.as_str(), retry.as_str()), ("cve-1", "cve-2"));
    let stats = Reader::open(&file).unwrap().providers().unwrap().remove(0);
    assert_eq!((stats.satisfied, stats.last_outcome, stats.run_id.as_deref()), (false, None, Some("cve-1")));
    assert_eq!(writer.unfinished("cve").unwrap().unwrap().run_id, "cve-1", "the run under way goes on");
}

#[test]
fn a_file_of_somebody_else_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (text, other) = (dir.path().join("notes.txt"), dir.path().join("other.db"));
    std::fs::write(&text, "these are notes, and no database at all").unwrap();
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE bookmarks (url)").unwrap();
    for file in [&text, &other] {
        let before = std::fs::read(file).unwrap();
        assert!(matches!(Writer::open(file), Err(Error::Foreign(_))), "{}", file.display());
        assert!(matches!(Reader::open(file), Err(Error::Foreign(_))), "{}", file.display());
        assert_eq!(std::fs::read(file).unwrap(), before, "{}", file.display());
    }
}

fn found(file: &Path, query: Query) -> Vec<String> {
    let hits = Reader::open(file).unwrap().search(&Query { limit: 20, ..query }).unwrap();
    hits.into_iter().map(|hit| hit.urn.rsplit("::").next().unwrap().to_owned()).collect()
}

fn words(text: &str) -> Query {
    Query { text: text.to_owned(), ..Query::default() }
}

#[test]
fn filters_narrow_a_search_and_never_count_as_words() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let (mut writer, run) = begin(&file);
    let one = |id: &str, severity: &str, published: &str, modified: Option<&str>| Record {
        severity: Some(severity.to_owned()),
        published: Some(published.to_owned()),
        modified: modified.map(str::to_owned),
        ..record(id, "an open door", "CWE-1")
    };
    let records = [
        one("CVE-2024-1001", "HIGH", "2023-05-06T00:00:00", None),
        one("CVE-2024-1002", "Very High", "2023-05-06T00:00:00", Some("2024-03-10T00:00:00")),
        one("CVE-2024-1003", "LOW", "2024-12-31T00:00:00", None),
        Record { subtype: "data source", ..record("CVE-2024-1004", "another door", "CWE-1") },
    ];
    let entries = records.into_iter().enumerate().map(|(at, one)| stored(at as u64, one)).collect();
    writer.commit(&[commit(&run, entries)]).unwrap();
    let severity = |text: &str| Query { severity: Some(text.to_owned()), ..words("door") };
    assert_eq!(found(&file, severity("high")), ["CVE-2024-1001"]);
    assert_eq!(found(&file, severity("very high")), ["CVE-2024-1002"]);
    let since = |text: &str| found(&file, Query { since: Some(text.to_owned()), ..words("door") });
    assert_eq!(since("2023"), ["CVE-2024-1001", "CVE-2024-1002", "CVE-2024-1003"]);
    assert_eq!(since("2024"), ["CVE-2024-1002", "CVE-2024-1003"]);
    assert_eq!(since("2024-03"), ["CVE-2024-1002", "CVE-2024-1003"]);
    assert_eq!(since("2024-03-11"), ["CVE-2024-1003"]);
    assert_eq!(since("2025"), Vec::<String>::new());
    let sort = Query { subtype: Some("data source".to_owned()), ..words("door") };
    assert_eq!(found(&file, sort), ["CVE-2024-1004"]);
    let kind = |kind: &str| found(&file, Query { types: vec![kind.to_owned()], ..words("door") }).len();
    assert_eq!((kind("cve"), kind("cwe")), (4, 0));
    for no_word in ["high", "kcve", "\u{e000}kcve", "vulnerability", "y2024"] {
        assert_eq!(found(&file, words(no_word)), Vec::<String>::new(), "{no_word}");
    }
}

#[test]
fn what_changed_is_found_by_its_new_words_and_filters_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let (mut writer, run) = begin(&file);
    let as_it = |text: &str, severity: &str| {
        let one = Record { severity: Some(severity.to_owned()), ..record("CVE-2024-1001", text, "CWE-1") };
        commit(&run, vec![stored(0, one)])
    };
    writer.commit(&[as_it("a door", "LOW")]).unwrap();
    writer.commit(&[as_it("a window", "HIGH")]).unwrap();
    let severity = |text: &str| Query { severity: Some(text.to_owned()), ..words("window") };
    assert_eq!(found(&file, words("door")), Vec::<String>::new());
    assert_eq!(found(&file, severity("low")), Vec::<String>::new());
    assert_eq!(found(&file, severity("high")), ["CVE-2024-1001"]);
}

#[test]
fn a_small_catalogue_and_a_fitting_title_are_found_among_thousands_that_use_the_same_words() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.db");
    let (mut writer, run) = begin(&file);
    writer.register("cwe", "cwe", AT).unwrap();
    let weakness = Record {
        urn: Urn::new("cwe", "CWE-1").unwrap(),
        title: "Door left open".to_owned(),
        ..record("CVE-2024-1000", "Somebody left it.", "CWE-2")
    };
    let titled =
        Record { title: "The door is open".to_owned(), ..record("CVE-2024-1001", "It is.", "CWE-1") };
    let weakness = Commit { provider: "cwe".to_owned(), ..commit(&run, vec![stored(0, weakness)]) };
    writer.commit(&[weakness, commit(&run, vec![stored(0, titled)])]).unwrap();
    let many = (0..3_000).map(|at| {
        let text = "Somebody came to a door, found that it was open, and went in as if it were a home.";
        stored(at, record(&format!("CVE-2024-{}", 10_000 + at), text, "CWE-1"))
    });
    writer.commit(&[commit(&run, many.collect())]).unwrap();
    let hits = found(&file, words("open door"));
    assert_eq!(hits.len(), 20);
    assert_eq!(&hits[..2], ["CWE-1", "CVE-2024-1001"]);
    assert_eq!(found(&file, Query { types: vec!["cwe".to_owned()], ..words("open door") }), ["CWE-1"]);
}
