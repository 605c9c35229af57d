//! `phalanx spc`, run as a person would.

use std::fs;

use crate::util::{Run, phalanx_in};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with one file, `data.csv`.
struct Folder(TempDir);

impl Folder {
    fn new(csv: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        fs::write(dir.path().join("data.csv"), csv).expect("a file");
        Self(dir)
    }

    /// A column `x` with these values.
    fn values(values: &[f64]) -> Self {
        let rows: String = values.iter().map(|value| format!("{value}\n")).collect();
        Self::new(&format!("x\n{rows}"))
    }

    /// `phalanx spc` with these words, on the file.
    fn spc(&self, words: &str) -> Run {
        let mut arguments = vec!["spc"];
        arguments.extend(words.split_whitespace());
        arguments.extend(["--csv", "data.csv"]);
        phalanx_in(self.0.path(), &arguments)
    }

    fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.spc(&format!("{words} --json")).succeeds().stdout).expect("JSON")
    }

    fn eval(&self, equation: &str, more: &[&str]) -> Run {
        let mut arguments = vec!["spc", "eval", equation, "--csv", "data.csv"];
        arguments.extend(more);
        phalanx_in(self.0.path(), &arguments)
    }
}

#[track_caller]
fn close(value: &Value, expected: f64, tolerance: f64) {
    let found = value.as_f64().unwrap_or_else(|| panic!("{value} is no number"));
    assert!((found - expected).abs() <= tolerance, "{found} is not {expected}");
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

const NIST: [f64; 10] = [49.6, 47.6, 49.9, 51.3, 47.8, 51.2, 52.6, 52.4, 53.6, 52.1];
const NIST_EWMA: [f64; 20] = [
    52.0, 47.0, 53.0, 49.3, 50.1, 47.0, 51.0, 50.1, 51.2, 50.5, 49.6, 47.6, 49.9, 51.3, 47.8, 51.2, 52.6,
    52.4, 53.6, 52.1,
];

#[test]
fn individuals_are_those_of_the_nist_handbook() {
    let folder = Folder::values(&NIST);
    let chart = folder.json("imr --column x");
    assert_eq!(
        keys(&chart),
        ["center", "chart", "companion", "estimator", "lcl", "points", "sigma", "signals", "ucl"]
    );
    assert_eq!((&chart["chart"], &chart["estimator"]), (&json!("imr"), &json!("moving-range")));
    close(&chart["center"], 50.81, 1e-9);
    close(&chart["lcl"], 45.8176, 5e-5);
    close(&chart["ucl"], 55.8024, 5e-5);
    assert_eq!(keys(&chart["points"][0]), ["index", "lcl", "statistic", "ucl", "value"]);
    assert_eq!(chart["points"][0]["index"], 1);
    assert_eq!(chart["signals"], json!([]));
    close(&chart["companion"]["center"], 1.8778, 5e-5);
    assert_eq!(chart["companion"]["points"][0]["index"], 2);
    let table = folder.json("imr --column x --constants table");
    close(&table["lcl"], 45.8159, 5e-5);
    close(&table["ucl"], 55.8041, 5e-5);
    close(&table["companion"]["ucl"], 1.8778 * 3.267, 5e-4);
}

#[test]
fn ewma_is_that_of_the_nist_handbook() {
    let folder = Folder::values(&NIST_EWMA);
    let words = "ewma --column x --lambda 0.3 --target 50 --sd 2.0539";
    let chart = folder.json(&format!("{words} --asymptotic"));
    close(&chart["lcl"], 47.4116, 5e-5);
    close(&chart["ucl"], 52.5884, 5e-5);
    close(&chart["points"][19]["statistic"], 51.99, 0.005);
    assert_eq!((&chart["signals"], &chart["estimator"]), (&json!([]), &json!("given")));
    let varying = folder.json(words);
    assert_eq!(varying.get("ucl"), None, "limits differ by point");
    close(&varying["points"][0]["ucl"], 50.0 + 3.0 * 2.0539 * 0.3, 1e-9);
    close(&varying["points"][19]["ucl"], 52.5884, 1e-4);
}

#[test]
fn cusum_has_two_sums_and_names_the_points_of_a_shift() {
    let mut values = vec![10.0; 5];
    values.extend([12.0; 5]);
    let chart = Folder::values(&values).json("cusum --column x --target 10 --sd 1 --k 0.5 --h 4");
    assert_eq!(chart["points"][7]["statistic"], json!({"high": 4.5, "low": 0.0}));
    assert_eq!(
        (&chart["signals"][0]["index"], &chart["signals"][0]["points"]),
        (&json!(8), &json!([6, 7, 8]))
    );
    assert_eq!(chart["ucl"], json!(4.0));
}

#[test]
fn subgroups_come_from_labels_and_values() {
    let csv = "lot,d\na,1\na,3\nb,2\nb,6\na,5\nb,4\n";
    let folder = Folder::new(csv);
    let chart = folder.json("xbar-r --group lot --value d --constants table");
    // Means 3 and 4, ranges 4 and 4, A2 = 1.023, D4 = 2.575.
    close(&chart["center"], 3.5, 1e-12);
    close(&chart["ucl"], 3.5 + 1.023 * 4.0, 1e-9);
    close(&chart["companion"]["center"], 4.0, 1e-9);
    close(&chart["companion"]["ucl"], 2.575 * 4.0, 1e-9);
    assert_eq!((&chart["companion"]["chart"], &chart["companion"]["lcl"]), (&json!("r"), &json!(0.0)));
    let chart = folder.json("xbar-s --group lot --value d");
    assert_eq!(
        (&chart["companion"]["chart"], &chart["estimator"]),
        (&json!("s"), &json!("standard-deviation"))
    );
}

#[test]
fn counts_have_limits_of_their_own_where_sizes_differ() {
    let folder = Folder::new("bad,n\n12,100\n8,80\n6,80\n9,100\n10,110\n12,110\n");
    let p = 57.0 / 580.0;
    let chart = folder.json("p --count bad --size n");
    close(&chart["center"], p, 1e-12);
    assert_eq!(chart.get("ucl"), None);
    close(&chart["points"][1]["ucl"], p + 3.0 * (p * (1.0 - p) / 80.0f64).sqrt(), 1e-12);
    close(&chart["points"][1]["statistic"], 0.1, 1e-12);
    close(&chart["points"][1]["value"], 8.0, 0.0);
    let chart = folder.json("u --count bad --size n");
    close(&chart["points"][0]["ucl"], p + 3.0 * (p / 100.0f64).sqrt(), 1e-12);
    let chart = folder.json("c --count bad");
    close(&chart["ucl"], 9.5 + 3.0 * 9.5f64.sqrt(), 1e-12);
    let chart = Folder::new("bad,n\n12,50\n8,50\n1,50\n").json("np --count bad --size n");
    close(&chart["center"], 7.0, 1e-12);
    close(&chart["ucl"], 7.0 + 3.0 * (7.0 * (1.0 - 0.14f64)).sqrt(), 1e-12);
    assert_eq!(chart["lcl"], json!(0.0));
}

#[test]
fn t2_gives_the_vector_of_means_and_both_forms_of_the_limit() {
    let rows: String = (0..20).map(|i| format!("{},{}\n", i % 5, (i * 7) % 11)).collect();
    let folder = Folder::new(&format!("a,b\n{rows}50,-50\n"));
    let chart = folder.json("t2 --columns a,b --baseline 1..20");
    assert_eq!(chart["center"].as_array().unwrap().len(), 2);
    let (first, last) = (&chart["points"][0]["ucl"], &chart["points"][20]["ucl"]);
    assert!(first.as_f64() < last.as_f64(), "beta for the baseline, F for what follows: {first} {last}");
    assert_eq!(chart["signals"][0]["index"], 21);
    let loose = folder.json("t2 --columns a,b --baseline 1..20 --alpha 0.05");
    assert!(loose["points"][0]["ucl"].as_f64() < first.as_f64());
}

#[test]
fn a_baseline_teaches_and_rules_judge() {
    let mut values = vec![10.0, 11.0, 9.0, 10.5, 9.5, 10.2, 9.8, 10.1, 9.9, 10.0];
    values.extend([10.6; 9]);
    values.push(30.0);
    let folder = Folder::values(&values);
    let chart = folder.json("imr --column x --baseline 1..10 --rules nelson");
    close(&chart["center"], 10.0, 1e-12);
    let found: Vec<&str> =
        chart["signals"].as_array().unwrap().iter().map(|signal| signal["rule"].as_str().unwrap()).collect();
    assert!(found.contains(&"nelson-2") && found.contains(&"nelson-1"), "{found:?}");
    let signal = &chart["signals"][0];
    assert_eq!(keys(signal), ["index", "message", "points", "rule"]);
    let plain = folder.json("imr --column x --baseline 1..10");
    assert_eq!(plain["signals"].as_array().unwrap().len(), 1);
    assert_eq!(plain["signals"][0]["index"], 20);
    let robust = folder.json("imr --column x --robust");
    assert_eq!(robust["estimator"], "median-mad");
    let one = folder.json("imr --column x --baseline 1..10 --rules 1");
    assert_eq!(one["signals"][0]["rule"], "nelson-1");
}

#[test]
fn capability_has_four_indices_with_their_intervals() {
    let folder = Folder::values(&NIST);
    let chart = folder.json("imr --column x --usl 60 --lsl 40");
    assert_eq!(keys(&chart["capability"]), ["cp", "cpk", "pp", "ppk"]);
    for index in ["cp", "cpk", "pp", "ppk"] {
        let index = &chart["capability"][index];
        assert!(
            index["lower"].as_f64() < index["value"].as_f64()
                && index["value"].as_f64() < index["upper"].as_f64()
        );
    }
    let one = folder.json("imr --column x --usl 60");
    assert_eq!(one["capability"]["cp"], Value::Null);
}

#[test]
fn without_json_there_is_a_table_a_plot_and_a_picture() {
    let mut values = NIST.to_vec();
    values.push(90.0);
    let folder = Folder::values(&values);
    let run = folder.spc("imr --column x --baseline 1..10 --usl 60 --svg chart.svg").succeeds();
    for part in ["Individuals", "Moving range", "sigma 1.66", "statistic", "X", "=====", "Cpk"] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    assert!(
        run.stdout.contains("limits: Point 11 at 90 is above the upper limit 55.8024."),
        "{}",
        run.stdout
    );
    let svg = fs::read_to_string(folder.0.path().join("chart.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    // Eleven points and ten moving ranges.
    assert_eq!(svg.matches("<circle").count(), 21);
    for words in ["cusum --column x", "ewma --column x", "t2 --columns x"] {
        assert!(folder.spc(words).succeeds().stdout.contains("points 1 to 11"), "{words}");
    }
}

#[test]
fn bad_files_and_columns_get_an_error_with_the_line() {
    let says = |folder: &Folder, words: &str, part: &str| {
        let run = folder.spc(words).fails_with(1);
        assert!(run.stderr.contains(part), "{}", run.stderr);
        assert_eq!(run.stdout, "");
    };
    let folder = Folder::new("x,y\n1,2\noops,3\n");
    says(&folder, "imr --column x", "data.csv, line 3: `oops` in column `x` is not a finite number");
    says(&folder, "imr --column z", "line 1: there is no column `z`; there are: x, y");
    says(&Folder::new("x,y\n1,2\n3\n"), "imr --column x", "line 3: 1 cells, where the header has 2");
    says(&Folder::new("x,y\n1,2\n,4\n"), "imr --column x", "line 3: the cell of column `x` is empty");
    says(&Folder::new("x\n"), "imr --column x", "no rows");
    says(
        &Folder::new("c,n\n1,10\n11,10\n"),
        "p --count c --size n",
        "line 3: 11 defectives are more than the 10",
    );
    says(&Folder::new("x\n5\n5\n5\n"), "imr --column x", "does not vary");
    says(&Folder::new("x\n1\n2\n"), "imr --column x --baseline 1..9", "baseline 1..9");
    says(&folder, "ewma --column y --lambda 2", "lambda must be above 0 and at most 1, not 2");
    let missing =
        phalanx_in(folder.0.path(), &["spc", "imr", "--csv", "none.csv", "--column", "x"]).fails_with(1);
    assert!(missing.stderr.contains("cannot read none.csv"), "{}", missing.stderr);
}

#[test]
fn wrong_use_is_explained() {
    let folder = Folder::values(&NIST);
    for (words, part) in [
        ("imr", "--column"),
        ("imr --column x --baseline 5", "1..25"),
        ("imr --column x --rules 9", "Nelson's numbers 1 to 8"),
        ("p --count x", "--size"),
        ("toast --column x", "xbar-r"),
    ] {
        let run = folder.spc(words).fails_with(2);
        assert!(run.stderr.contains(part) || words.starts_with("toast"), "{words}: {}", run.stderr);
    }
}

const TRACES: &str = "timestamp,metric,value\n\
    1000000,STEP,1\n1000000,TEMP,20\n2000000,TEMP,22\n3000000,STEP,3\n3000000,TEMP,30\n5000000,TEMP,NaN\n4000000,TEMP,32\n";

#[test]
fn equations_are_evaluated_on_traces() {
    let folder = Folder::new(TRACES);
    let run = folder.eval("mean(TEMP[..3s] where STEP == 3)", &["--json"]).succeeds();
    let expected = json!({"equation": "mean(TEMP[..3s] where STEP == 3)", "value": 31.0});
    assert_eq!(serde_json::from_str::<Value>(&run.stdout).unwrap(), expected);
    assert_eq!(folder.eval("max(TEMP[0s..1s]) - 2", &[]).succeeds().stdout, "20\n");
    let none = folder.eval("mean(TEMP)", &["--json"]).succeeds();
    let none: Value = serde_json::from_str(&none.stdout).unwrap();
    assert_eq!(
        (&none["value"], &none["reason"]),
        (&Value::Null, &json!("a value of TEMP is not a finite number"))
    );
    assert_eq!(folder.eval("mean(GAS)", &[]).succeeds().stdout, "no value: there is no trace of GAS\n");
    let wide = Folder::new("time,TEMP,STEP\n2026-01-01T00:00:00Z,20,1\n2026-01-01T00:00:01Z,22,\n");
    assert_eq!(wide.eval("mean(TEMP where STEP == 1)", &[]).succeeds().stdout, "21\n");
}

#[test]
fn wrong_equations_and_traces_are_refused_with_their_place() {
    let folder = Folder::new(TRACES);
    let run = folder.eval("men(TEMP)", &[]).fails_with(1);
    assert!(
        run.stderr.contains("line 1, column 1: unknown function `men`; did you mean `mean`?"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("\n  men(TEMP)\n  ^^^"), "{}", run.stderr);
    let folder = Folder::new("timestamp,metric,value\n1,A,1\n1.5,A,2\n");
    let run = folder.eval("mean(A)", &[]).fails_with(1);
    assert!(
        run.stderr.contains("data.csv, line 3: the time \"1.5\" is neither a whole number of microseconds"),
        "{}",
        run.stderr
    );
}
