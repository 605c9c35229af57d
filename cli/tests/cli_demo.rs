//! The demo, as a stranger runs it.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

mod util;

use util::phalanx;

#[test]
fn the_demo_loses_nothing_does_nothing_twice_and_finds_the_faults() {
    let run = phalanx(&["demo", "--for", "45s", "--seed", "3", "--json"]).succeeds();
    let summary: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let number = |path: &str| summary.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or(-1.0);
    assert!(run.stderr.starts_with("http://127.0.0.1:"), "{}", run.stderr);
    assert!(number("/published") > 1_000.0, "{summary}");
    assert_eq!(number("/published"), number("/committed"), "{summary}");
    assert_eq!(
        (number("/lost"), number("/doubleCommitted"), number("/deadLettered")),
        (0.0, 0.0, 0.0),
        "{summary}"
    );
    let (injected, found) =
        (number("/detection/shiftsAtLeast2Sigma/injected"), number("/detection/shiftsAtLeast2Sigma/found"));
    assert!(injected > 0.0 && found >= 0.9 * injected, "{summary}");
    assert!(number("/detection/falseAlarms/found") <= number("/detection/falseAlarms/bound"), "{summary}");
    // The crash and the growth make one map each; the rolling update makes none.
    assert_eq!(number("/mapVersions"), 2.0, "{summary}");
    assert_eq!(number("/seed"), 3.0);
}

#[test]
fn a_time_that_is_none_is_refused_with_what_is_allowed() {
    for wrong in ["5s", "soon", "3h", ""] {
        let run = phalanx(&["demo", "--for", wrong]).fails_with(2);
        assert!(run.stderr.contains("30s to 60m") || run.stderr.contains("like 60s or 2m"), "{}", run.stderr);
    }
}
