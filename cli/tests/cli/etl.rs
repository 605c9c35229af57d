//! `phalanx etl`, as people use it.

use std::fs;
use std::path::Path;

use crate::util::{Run, phalanx_in};
use serde_json::Value;

const ASVS: &str = "chapter_id,chapter_name,section_id,section_name,req_id,req_description,L\n\
                    V1,Encoding,V1.1,Architecture,V1.1.1,Verify it.,2\n\
                    V1,Encoding,V1.1,Architecture,V1.1.2,Verify that.,3\n\
                    V1,Encoding,V1.1,Architecture,oops,Verify nothing.,3\n";

fn etl(dir: &Path, arguments: &[&str]) -> Run {
    phalanx_in(dir, &[&["etl"], arguments].concat())
}

fn json(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).expect("JSON on standard output")
}

/// Our own small feeds, with a dead letter in asvs and a record that is missing in cve.
fn mirror(dir: &Path) {
    copy(
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/etl/tests/fixtures/feeds")),
        &dir.join("mirror"),
    );
    fs::write(dir.join("mirror/asvs/asvs-5.0.0-en.csv"), ASVS).expect("a file of the mirror");
    let feed = r#"{"resultsPerPage": 2, "startIndex": 0, "totalResults": 2, "format": "NVD_CVE", "version": "2.0",
        "vulnerabilities": [{"cve": {"id": "CVE-2024-1000", "descriptions": [{"lang": "en", "value": "A door."}],
        "weaknesses": [{"description": [{"lang": "en", "value": "CWE-10"}]}]}}]}"#;
    fs::write(dir.join("mirror/nvd/nvdcve-2.0-2024.json"), feed).expect("a file of the mirror");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder of the mirror");
    for entry in fs::read_dir(from).expect("a folder of ours") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::write(target, fs::read(path).expect("a file of ours")).expect("a file of the mirror");
        }
    }
}

#[test]
fn a_run_says_what_it_did_by_numbers_and_by_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    mirror(dir.path());
    let run = etl(dir.path(), &["run", "--all", "--mirror", "mirror", "--json"]).fails_with(3);
    let all = json(&run)["runs"].clone();
    let of = |id: &str| all.as_array().unwrap().iter().find(|run| run["provider"] == id).unwrap().clone();
    let runs = [of("asvs"), of("cve")];
    let ids: Vec<_> = all.as_array().unwrap().iter().map(|run| run["provider"].as_str().unwrap()).collect();
    let place = |id: &str| ids.iter().position(|one| *one == id).unwrap();
    assert_eq!(ids.len(), 7);
    assert!(place("cwe") < place("capec") && place("capec") < place("attack") && place("cwe") < place("cve"));
    let numbers = |run: &Value| {
        ["read", "stored", "unchanged", "deadLettered", "skipped"].map(|n| run[n].as_i64().unwrap())
    };
    assert_eq!((runs[0]["provider"].as_str(), numbers(&runs[0])), (Some("asvs"), [3, 2, 0, 1, 0]));
    assert_eq!(
        (runs[1]["outcome"].as_str(), numbers(&runs[1])),
        (Some("completed with gaps"), [1, 1, 0, 0, 0])
    );
    assert_eq!(runs[0]["runId"], "asvs-1");
    assert!(runs[0]["durationMs"].is_number());
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&json(&run)), ["holdings", "runs"]);
    let mut fields = [
        "provider",
        "runId",
        "outcome",
        "read",
        "stored",
        "unchanged",
        "deadLettered",
        "skipped",
        "durationMs",
    ];
    fields.sort_unstable();
    assert_eq!(keys(&runs[0]), fields);

    let again = etl(dir.path(), &["run", "asvs", "--mirror", "mirror", "--json"]).succeeds();
    assert_eq!(numbers(&json(&again)["runs"][0]), [3, 0, 2, 1, 0]);
}

#[test]
fn what_was_loaded_can_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    mirror(dir.path());
    etl(dir.path(), &["run", "asvs", "--mirror", "mirror", "--db", "x.db"]).succeeds();
    let see = |arguments: &[&str]| {
        json(&etl(dir.path(), &[arguments, &["--db", "x.db", "--json"]].concat()).succeeds())
    };
    let status = see(&["status"]);
    assert_eq!(status["macro"]["state"], "DRAINING");
    let asvs = &status["providers"][0];
    assert_eq!((asvs["state"].as_str(), asvs["processed_count"].as_i64()), (Some("TERMINATED"), Some(3)));
    for name in
        ["id", "provider_type", "last_checkpoint", "error_count", "permits_held", "created_at", "updated_at"]
    {
        assert!(!asvs[name].is_null(), "{name}");
    }
    for name in ["id", "provider_count", "event_queue_len", "provider_states", "created_at", "updated_at"] {
        assert!(!status["macro"][name].is_null(), "{name}");
    }
    assert_eq!(see(&["checkpoints"])["checkpoints"][0]["URN"], "v2e::owasp::asvs::5.0.0-V1.1.2");
    assert_eq!(see(&["failures"])["failures"][0]["position"], 2);
    let kinds: Vec<_> =
        see(&["events"])["events"].as_array().unwrap().iter().map(|e| e["kind"].to_string()).collect();
    assert_eq!(kinds, [r#""PROVIDER_STARTED""#, r#""QUOTA_GRANTED""#, r#""PROVIDER_COMPLETED""#]);
    assert_eq!(see(&["show", "v2e::owasp::asvs::1.1.1"])["text"], "Verify it.");
    assert_eq!(see(&["retry"])["runs"][0]["deadLettered"], 1, "what was not understood still is not");
    etl(dir.path(), &["status", "--db", "x.db"]).succeeds();
}

#[test]
fn wrong_use_is_2_a_failed_provider_is_4_and_a_missing_database_is_1() {
    let dir = tempfile::tempdir().unwrap();
    mirror(dir.path());
    assert!(
        etl(dir.path(), &["run", "nope"])
            .fails_with(2)
            .stderr
            .contains("there are: asvs, attack, capec, cce, cve, cwe, ssg")
    );
    etl(dir.path(), &["run"]).fails_with(2);
    etl(dir.path(), &["run", "asvs", "--source", "asvs"]).fails_with(2);
    etl(dir.path(), &["run", "asvs", "--source", "nope=x"]).fails_with(2);
    let unknown = etl(
        dir.path(),
        &["run", "cve", "--source", "cve=mirror/asvs/asvs-5.0.0-en.csv", "--mirror", "mirror"],
    )
    .fails_with(4);
    assert!(unknown.stdout.contains("not an NVD feed"), "{unknown:?}");
    fs::write(dir.path().join("mirror/other.json"), "{}").unwrap();
    for (source, refused) in [
        ("asvs=mirror/other.json", "not an ASVS file"),
        ("asvs=mirror", "there is no file in it this provider knows"),
        ("asvs=nowhere.csv", "No such file"),
    ] {
        let run = etl(dir.path(), &["run", "asvs", "--source", source, "--db", "y.db"]).fails_with(4);
        assert!(run.stdout.contains(refused), "{source}: {run:?}");
    }
    assert!(
        etl(dir.path(), &["retry", "nope", "--db", "y.db"]).fails_with(2).stderr.contains("asvs, attack")
    );
    etl(dir.path(), &["retry", "--db", "none.db"]).fails_with(1);
    assert!(!dir.path().join("none.db").exists(), "nobody makes a store by looking for it");
    assert!(etl(dir.path(), &["status", "--db", "none.db"]).fails_with(1).stderr.contains("does not exist"));
    assert!(etl(dir.path(), &["show", "CVE-2024-1000"]).fails_with(1).stderr.contains("not a URN"));
}

#[test]
fn the_version_of_asvs_can_be_said_outright() {
    let dir = tempfile::tempdir().unwrap();
    mirror(dir.path());
    etl(dir.path(), &["run", "asvs", "--source", "asvs@6.0.0=mirror/asvs/asvs-5.0.0-en.csv"]).succeeds();
    etl(dir.path(), &["show", "v2e::owasp::asvs::6.0.0-V1.1.1"]).succeeds();
}

#[test]
fn a_dead_letter_that_is_understood_by_now_becomes_a_record_in_a_run_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    mirror(dir.path());
    etl(dir.path(), &["run", "asvs", "--mirror", "mirror", "--db", "x.db"]).succeeds();
    // As if an older program had not understood a requirement: its bytes are a letter and no record.
    let store = rusqlite::Connection::open(dir.path().join("x.db")).unwrap();
    store
        .execute_batch(
            "INSERT INTO dead_letters (provider, hash, run_id, source_id, position, reason, raw, at_ms)
                SELECT provider, hash, run_id, source_id, position, 'too new', raw, stored_ms
                FROM records JOIN provenance ON record_id = id WHERE urn LIKE '%V1.1.2';
             INSERT INTO search (search, rowid, title, text, facets)
                SELECT 'delete', id, title, text, facets FROM records WHERE urn LIKE '%V1.1.2';
             DELETE FROM provenance WHERE record_id = (SELECT id FROM records WHERE urn LIKE '%V1.1.2');
             DELETE FROM records WHERE urn LIKE '%V1.1.2';",
        )
        .unwrap();
    let first_run = || -> (i64, i64, i64) {
        let sql = "SELECT read, stored, dead_lettered FROM runs WHERE id = 'asvs-1'";
        store.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
    };
    let before = first_run();
    etl(dir.path(), &["show", "v2e::owasp::asvs::V1.1.2", "--db", "x.db"]).fails_with(1);

    let run =
        json(&etl(dir.path(), &["retry", "asvs", "--db", "x.db", "--json"]).succeeds())["runs"][0].clone();
    let numbers = ["read", "stored", "deadLettered"].map(|name| run[name].as_i64().unwrap());
    assert_eq!((run["runId"].as_str(), numbers), (Some("asvs-2"), [2, 1, 1]));
    assert_eq!(first_run(), before, "the run that left the letter keeps its counters");
    let shown =
        json(&etl(dir.path(), &["show", "v2e::owasp::asvs::V1.1.2", "--db", "x.db", "--json"]).succeeds());
    assert_eq!((shown["text"].as_str(), shown["runId"].as_str()), (Some("Verify that."), Some("asvs-2")));
    assert!(shown["source"].as_str().unwrap().ends_with("asvs-5.0.0-en.csv"), "{shown}");
    let left = json(&etl(dir.path(), &["failures", "--db", "x.db", "--json"]).succeeds());
    assert_eq!(left["failures"].as_array().unwrap().len(), 1);
}

#[test]
fn a_second_process_on_the_same_store_is_refused_with_the_pid_of_the_first() {
    let dir = tempfile::tempdir().unwrap();
    mirror(dir.path());
    let writer = phalanx_etl::store::Writer::open(&dir.path().join("x.db")).unwrap();
    let refused = etl(dir.path(), &["run", "asvs", "--mirror", "mirror", "--db", "x.db"]).fails_with(1);
    assert!(
        refused.stderr.contains(&format!("being written by process {}", std::process::id())),
        "{refused:?}"
    );
    drop(writer);
    etl(dir.path(), &["run", "asvs", "--mirror", "mirror", "--db", "x.db"]).succeeds();
}

#[test]
fn without_a_terminal_progress_is_plain_lines() {
    let dir = tempfile::tempdir().unwrap();
    mirror(dir.path());
    let run = etl(dir.path(), &["run", "asvs", "--mirror", "mirror"]).succeeds();
    assert!(run.stderr.contains("asvs: 3 read, 2 stored, 0 unchanged, 1 dead letters: completed"), "{run:?}");
    assert!(!run.stderr.contains('\u{1b}'), "{run:?}");
}

#[test]
fn what_comes_out_can_be_searched_shown_walked_exported_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    mirror(dir.path());
    let run = etl(dir.path(), &["run", "--all", "--mirror", "mirror"]).fails_with(3);
    assert!(run.stdout.contains("2 weakness") && run.stdout.contains("1 ATT&CK mappings"), "{run:?}");
    let see = |arguments: &[&str]| json(&etl(dir.path(), &[arguments, &["--json"]].concat()).succeeds());
    let hits = see(&["search", "unlocked", "door", "--type", "cwe", "--severity", "high", "--since", "2024"]);
    assert_eq!(hits["hits"][0]["urn"], "v2e::mitre::cwe::CWE-10");
    assert_eq!(see(&["search", "unlocked", "--since", "2025"])["hits"].as_array().unwrap().len(), 0);
    etl(dir.path(), &["search", "door", "--type", "nope"]).fails_with(2);
    etl(dir.path(), &["search", "door", "--since", "yesterday"]).fails_with(2);
    let page = etl(dir.path(), &["show", "v2e::mitre::cwe::CWE-10"]).succeeds().stdout;
    for part in [
        "Unlocked Door",
        "leaves a door",
        "names",
        "is named by",
        "Walking In",
        "history",
        "provenance",
        "SHA-256",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let tree = etl(dir.path(), &["path", "CVE-2024-1000", "attack"]).succeeds().stdout;
    assert!(tree.contains("CVE-2024-1000") && tree.contains("└─ technique: T1001.001 Doors"), "{tree}");
    let none = etl(dir.path(), &["path", "CWE-11", "attack"]).fails_with(1);
    assert!(none.stdout.contains("ends at v2e::mitre::cwe::CWE-11: it leads to no capec"), "{none:?}");
    assert_eq!(see(&["path", "CVE-2024-1000", "attack"])["count"], 1);
    let lines = etl(dir.path(), &["export", "--type", "capec"]).succeeds().stdout;
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    let mut names: Vec<_> = first.as_object().unwrap().keys().cloned().collect();
    names.sort_unstable();
    let mut fields = [
        "urn",
        "type",
        "id",
        "title",
        "text",
        "published",
        "modified",
        "status",
        "severity",
        "links",
        "source",
    ];
    fields.sort_unstable();
    assert_eq!((names, lines.lines().count()), (fields.map(str::to_owned).to_vec(), 5));
    let table = etl(dir.path(), &["export", "--format", "csv", "--type", "cwe"]).succeeds().stdout;
    assert!(
        table.starts_with("urn,type,id,title,text,published,modified,status,severity,links,source\n"),
        "{table}"
    );
    let all = see(&["diff", "--since", "2000-01-01"])["changes"].as_array().unwrap().len();
    let text = fs::read_to_string(dir.path().join("mirror/cwe/W/10.json")).unwrap();
    fs::write(dir.path().join("mirror/cwe/W/10.json"), text.replace("Unlocked", "Open")).unwrap();
    etl(dir.path(), &["run", "cwe", "--mirror", "mirror"]).fails_with(3);
    let changes = see(&["diff", "--since", "cwe-2"])["changes"].clone();
    assert_eq!(changes.as_array().unwrap().len(), 1, "{changes}");
    assert_eq!(
        (&changes[0]["change"], &changes[0]["fields"]),
        (&"changed".into(), &serde_json::json!(["title"]))
    );
    assert_eq!(see(&["diff", "--since", "2000-01-01"])["changes"].as_array().unwrap().len(), all);
    etl(dir.path(), &["diff", "--since", "nope"]).fails_with(1);
}
