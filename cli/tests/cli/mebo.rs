//! `phalanx mebo`, run as a person would.

use std::path::{Path, PathBuf};

use crate::util::{phalanx, phalanx_in};
use serde_json::{Value, json};

/// Small blobs that live with the codec.
fn fixture(name: &str) -> String {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/mebo/tests/fixtures");
    folder.join(format!("{name}.mebo")).to_string_lossy().into_owned()
}

fn json_of(arguments: &[&str]) -> Value {
    serde_json::from_str(&phalanx(arguments).succeeds().stdout).expect("one JSON object")
}

const CSV: &str = "\
timestamp,metric,value
1735689600000000,cpu.usage,10.0
1735689601000000,cpu.usage,10.0
1735689600000000,mem.free,NaN
1735689602000000,cpu.usage,10.5
1735689603000500,cpu.usage,12.0
1735689600000001,mem.free,-0.0
";

/// A folder with `in.csv`.
fn folder(csv: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("in.csv"), csv).expect("the folder is writable");
    folder
}

#[test]
fn the_worked_example_is_encoded_to_its_74_bytes() {
    let cpu: String =
        CSV.lines().filter(|line| !line.contains("mem.free")).map(|line| format!("{line}\n")).collect();
    let folder = folder(&cpu);
    let run = phalanx_in(folder.path(), &["mebo", "encode", "in.csv", "-o", "out.mebo"]).succeeds();
    assert_eq!(run.stdout, "");
    assert_eq!(run.stderr, "out.mebo: 1 metrics, 4 points, 74 bytes (18.50 a point)\n");
    let blob = std::fs::read(folder.path().join("out.mebo")).expect("the blob was written");
    assert_eq!(blob[..4], [0x10, 0xEA, 0x32, 0x11]);
    assert_eq!(blob[62..], [0x40, 0x24, 0, 0, 0, 0, 0, 0, 0x6F, 0x03, 0xB0, 0x3D]);
}

#[test]
fn what_is_encoded_decodes_to_the_same_points_in_every_way() {
    let folder = folder(CSV);
    for timestamps in ["raw", "delta", "packed"] {
        for values in ["raw", "gorilla", "chimp", "alp"] {
            for (layout, compress) in [("v1", "none"), ("v1", "lz4"), ("v2", "zstd"), ("v2", "s2")] {
                let encode = ["mebo", "encode", "in.csv", "-o", "out.mebo", "--timestamps", timestamps];
                let options = ["--values", values, "--layout", layout, "--compress", compress];
                phalanx_in(folder.path(), &[&encode[..], &options].concat()).succeeds();
                let decode = ["mebo", "decode", "out.mebo", "--metric", "mem.free", "--bits", "--json"];
                let run = phalanx_in(folder.path(), &decode).succeeds();
                assert_eq!(
                    serde_json::from_str::<Value>(&run.stdout).expect("one JSON object"),
                    json!({"metrics": [{
                        "id": "0x0feeb3cc4102b133",
                        "name": "mem.free",
                        "timestamps": [1_735_689_600_000_000i64, 1_735_689_600_000_001i64],
                        "values": ["7ff8000000000000", "8000000000000000"],
                    }]}),
                    "{timestamps} {values} {layout} {compress}"
                );
            }
        }
    }
}

#[test]
fn decoded_csv_encodes_to_the_same_points() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["v1_delta_gorilla", "v1_names"] {
        let decoded = phalanx(&["mebo", "decode", &fixture(name), "--csv"]).succeeds().stdout;
        // NaN payloads do not survive as text: that metric is left out on both sides.
        let kept: String = decoded
            .lines()
            .filter(|line| !line.contains("odd.values") && !line.contains(",NaN"))
            .map(|line| format!("{line}\n"))
            .collect();
        std::fs::write(folder.path().join("in.csv"), &kept).expect("the folder is writable");
        phalanx_in(folder.path(), &["mebo", "encode", "in.csv", "-o", "out.mebo"]).succeeds();
        let again = phalanx_in(folder.path(), &["mebo", "decode", "out.mebo", "--csv"]).succeeds().stdout;
        // Names are stored only where two have one id, so an id may stand where a name stood; the rest is the same.
        let numbers = |text: &str| -> Vec<(String, String)> {
            let rows = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
            rows.map(|row| (row[0].to_owned(), row[2].to_owned())).collect()
        };
        assert_eq!(numbers(&again), numbers(&kept), "{name}");
    }
}

#[test]
fn tags_survive_decoding_and_encoding() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let csv = phalanx(&["mebo", "decode", &fixture("v1_tagged"), "--csv"]).succeeds().stdout;
    assert!(csv.starts_with("timestamp,metric,value,tag\n"), "{csv}");
    std::fs::write(folder.path().join("in.csv"), &csv).expect("the folder is writable");
    phalanx_in(folder.path(), &["mebo", "encode", "in.csv", "-o", "out.mebo"]).succeeds();
    let again = phalanx_in(folder.path(), &["mebo", "decode", "out.mebo", "--csv"]).succeeds().stdout;
    assert_eq!(again, csv);
}

#[test]
fn numbers_that_json_does_not_have_are_texts() {
    let decoded = json_of(&["mebo", "decode", &fixture("v1_raw_raw"), "--metric", "odd.values", "--json"]);
    assert_eq!(
        decoded["metrics"][0]["values"],
        json!(["NaN", "NaN", -0.0, 0.0, "Infinity", "-Infinity", 5e-324, 1.797_693_134_862_315_7e308, 1.5])
    );
    let bits =
        json_of(&["mebo", "decode", &fixture("v1_raw_raw"), "--metric", "odd.values", "--json", "--bits"]);
    assert_eq!(bits["metrics"][0]["values"][1], "7ff4000000000001");
    assert_eq!(bits["metrics"][0]["values"][2], "8000000000000000");
}

#[test]
fn metrics_come_in_the_blobs_order_with_tags_only_where_there_are_any() {
    let decoded = json_of(&["mebo", "decode", &fixture("v1_names"), "--json"]);
    let names: Vec<&Value> =
        decoded["metrics"].as_array().expect("a list").iter().map(|m| &m["name"]).collect();
    assert_eq!(names, ["chamber.pressure", "sensor.a.aaaaaa1", "odd.values", "qFKKgfZuCLTIIzgI", "single"]);
    assert!(decoded["metrics"][0].get("tags").is_none());
    let tagged = json_of(&["mebo", "decode", &fixture("v1_tagged"), "--json"]);
    assert_eq!(tagged["metrics"][4]["tags"], json!([""]));
    assert_eq!(tagged["metrics"][0]["tags"][1], "µ0.1");
    assert_eq!(tagged["metrics"][0]["name"], Value::Null);
}

#[test]
fn a_metric_is_chosen_by_name_by_hex_id_and_by_decimal_id() {
    let blob = fixture("v2_delta_gorilla");
    let by_name = json_of(&["mebo", "decode", &blob, "--metric", "single", "--json"]);
    let id = by_name["metrics"][0]["id"].as_str().expect("an id").to_owned();
    let decimal = u64::from_str_radix(&id[2..], 16).expect("hex digits").to_string();
    for wanted in [&id, &decimal] {
        let by_id = json_of(&["mebo", "decode", &blob, "--metric", wanted, "--json"]);
        assert_eq!(by_id["metrics"][0]["values"], json!([-273.15]));
    }
    let run = phalanx(&["mebo", "decode", &blob, "--metric", "toaster", "--json"]).fails_with(1);
    assert!(run.stderr.contains("has no metric \"toaster\""), "{}", run.stderr);
}

#[test]
fn text_blobs_put_texts_into_values() {
    let decoded =
        json_of(&["mebo", "decode", &fixture("text_delta_tags_names"), "--metric", "state.a", "--json"]);
    let metric = &decoded["metrics"][0];
    assert_eq!(metric["values"], json!(["IDLE", "", "PROCESSING µ"]));
    assert_eq!(metric["tags"], json!(["a", "", "t2"]));
    assert_eq!(metric["timestamps"][2], 1_735_689_600_000_050i64);
    let csv = phalanx(&["mebo", "decode", &fixture("text_delta"), "--csv"]).succeeds().stdout;
    assert!(csv.contains("1735689600000000,0x000000000000000b,IDLE\n"), "{csv}");
}

#[test]
fn inspect_shows_the_same_as_a_table_and_as_json() {
    let blob = fixture("v2_shared_delta_chimp");
    let summary = json_of(&["mebo", "inspect", &blob, "--json"]);
    let size = std::fs::metadata(&blob).expect("the fixture is there").len();
    assert_eq!(summary["bytes"], size);
    assert_eq!((&summary["family"], &summary["layout"]), (&json!("numeric"), &json!("V2")));
    assert_eq!(summary["timestamps"]["encoding"], "delta");
    assert_eq!(
        summary["values"],
        json!({"encoding": "chimp", "compression": "none", "bytes": summary["values"]["bytes"]})
    );
    assert_eq!((&summary["metric_count"], &summary["points"]), (&json!(5), &json!(99)));
    let per_point = summary["bytes_per_point"].as_f64().expect("a number");
    assert!((per_point - size as f64 / 99.0).abs() < 0.01, "{per_point}");
    let metrics = summary["metrics"].as_array().expect("a list");
    assert_eq!(metrics.iter().filter(|metric| metric.get("timestamps_of").is_some()).count(), 1);
    let columns = |column: &str| metrics.iter().map(|m| m[column].as_u64().expect("a number")).sum::<u64>();
    assert_eq!(json!(columns("timestamp_bytes")), summary["timestamps"]["bytes"]);
    assert_eq!(json!(columns("value_bytes")), summary["values"]["bytes"]);

    let table = phalanx(&["mebo", "inspect", &blob]).succeeds().stdout;
    for shown in
        ["chimp", "delta", "V2", "bytes per point", "those of 0x", metrics[0]["id"].as_str().expect("an id")]
    {
        assert!(table.contains(shown), "{shown} is missing in\n{table}");
    }
    let text = json_of(&["mebo", "inspect", &fixture("text_raw_tags_be"), "--json"]);
    assert_eq!(
        (&text["family"], &text["byte_order"], &text["points"]),
        (&json!("text"), &json!("big"), &json!(5))
    );
}

#[test]
fn a_broken_blob_is_told_with_its_offset_and_nothing_is_printed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let whole = std::fs::read(fixture("v1_delta_gorilla")).expect("the fixture is there");
    std::fs::write(folder.path().join("cut.mebo"), &whole[..40]).expect("the folder is writable");
    for command in [&["mebo", "inspect", "cut.mebo"][..], &["mebo", "decode", "cut.mebo", "--json"]] {
        let run = phalanx_in(folder.path(), command).fails_with(1);
        assert_eq!(run.stdout, "");
        assert_eq!(
            run.stderr,
            "phalanx: cut.mebo: truncated at byte 32: the index needs 80 bytes here, 8 are left\n"
        );
    }
    // Broken in the last metric: the good ones before it are not printed either.
    let mut broken = std::fs::read(fixture("v1_delta_alp")).expect("the fixture is there");
    let last = broken.len() - 9;
    broken[last] = 7;
    std::fs::write(folder.path().join("broken.mebo"), &broken).expect("the folder is writable");
    let run = phalanx_in(folder.path(), &["mebo", "decode", "broken.mebo", "--csv"]).fails_with(1);
    assert_eq!(
        (run.stdout.as_str(), run.stderr.contains("ALP scheme 7 is not known")),
        ("", true),
        "{}",
        run.stderr
    );
}

#[test]
fn a_broken_csv_is_told_with_its_line_and_nothing_is_written() {
    for (csv, reason) in [
        ("time,metric,value\n", "expected timestamp,metric,value"),
        ("timestamp,metric,value\n", "at least one metric"),
        ("timestamp,metric,value\n1,a,1.0\n1.5,a,2.0\n", "line 3: the timestamp \"1.5\""),
        ("timestamp,metric,value\n1,a,one\n", "line 2: the value \"one\""),
        ("timestamp,metric,value\n1,a\n", "found record with 2 fields"),
        ("timestamp,metric,value\n1,,1.0\n", "empty name"),
    ] {
        let folder = folder(csv);
        let run = phalanx_in(folder.path(), &["mebo", "encode", "in.csv", "-o", "out.mebo"]).fails_with(1);
        assert!(run.stderr.contains(reason), "{reason:?} is missing in {:?}", run.stderr);
        assert!(!folder.path().join("out.mebo").exists());
    }
    let many: String = (0..7282).map(|i| format!("{i},a,1.0\n")).collect();
    let folder = folder(&format!("timestamp,metric,value\n{many}"));
    let run = phalanx_in(folder.path(), &["mebo", "encode", "in.csv", "-o", "out.mebo"]).fails_with(1);
    assert!(run.stderr.contains("7282 points, this layout takes 7281; use layout V2"), "{}", run.stderr);
    phalanx_in(folder.path(), &["mebo", "encode", "in.csv", "-o", "out.mebo", "--layout", "v2"]).succeeds();
}

/// Two metrics of two points, raw values; the second as writers before 1.4.3 left it: 2·t0, then the distance minus t0.
#[test]
fn the_legacy_repair_has_to_be_asked_for() {
    let mut blob = vec![0x10, 0xEA, 0x12, 0x11];
    blob.extend(1000u64.to_le_bytes());
    for field in [2u32, 32, 64, 72, 104] {
        blob.extend(field.to_le_bytes());
    }
    for (id, deltas) in [(1u64, [0, 0]), (2, [3, 16])] {
        blob.extend(id.to_le_bytes());
        for field in [2u16, deltas[0], deltas[1], 0] {
            blob.extend(field.to_le_bytes());
        }
    }
    // 1000, then +10; 2·1000, then zigzag(10 − 1000) = 1979.
    blob.extend([0xE8, 0x07, 20]);
    blob.extend([0xD0, 0x0F, 0xBB, 0x0F, 0]);
    blob.extend([0; 32]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("old.mebo"), &blob).expect("the folder is writable");
    let decode = |options: &[&str]| {
        let run =
            phalanx_in(folder.path(), &[&["mebo", "decode", "old.mebo", "--json"][..], options].concat());
        let decoded: Value = serde_json::from_str(&run.succeeds().stdout).expect("one JSON object");
        decoded["metrics"][1]["timestamps"].clone()
    };
    assert_eq!(decode(&[]), json!([2000, 1010]));
    assert_eq!(decode(&["--repair-legacy"]), json!([1000, 1010]));
}

#[test]
fn wrong_use_is_exit_code_2() {
    phalanx(&["mebo", "decode", &fixture("v1_raw_raw")]).fails_with(2);
    phalanx(&["mebo", "decode", &fixture("v1_raw_raw"), "--json", "--csv"]).fails_with(2);
    phalanx(&["mebo", "encode", "in.csv"]).fails_with(2);
    phalanx(&["mebo", "encode", "in.csv", "-o", "out", "--values", "zip"]).fails_with(2);
    phalanx(&["mebo", "inspect", "no-such-file"]).fails_with(1);
}
