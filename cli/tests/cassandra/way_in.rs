//! The ways into a fleet at real NATS and Cassandra: `phalanx collector`, `phalanx ingest`, `phalanx chambers import`.

use std::process::Command;

use crate::util::fleet::{Ground, Member};
use crate::util::run;
use crate::util::running::{ask, csv, strategy};
use phalanx_testkit::cassandra::Keyspace;
use phalanx_testkit::nats::Server;
use phalanx_testkit::wait::until;
use serde_json::{Value, json};

const TOKEN: &str = "a-token";

/// NATS, tables in Cassandra, and a defender of a fleet of one.
struct Fleet {
    ground: Ground,
    defender: Member,
    _nats: Server,
    _keyspace: Keyspace,
}

fn fleet() -> Fleet {
    let nats = Server::start().unwrap();
    let keyspace = Keyspace::create().unwrap();
    let ground = Ground {
        nats: nats.url(),
        replicas: 1,
        cassandra: keyspace.hosts().to_owned(),
        keyspace: keyspace.name().to_owned(),
        folder: tempfile::tempdir().unwrap(),
    };
    run(ground.phalanx().args(["schema", "apply", "--replication", "1"])).succeeds();
    let defender =
        ground.defender("pod-1", 1, &strategy(), &[("API_TOKEN", TOKEN), ("SCALE_WINDOW_SECONDS", "1")]);
    until("it is ready", || defender.is_ready().then_some(()));
    Fleet { ground, defender, _nats: nats, _keyspace: keyspace }
}

impl Fleet {
    /// A collector, with more environment variables.
    fn collector(&self, name: &str, settings: &[(&str, &str)]) -> Member {
        let mut command = self.ground.phalanx();
        command.args(["collector", "--http-addr", "127.0.0.1:0"]).envs(settings.iter().copied());
        let collector = self.ground.start(name, command);
        until("it is ready", || collector.is_ready().then_some(()));
        collector
    }

    /// Waits until the fleet has committed that run, and says what it came to.
    fn outcome(&self, tool: &str, chamber: &str, context: &str) -> Value {
        until("the run is committed", || {
            let path = format!("/api/v1/contexts/{tool}/{chamber}/{context}");
            let (status, report) = ask(&self.defender.url, "GET", &path, None, "text/plain", "");
            (status == 200).then_some(report)
        })
    }
}

fn post(to: &Member, query: &str, token: Option<&str>, kind: &str, body: &str) -> (u16, Value) {
    ask(&to.url, "POST", &format!("/api/v1/contexts?{query}"), token, kind, body)
}

fn metric(member: &Member, series: &str) -> Option<f64> {
    let text = member.get("/metrics");
    text.as_str()?.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
}

#[test]
fn runs_handed_to_a_collector_are_processed_by_the_fleet_and_nothing_comes_in_without_the_token() {
    let fleet = fleet();
    let mut collector = fleet.collector("collector", &[("API_TOKEN", TOKEN)]);
    let query = |context: &str| format!("tool=etch-01&chamber=A&context={context}");
    let power = csv(500);
    let good = |context: &str, body: &str| post(&collector, &query(context), Some(TOKEN), "text/csv", body);

    assert_eq!(post(&collector, &query("run-0"), None, "text/csv", &power).0, 401);
    assert_eq!(post(&collector, &query("run-0"), Some("wrong"), "text/csv", &power).0, 401);
    let (status, taken) = good("run-1", &power);
    assert_eq!(
        (status, &taken["contextId"], &taken["duplicate"]),
        (202, &json!("run-1"), &json!(false)),
        "{taken}"
    );
    // Nobody has listed the chamber: it is announced with its first run.
    let report = fleet.outcome("etch-01", "A", "run-1");
    assert_eq!((&report["outcome"], &report["toolId"]), (&json!("processed"), &json!("etch-01")), "{report}");
    assert_eq!(good("run-2", &csv(560)).0, 202);
    let report = fleet.outcome("etch-01", "A", "run-2");
    assert_eq!(report["alarms"][0]["indicator"], "rf-power", "{report}");
    assert_eq!(good("run-2", &csv(560)).1["duplicate"], true);
    // As JSON, and what is no run at all.
    let traces =
        json!({ "time": [0, 20_000_000, 40_000_000], "traces": { "RF_POWER": [0, 500, 502] } }).to_string();
    assert_eq!(post(&collector, &query("run-3"), Some(TOKEN), "application/json", &traces).0, 202);
    let report = fleet.outcome("etch-01", "A", "run-3");
    let point = report["points"].as_array().unwrap().iter().find(|point| point["chart"] == "rf-power");
    assert_eq!(point.unwrap()["value"], 501.0, "{report}");
    let (status, refused) = good("run-4", "no,times\nhere\n");
    assert_eq!(status, 400, "{refused}");
    assert_eq!(
        metric(&collector, "phalanx_collector_runs_total{result=\"duplicate\"}"),
        Some(1.0),
        "{}",
        collector.get("/metrics")
    );
    assert!(metric(&collector, "phalanx_collector_runs_total{result=\"refused\"}") >= Some(1.0));
    // It does nothing else.
    assert_eq!(ask(&collector.url, "GET", "/api/v1/status", None, "text/plain", "").0, 404);
    let (_, contexts) = ask(&fleet.defender.url, "GET", "/api/v1/contexts/etch-01/A", None, "text/plain", "");
    assert!(!contexts.to_string().contains("run-0"), "{contexts}");
    collector.leave();

    let closed = fleet.collector("closed", &[]);
    assert_eq!(post(&closed, &query("run-5"), Some(TOKEN), "text/csv", &power).0, 403);
}

#[test]
fn a_consistency_that_the_servers_cannot_give_is_waited_for_and_said() {
    let fleet = fleet();
    let mut command = fleet.ground.phalanx();
    command.args(["collector", "--http-addr", "127.0.0.1:0"]).env("CASSANDRA_CONSISTENCY", "THREE");
    let mut waits = fleet.ground.start("waits", command);
    let ready = until("it says what it waits for", || {
        let ready = waits.get("/health/ready");
        ready["waitsFor"].is_string().then_some(ready)
    });
    assert!(ready["waitsFor"].as_str().unwrap().contains("consistency level THREE"), "{ready}");
    waits.leave();
}

#[test]
fn ingest_and_import_reach_the_fleet_without_a_defender_being_named() {
    let fleet = fleet();
    let folder = fleet.ground.folder.path().to_owned();
    let phalanx = |arguments: &[&str]| -> Command {
        let mut command = fleet.ground.phalanx();
        command.args(arguments).current_dir(&folder);
        command
    };
    std::fs::write(folder.join("good.csv"), csv(500)).unwrap();
    std::fs::write(folder.join("bad.csv"), csv(560)).unwrap();
    let list = "tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds\n\
                etch-01,A,100,10,60\netch-01,B,200,10,60\n";
    std::fs::write(folder.join("chambers.csv"), list).unwrap();

    let imported = run(&mut phalanx(&["chambers", "import", "chambers.csv"])).succeeds();
    assert!(imported.stdout.starts_with("2 chambers imported"), "{imported:?}");
    until("the fleet owns them", || {
        let map = fleet.defender.get("/api/v1/assignments?all=true");
        (map["chambers"].as_array()?.len() == 2).then_some(())
    });

    let of_b = ["--tool", "etch-01", "--chamber", "B"];
    let good = run(phalanx(&["ingest", "good.csv", "--context", "run-1"]).args(of_b)).succeeds();
    assert!(good.stdout.starts_with("etch-01:B run-1: processed"), "{good:?}");
    let bad = run(phalanx(&["ingest", "bad.csv", "--context", "run-2", "--json"]).args(of_b)).succeeds();
    let report: Value = serde_json::from_str(&bad.stdout).unwrap();
    assert_eq!(report["alarms"][0]["indicator"], "rf-power", "{report}");
    let again = run(phalanx(&["ingest", "bad.csv", "--context", "run-2"]).args(of_b)).succeeds();
    assert!(again.stdout.contains("etch-01:B run-2: processed"), "{again:?}");

    // By the defender itself, for a chamber that nobody has listed.
    let url = fleet.defender.url.clone();
    let to_defender = ["--url", &url, "--token", TOKEN, "--tool", "etch-01", "--chamber", "C"];
    let through = run(phalanx(&["ingest", "good.csv", "--context", "run-1"]).args(to_defender)).succeeds();
    assert!(through.stdout.starts_with("etch-01:C run-1: processed"), "{through:?}");
}
