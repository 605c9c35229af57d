//! `phalanx plan`, run as a person would.

use std::collections::BTreeMap;
use std::fs;

use crate::util::{phalanx, phalanx_in};
use serde_json::Value;

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&phalanx(arguments).succeeds().stdout).expect("JSON")
}

fn owners(value: &Value) -> BTreeMap<String, String> {
    let pairs = value.as_object().expect("an object").iter();
    pairs.map(|(name, owner)| (name.clone(), owner.as_str().expect("a worker").to_owned())).collect()
}

#[test]
fn a_scale_up_says_what_moves_and_the_owners_agree_with_the_moves() {
    let plan = json(&[
        "plan",
        "--synthetic",
        "5000",
        "--seed",
        "1",
        "--from",
        "30",
        "--to",
        "45",
        "--threshold",
        "0.05",
        "--json",
        "--full",
    ]);
    assert_eq!(
        (&plan["partitions"], &plan["workersBefore"], &plan["workersAfter"]),
        (&5000.into(), &30.into(), &45.into())
    );
    assert!(plan["ratioToLowerBound"].as_f64().unwrap() <= 1.05, "{plan}");
    assert!(plan["maxOverMean"].as_f64().unwrap() <= 1.05 && plan["minOverMean"].as_f64().unwrap() >= 0.95);

    let (mut before, after) = (owners(&plan["before"]), owners(&plan["after"]));
    let moves = plan["moves"].as_array().unwrap();
    let mut weight = 0;
    for step in moves {
        let owner = before.get_mut(step["partition"].as_str().unwrap()).unwrap();
        assert_eq!(owner.as_str(), step["from"].as_str().unwrap());
        step["to"].as_str().unwrap().clone_into(owner);
        weight += step["weight"].as_u64().unwrap();
    }
    assert_eq!(before, after);
    assert_eq!(plan["movedCount"], moves.len());
    assert_eq!(plan["movedWeight"], weight);
}

#[test]
fn a_crash_moves_only_what_the_crashed_had() {
    let plan = json(&[
        "plan",
        "--synthetic",
        "300",
        "--from",
        "10",
        "--crash",
        "defender-3",
        "--crash",
        "defender-7",
        "--json",
        "--full",
    ]);
    let (before, after) = (owners(&plan["before"]), owners(&plan["after"]));
    for (name, was) in &before {
        let crashed = was == "defender-3" || was == "defender-7";
        assert_eq!(was != &after[name], crashed, "{name}");
    }
    assert_eq!(plan["workersAfter"], 8);
}

#[test]
fn weights_come_from_a_column_or_from_their_factors() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("w.csv"), "tool_id,chamber_id,weight\netch,a,10\netch,b,20\n").unwrap();
    let factors =
        "chamber_id,tool_id,svid_count,collection_freq_hz,context_duration_seconds\na,etch,50,1,600\n";
    fs::write(dir.path().join("f.csv"), factors).unwrap();
    for (file, total) in [("w.csv", 30), ("f.csv", 30_000)] {
        let run =
            phalanx_in(dir.path(), &["plan", "--partitions", file, "--from", "1", "--to", "2", "--json"])
                .succeeds();
        assert_eq!(serde_json::from_str::<Value>(&run.stdout).unwrap()["totalWeight"], total, "{file}");
    }
}

#[test]
fn a_table_is_for_people() {
    let run = phalanx(&["plan", "--synthetic", "50", "--from", "2", "--to", "3"]).succeeds();
    for word in ["defender-2", "moves ", "the least possible is", "calculated in"] {
        assert!(run.stdout.contains(word), "{}", run.stdout);
    }
}

#[test]
fn bad_files_are_refused_with_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let cases = [
        ("tool_id,chamber_id,weight\netch,a,10\netch,b,heavy\n", "line 3: weight is \"heavy\""),
        ("tool_id,chamber_id,weight\netch,a.b,10\n", "line 2"),
        ("tool_id,chamber_id,weight\netch,a,10\netch,a,10\n", "line 3: etch:a stands in line 2 already"),
        ("tool_id,weight\netch,10\n", "needs tool_id and chamber_id"),
        ("tool_id,chamber_id,svid_count\netch,a,10\n", "needs weight, or svid_count"),
    ];
    for (content, reason) in cases {
        fs::write(dir.path().join("bad.csv"), content).unwrap();
        let run = phalanx_in(dir.path(), &["plan", "--partitions", "bad.csv", "--from", "1", "--to", "2"])
            .fails_with(1);
        assert!(run.stderr.contains(reason), "{}", run.stderr);
    }
    let run = phalanx(&["plan", "--partitions", "nowhere.csv", "--from", "1", "--to", "2"]).fails_with(1);
    assert!(run.stderr.contains("could not open nowhere.csv"), "{}", run.stderr);
}

#[test]
fn impossible_changes_are_refused() {
    let base = ["plan", "--synthetic", "5", "--from"];
    for (rest, reason) in [
        (&["0", "--to", "3"][..], "--from 0"),
        (&["3", "--to", "0"], "--to 0"),
        (&["3", "--crash", "defender-3"], "the last worker is defender-2"),
        (&["3", "--crash", "three"], "workers are called"),
        (&["1", "--crash", "defender-0"], "nobody would be left"),
        (&["3", "--to", "4", "--threshold", "20"], "a part of the mean"),
    ] {
        let run = phalanx(&[&base[..], rest].concat()).fails_with(1);
        assert!(run.stderr.contains(reason), "{}", run.stderr);
    }
    phalanx(&["plan", "--from", "3", "--to", "4"]).fails_with(2);
    phalanx(&["plan", "--synthetic", "5", "--from", "3"]).fails_with(2);
}
