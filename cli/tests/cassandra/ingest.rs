//! `phalanx ingest` with its charts on a real Cassandra.

use std::fs;

use crate::util::{phalanx_command, run};
use phalanx_testkit::cassandra::Keyspace;

#[test]
fn a_bad_run_ends_as_a_row_and_an_alarm() {
    let keyspace = Keyspace::create().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let strategy = dir.path().join("strategy.toml");
    fs::write(
        &strategy,
        "[[group]]\ntools = ['*']\n[[group.chart]]\nname = 'power'\nequation = 'mean(P)'\n\
         limits = { lcl = 1, ucl = 2 }\nrules = [{ rule = 'limits', severity = 'critical' }]\n",
    )
    .unwrap();
    let file = dir.path().join("run.csv");
    fs::write(&file, "time,P\n0,7\n1000000,7\n").unwrap();
    let phalanx = |arguments: &[&str]| {
        let mut command = phalanx_command();
        command.args(arguments).current_dir(dir.path()).env("DATA_DIR", dir.path());
        command.env("CASSANDRA_HOSTS", keyspace.hosts()).env("CASSANDRA_KEYSPACE", keyspace.name());
        run(&mut command)
    };
    let ingest = ["ingest", "run.csv", "--tool", "t", "--chamber", "c", "--context", "run-1", "--json"];
    let early = phalanx(&ingest).fails_with(1);
    assert!(early.stderr.contains("phalanx schema apply"), "{early:#?}");
    phalanx(&["schema", "apply"]).succeeds();
    let report: serde_json::Value = serde_json::from_str(&phalanx(&ingest).succeeds().stdout).unwrap();
    assert_eq!(report["points"][0]["value"], 7.0, "{report}");
    assert_eq!(report["alarms"][0]["severity"], "critical");
    // Read back by another process, from Cassandra alone: the folder has no charts.
    assert!(!dir.path().join("charts.db").exists());
    let again: serde_json::Value = serde_json::from_str(&phalanx(&ingest).succeeds().stdout).unwrap();
    assert_eq!(again["points"], report["points"]);
}
