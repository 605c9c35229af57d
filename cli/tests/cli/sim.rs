//! `phalanx sim`, run as a person would.

use crate::util;
use std::fs;

use crate::util::phalanx;
use serde_json::Value;

const SMALL: [&str; 6] = ["--workers", "5", "--partitions", "20", "--hours", "0.05"];

fn sim(arguments: &[&str]) -> util::Run {
    phalanx(&[&["sim"], arguments, &SMALL].concat())
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&sim(&[arguments, &["--json"]].concat()).succeeds().stdout).expect("JSON")
}

#[test]
fn the_json_has_exactly_the_promised_fields_and_adds_up() {
    let report = json(&["--seeds", "3..7"]);
    let mut fields: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "clusterHours",
            "committed",
            "deadLettered",
            "doubleCommitted",
            "duplicates",
            "expired",
            "faults",
            "invariantViolations",
            "lost",
            "lostByBroker",
            "orderViolations",
            "published",
            "seeds",
            "traceHash",
            "wallSeconds"
        ]
    );
    assert_eq!(report["seeds"], 4, "the last seed is excluded");
    for none in ["lost", "doubleCommitted", "orderViolations", "invariantViolations"] {
        assert_eq!(report[none], 0, "{none}");
    }
    let number = |field: &str| report[field].as_u64().unwrap();
    assert!(number("committed") > 0);
    let outcomes = ["committed", "deadLettered", "expired", "duplicates", "lostByBroker"].map(number);
    assert_eq!(number("published"), outcomes.iter().sum::<u64>(), "each message has one outcome");
    assert!(report["clusterHours"].as_f64().unwrap() >= 4.0 * 0.05);
    assert!(report["faults"].as_object().unwrap().values().all(|count| count.as_u64().unwrap() > 0));
}

#[test]
fn the_same_seeds_give_the_same_hash_and_others_another() {
    let hash = |seeds: &str| json(&["--seeds", seeds])["traceHash"].as_str().unwrap().to_owned();
    let first = hash("10..13");
    assert_eq!(first.len(), 16);
    assert_eq!(first, hash("10..13"));
    assert_ne!(first, hash("11..14"));
}

#[test]
fn the_hash_of_a_seed_is_the_same_in_every_run() {
    let report = json(&["--seed", "42", "--faults", "none"]);
    let again = json(&["--seeds", "42..43", "--faults", "none"]);
    assert_eq!(report["traceHash"], again["traceHash"]);
    assert_eq!(report["faults"], serde_json::json!({}), "none means none");
}

#[test]
fn only_the_chosen_faults_are_injected() {
    let report = json(&["--seeds", "1..5", "--faults", "sigkill,lateWrite"]);
    let kinds: Vec<&String> = report["faults"].as_object().unwrap().keys().collect();
    assert_eq!(kinds, ["lateWrite", "sigkill"]);
}

#[test]
fn the_shell_mode_is_reproducible_and_adds_up() {
    let report = || json(&["--mode", "shell", "--seeds", "1..3"]);
    let (first, second) = (report(), report());
    assert_eq!(first["traceHash"], second["traceHash"]);
    assert_eq!(first["invariantViolations"], 0);
    let number = |field: &str| first[field].as_u64().unwrap();
    let outcomes = ["committed", "deadLettered", "expired", "duplicates", "lostByBroker"].map(number);
    assert_eq!(number("published"), outcomes.iter().sum::<u64>(), "each message has one outcome");
}

#[test]
fn the_table_says_what_was_simulated_and_what_it_came_to() {
    let table = sim(&["--seed", "2"]).succeeds().stdout;
    for line in [
        "cluster-hours simulated",
        "messages published",
        "committed",
        "dead letters",
        "lost",
        "committed twice",
        "out of order",
        "map versions",
        "worst recovery",
        "cluster-hours a second",
        "faults",
    ] {
        assert!(table.lines().any(|shown| shown.starts_with(line)), "{line} is not in:\n{table}");
    }
}

#[test]
fn the_trace_of_one_seed_is_written_line_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.txt");
    sim(&["--seed", "2", "--trace", file.to_str().unwrap()]).succeeds();
    let trace = fs::read_to_string(file).unwrap();
    assert!(
        trace.contains("process 0 starts") && trace.contains("fault "),
        "{} lines",
        trace.lines().count()
    );
}

#[test]
fn a_broken_promise_shows_seed_faults_and_command_and_the_trace_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.txt");
    let run =
        sim(&["--seeds", "0..40", "--disable-rule", "TakeOverFirst", "--trace", file.to_str().unwrap()])
            .fails_with(1);
    for part in ["breaks a promise", "invariant ", "faults:", "to repeat it: phalanx sim --seed "] {
        assert!(run.stderr.contains(part), "{part:?} is not in:\n{}", run.stderr);
    }
    assert!(run.stdout.lines().any(|line| line.starts_with("broken promises") && !line.ends_with(" 0")));
    let trace = fs::read_to_string(file).unwrap();
    assert!(
        trace.lines().last().is_some_and(|line| line.starts_with("broken: ")),
        "the trace shows the breach"
    );

    // The command that it names fails by itself.
    let command = run.stderr.lines().find_map(|line| line.strip_prefix("to repeat it: phalanx ")).unwrap();
    let repeated = phalanx(&command.split_whitespace().collect::<Vec<_>>()).fails_with(1);
    assert!(repeated.stderr.contains("breaks a promise"));
}

#[test]
fn a_rule_of_the_environment_is_disabled_like_one_of_the_protocol() {
    let run = sim(&["--seed", "0", "--disable-rule", "MessageIds"]).fails_with(1);
    assert!(run.stderr.contains("was never stored"), "{}", run.stderr);
    assert!(run.stderr.contains("--disable-rule MessageIds"), "{}", run.stderr);
}

#[test]
fn wrong_use_is_refused_with_what_is_allowed() {
    let run = sim(&["--disable-rule", "Nonsense"]).fails_with(2);
    assert!(run.stderr.contains("TakeOverFirst") && run.stderr.contains("NoShortTtl"), "{}", run.stderr);
    let run = sim(&["--faults", "sigkil"]).fails_with(2);
    assert!(run.stderr.contains("\"sigkil\"") && run.stderr.contains("brokerOutage"), "{}", run.stderr);
    let run = sim(&["--seeds", "5..5"]).fails_with(2);
    assert!(run.stderr.contains("no seed from 5"), "{}", run.stderr);
    sim(&["--seeds", "5"]).fails_with(2);
    sim(&["--seed", "1", "--seeds", "1..2"]).fails_with(2);
    phalanx(&["sim", "--workers", "0"]).fails_with(2);
    let run = phalanx(&["sim", "--hours", "0"]).fails_with(1);
    assert!(run.stderr.contains("--hours 0"), "{}", run.stderr);
}
