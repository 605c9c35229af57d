//! `phalanx fsm`, run as a person would.

use crate::util::phalanx;
use serde_json::{Value, json};

#[test]
fn json_has_the_states_and_transitions_by_name() {
    let run = phalanx(&["fsm", "calculator", "--format", "json"]).succeeds();
    assert_eq!(
        serde_json::from_str::<Value>(&run.stdout).unwrap(),
        json!({
            "machine": "calculator",
            "states": [
                {"name": "Idle", "code": 0, "terminal": false},
                {"name": "Scaling", "code": 1, "terminal": false},
                {"name": "Rebalancing", "code": 2, "terminal": false},
                {"name": "Emergency", "code": 3, "terminal": false},
            ],
            "transitions": [
                {"from": "Idle", "to": "Scaling"},
                {"from": "Idle", "to": "Emergency"},
                {"from": "Scaling", "to": "Rebalancing"},
                {"from": "Scaling", "to": "Emergency"},
                {"from": "Scaling", "to": "Idle"},
                {"from": "Rebalancing", "to": "Idle"},
                {"from": "Rebalancing", "to": "Emergency"},
                {"from": "Emergency", "to": "Idle"},
            ],
        })
    );
}

#[test]
fn all_four_machines_print_in_all_formats() {
    for (machine, states) in [("worker", 11), ("calculator", 4), ("macro", 4), ("provider", 7)] {
        let table = phalanx(&["fsm", machine]).succeeds().stdout;
        assert_eq!(table.lines().count(), states + 2, "{machine}");
        let diagram = phalanx(&["fsm", machine, "--format", "mermaid"]).succeeds().stdout;
        assert!(diagram.starts_with("stateDiagram-v2\n    [*] --> "), "{machine}");
        let json = phalanx(&["fsm", machine, "--format", "json"]).succeeds().stdout;
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["states"].as_array().unwrap().len(), states, "{machine}");
    }
}

#[test]
fn an_unknown_machine_is_wrong_use_and_names_the_known_ones() {
    let run = phalanx(&["fsm", "toaster"]).fails_with(2);
    for known in ["toaster", "worker", "calculator", "macro", "provider"] {
        assert!(run.stderr.contains(known), "{}", run.stderr);
    }
}

#[test]
fn help_lists_every_command() {
    let help = phalanx(&["--help"]).succeeds().stdout;
    for command in ["defender", "demo", "etl", "fsm", "mebo", "plan", "schema", "sim", "spc", "strategy"] {
        assert!(help.contains(command), "{help}");
    }
}

#[test]
fn a_reader_that_stops_early_is_no_error() {
    let run = std::process::Command::new("sh")
        .args(["-c", "\"$1\" fsm worker | head -1 >/dev/null; exit \"${PIPESTATUS:-0}\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_phalanx"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&run.stderr), "");
}

fn page(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_pages_show_the_tables_and_diagrams_that_the_binary_prints() {
    let print =
        |machine: &str, format: &str| phalanx(&["fsm", machine, "--format", format]).succeeds().stdout;
    let states = page("state-machines.md");
    for machine in ["worker", "calculator", "macro", "provider"] {
        let diagram = format!("```mermaid\n{}```\n", print(machine, "mermaid"));
        let section = format!("{}\n{diagram}", print(machine, "table"));
        assert!(states.contains(&section), "{machine}: run `cargo xtask fix`");
        let etl = page("etl.md");
        let mark = format!("<!-- diagram: {machine} -->\n");
        if let Some((_, below)) = etl.split_once(&mark) {
            assert!(below.starts_with(&diagram), "{machine}: run `cargo xtask fix`");
        }
    }
}
