//! `phalanx strategy`, run as a person would.

use std::fs;
use std::path::Path;

use crate::util::{phalanx, phalanx_in};

fn example() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/strategies/etch.toml").display().to_string()
}

#[test]
fn the_example_is_good_and_explained() {
    let run = phalanx(&["strategy", "check", &example()]).succeeds();
    assert!(run.stdout.contains("good, version "), "{}", run.stdout);
    assert!(run.stdout.contains("6 charts in 2 groups"), "{}", run.stdout);
    for words in [
        "rf-power",
        "mean(RF_POWER[10s..50s])",
        "480 … 520 around 500",
        "learned from 50 runs in subgroups of 5",
    ] {
        assert!(run.stdout.contains(words), "no {words:?} in {}", run.stdout);
    }
    assert_eq!(run.stderr, "");
}

#[test]
fn each_chamber_is_told_with_its_charts() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("chambers.csv"),
        "tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds\n\
         etch-07,B,100,1,1200\netch-01,A,100,1,1200\ncvd-01,A,50,1,600\netch-01,A,100,1,1200\n",
    )
    .unwrap();
    let run =
        phalanx_in(folder.path(), &["strategy", "check", &example(), "--against", "chambers.csv"]).succeeds();
    let line = |chamber: &str| {
        let lines: Vec<&str> =
            run.stdout.lines().filter(|line| line.trim_start().starts_with(chamber)).collect();
        assert_eq!(lines.len(), 1, "{chamber} stands once in {}", run.stdout);
        lines[0].split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("etch-07:B")[1..3], ["5", "rf-power"]);
    assert_eq!(line("etch-01:A")[1], "5");
    assert_eq!(line("cvd-01:A")[1..3], ["0", "none"]);
    assert!(run.stderr.contains("1 of 3 chambers get no chart"), "{}", run.stderr);
}

#[test]
fn a_wrong_file_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = fs::read_to_string(example()).unwrap().replace("slope(PRESSURE", "slop(PRESSURE");
    fs::write(folder.path().join("wrong.toml"), wrong).unwrap();
    let run = phalanx_in(folder.path(), &["strategy", "check", "wrong.toml"]).fails_with(1);
    assert_eq!(run.stdout, "");
    assert!(
        run.stderr.contains(
            "wrong.toml, line 49, column 13: in the equation: unknown function `slop`; did you mean `slope`?"
        ),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("\n  equation = \"slop(PRESSURE"), "{}", run.stderr);
}

#[test]
fn what_cannot_be_read_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str], words: &str| {
        let run = phalanx_in(folder.path(), arguments).fails_with(1);
        assert!(run.stderr.contains(words), "no {words:?} in {}", run.stderr);
    };
    refused(&["strategy", "check", "gone.toml"], "cannot read gone.toml");
    fs::write(folder.path().join("binary.toml"), [0xff, 0xfe, 0x00]).unwrap();
    refused(&["strategy", "check", "binary.toml"], "cannot read binary.toml");
    fs::write(folder.path().join("bad.csv"), "tool_id,chamber_id\netch-01,A\netch.02,A\n").unwrap();
    refused(
        &["strategy", "check", &example(), "--against", "bad.csv"],
        "bad.csv, line 3: the name \"etch.02\"",
    );
    fs::write(folder.path().join("other.csv"), "tool,chamber\n").unwrap();
    refused(&["strategy", "check", &example(), "--against", "other.csv"], "needs tool_id and chamber_id");
    phalanx_in(folder.path(), &["strategy", "check"]).fails_with(2);
}
