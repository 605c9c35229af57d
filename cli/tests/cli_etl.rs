//! `phalanx etl`, as people use it.

mod util;

use std::fs;
use std::path::Path;

use serde_json::Value;
use util::{Run, phalanx_in};

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

fn mirror(dir: &Path) {
    fs::create_dir_all(dir.join("mirror/asvs")).expect("it works");
    fs::create_dir_all(dir.join("mirror/nvd")).expect("it works");
    fs::write(dir.join("mirror/asvs/asvs-5.0.0-en.csv"), ASVS).expect("it works");
    let feed = r#"{"resultsPerPage": 2, "startIndex": 0, "totalResults": 2, "format": "NVD_CVE", "version": "2.0",
        "vulnerabilities": [{"cve": {"id": "CVE-2024-1000"}}]}"#;
    fs::write(dir.join("mirror/nvd/nvdcve-2.0-2024.json"), feed).expect("it works");
}

#[test]
fn a_run_says_what_it_did_by_numbers_and_by_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    mirror(dir.path());
    let run = etl(dir.path(), &["run", "--all", "--mirror", "mirror", "--json"]).fails_with(3);
    let runs = json(&run)["runs"].clone();
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
    assert_eq!(see(&["retry"])["left"], 1);
    etl(dir.path(), &["status", "--db", "x.db"]).succeeds();
}

#[test]
fn wrong_use_is_2_a_failed_provider_is_4_and_a_missing_database_is_1() {
    let dir = tempfile::tempdir().unwrap();
    mirror(dir.path());
    assert!(etl(dir.path(), &["run", "nope"]).fails_with(2).stderr.contains("there are: asvs, cve"));
    etl(dir.path(), &["run"]).fails_with(2);
    etl(dir.path(), &["run", "asvs", "--source", "asvs"]).fails_with(2);
    etl(dir.path(), &["run", "asvs", "--source", "nope=x"]).fails_with(2);
    let unknown =
        etl(dir.path(), &["run", "cve", "--source", "cve=mirror/asvs/asvs-5.0.0-en.csv"]).fails_with(4);
    assert!(unknown.stdout.contains("not an NVD feed"), "{unknown:?}");
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
