//! `phalanx ingest` and `phalanx chambers import`, on a data folder of their own.

use std::fs;
use std::path::Path;

use crate::util::{Run, phalanx_command, run};
use rusqlite::Connection;
use tempfile::TempDir;

const STRATEGY: &str = r#"
[[group]]
tools = ["etch-*"]

[[group.chart]]
name = "power"
equation = "mean(RF_POWER)"
limits = { lcl = 480, ucl = 520 }
rules = [{ rule = "limits", severity = "critical" }]

[[group.chart]]
name = "gas"
equation = "mean(GAS)"
limits = { lcl = 0, ucl = 1 }
rules = []
"#;

/// A folder with a strategy, and files beside it.
struct Fab {
    dir: TempDir,
}

impl Fab {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("data")).unwrap();
        fs::write(dir.path().join("data/strategy.toml"), STRATEGY).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    /// A run whose power is always the same.
    fn traces(&self, name: &str, power: f64) -> String {
        self.file(name, format!("time,RF_POWER\n0,{power}\n1000000,{power}\n2000000,{power}\n"))
    }

    fn phalanx(&self, arguments: &[&str]) -> Run {
        let mut command = phalanx_command();
        command.args(arguments).env("DATA_DIR", self.path("data"));
        command.env_remove("CASSANDRA_HOSTS").env_remove("NATS_SERVERS").env_remove("STRATEGY_FILE");
        run(&mut command)
    }

    fn ingest(&self, file: &str, context: &str, more: &[&str]) -> Run {
        let arguments = ["ingest", file, "--tool", "etch-01", "--chamber", "A", "--context", context];
        self.phalanx(&[&arguments, more].concat())
    }

    fn charts(&self) -> Connection {
        Connection::open(Path::new(&self.path("data")).join("charts.db")).unwrap()
    }

    fn count(&self, table: &str) -> i64 {
        self.charts().query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }
}

#[test]
fn a_good_run_is_a_row_and_a_bad_one_an_alarm_that_a_good_one_clears() {
    let fab = Fab::new();
    let good = fab.ingest(&fab.traces("good.csv", 500.0), "run-1", &["--timestamp", "2026-01-01T10:00:00Z"]);
    let good = good.succeeds();
    assert!(good.stdout.contains("etch-01:A run-1: processed"), "{good:?}");
    assert!(good.stdout.contains("no value"), "the sensor that is not there: {good:?}");
    let row = |context: &str| -> (f64, f64) {
        let sql = "SELECT value, ucl FROM u_charts WHERE tool_id = 'etch-01' AND chamber_id = 'A' AND indicator = 'power'
            AND context_id = ?";
        fab.charts().query_row(sql, [context], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    assert_eq!(row("run-1"), (500.0, 520.0));
    assert_eq!(fab.count("alarms"), 0);

    let bad = fab.ingest(&fab.traces("bad.csv", 600.0), "run-2", &[]).succeeds();
    assert_eq!(row("run-2"), (600.0, 520.0));
    assert!(bad.stdout.contains("raised: critical alarm "), "{bad:?}");
    assert!(bad.stdout.contains("600 in run run-2 is above the upper limit 520"), "{bad:?}");
    let sql = "SELECT severity, message FROM alarms";
    let (severity, message): (String, String) =
        fab.charts().query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert_eq!(severity.to_lowercase(), "critical");
    assert!(message.starts_with("etch-01:A, chart power: 600 in run run-2"), "{message}");

    let again = fab.ingest(&fab.traces("good.csv", 500.0), "run-3", &["--json"]).succeeds();
    let report: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(report["outcome"], "processed");
    assert_eq!(report["points"][1]["chart"], "power");
    assert_eq!(report["points"][1]["value"], 500.0);
    assert_eq!(report["alarms"][0]["state"], "cleared");
    assert_eq!(report["alarms"][0]["clearedByContextId"], "run-3");

    let twice = fab.ingest(&fab.traces("good.csv", 500.0), "run-3", &["--json"]).succeeds();
    let report: serde_json::Value = serde_json::from_str(&twice.stdout).unwrap();
    assert_eq!(report["points"][1]["value"], 500.0, "what is there already: {report}");
    assert_eq!(fab.count("u_charts"), 6);
}

#[test]
fn json_and_mebo_are_taken_as_csv_is() {
    let fab = Fab::new();
    let csv = fab.file("points.csv", "timestamp,metric,value\n0,RF_POWER,500\n1000000,RF_POWER,500\n");
    let mebo = fab.path("run.mebo");
    fab.phalanx(&["mebo", "encode", &csv, "-o", &mebo]).succeeds();
    let json = fab.file("run.json", r#"{"time":[0,1000000],"traces":{"RF_POWER":[501,501]}}"#);
    for (file, context, value) in [(&mebo, "run-1", 500.0), (&json, "run-2", 501.0)] {
        let run = fab.ingest(file, context, &["--json"]).succeeds();
        let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!(report["points"][1]["value"], value, "{report}");
    }
}

#[test]
fn a_chamber_without_charts_is_processed_and_that_is_said() {
    let fab = Fab::new();
    let file = fab.traces("run.csv", 500.0);
    let arguments = ["ingest", &file, "--tool", "cvd-01", "--chamber", "A", "--context", "run-1"];
    let run = fab.phalanx(&arguments).succeeds();
    assert!(run.stdout.contains("the strategy has no chart for this chamber"), "{run:?}");
}

#[test]
fn what_cannot_be_taken_in_is_refused_with_its_reason_and_nothing_is_written() {
    let fab = Fab::new();
    let good = fab.traces("good.csv", 500.0);
    let cases: &[(&[&str], &str)] = &[
        (&["ingest", "nowhere.csv", "--context", "x"], "cannot read it"),
        (&["ingest", &fab.file("run.txt", "a"), "--context", "x"], ".csv, .json or .mebo"),
        (&["ingest", &fab.file("empty.csv", ""), "--context", "x"], "empty.csv"),
        (&["ingest", &fab.file("text.csv", "time,A\n0,hot\n"), "--context", "x"], "hot"),
        (
            &["ingest", &fab.file("bad.mebo", "no blob"), "--context", "x"],
            "chunk 1 of the T-chart cannot be read",
        ),
        (&["ingest", &good, "--context", "two words"], "contextId \"two words\" has ' '"),
        (&["ingest", &good, "--context", ""], "contextId is empty"),
        (&["ingest", &good, "--context", "x", "--strategy", "none.toml"], "--strategy FILE"),
        (
            &["ingest", &good, "--context", "x", "--strategy", &fab.file("s.toml", "[[group]]\ntools = 7\n")],
            "s.toml, line 2",
        ),
    ];
    for (arguments, reason) in cases {
        let all = [arguments, &["--tool", "etch-01", "--chamber", "A"][..]].concat();
        let refused = fab.phalanx(&all).fails_with(1);
        assert!(refused.stderr.contains(reason), "{reason:?} is not in {refused:#?}");
        assert_eq!(refused.stdout, "");
    }
    let name = ["ingest", &good, "--context", "x", "--tool", "etch.01", "--chamber", "A"];
    let refused = fab.phalanx(&name).fails_with(1);
    assert!(refused.stderr.contains("etch.01") && refused.stderr.contains("'.'"), "{refused:#?}");
    // What is no time is wrong use.
    fab.ingest(&good, "x", &["--timestamp", "yesterday"]).fails_with(2);
    assert!(!Path::new(&fab.path("data/charts.db")).exists(), "nothing was opened for any of these");
}

#[test]
fn a_folder_that_a_defender_has_is_left_to_it() {
    let fab = Fab::new();
    let lock = fs::File::create(fab.path("data/lock")).unwrap();
    lock.lock().unwrap();
    let file = fab.traces("run.csv", 500.0);
    let refused = fab.ingest(&file, "run-1", &[]).fails_with(1);
    assert!(refused.stderr.contains("is using it"), "{refused:#?}");
    fab.file("data/api-address", "http://127.0.0.1:9\n");
    let refused = fab.ingest(&file, "run-1", &[]).fails_with(1);
    assert!(refused.stderr.contains("no defender answers at http://127.0.0.1:9"), "{refused:#?}");
    drop(lock);
    // The note of a service that was killed keeps nobody out.
    fab.ingest(&file, "run-1", &[]).succeeds();
}

#[test]
fn a_list_of_chambers_is_taken_in_whole_or_not_at_all() {
    let fab = Fab::new();
    let header = "tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds\n";
    let list = fab.file("chambers.csv", format!("{header}etch-01,A,100,1,1200\netch-01,B,50,1,600\n"));
    let run = fab.phalanx(&["chambers", "import", &list]).succeeds();
    assert_eq!(run.stdout, "2 chambers imported, together they weigh 150000\n");
    assert_eq!(fab.count("chamber_metadata"), 2);
    for (content, reason) in [
        (format!("{header}etch-02,A,100,1,1200\netch.02,B,50,1,600\n"), "line 3: "),
        (format!("{header}etch-02,A,many,1,1200\n"), "svid_count is \"many\""),
        ("a,b\n".to_owned(), "the first line must be tool_id,"),
        (String::new(), "no chamber"),
    ] {
        let list = fab.file("wrong.csv", content);
        let refused = fab.phalanx(&["chambers", "import", &list]).fails_with(1);
        assert!(refused.stderr.contains(reason), "{reason:?} is not in {refused:#?}");
    }
    fab.phalanx(&["chambers", "import", "nowhere.csv"]).fails_with(1);
    assert_eq!(fab.count("chamber_metadata"), 2, "nothing of a wrong list is taken");
    // A run of a chamber that is not listed adds it.
    let arguments =
        ["ingest", &fab.traces("run.csv", 500.0), "--tool", "etch-09", "--chamber", "A", "--context", "x"];
    fab.phalanx(&arguments).succeeds();
    assert_eq!(fab.count("chamber_metadata"), 3);
}
