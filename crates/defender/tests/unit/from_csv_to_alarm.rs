//! The whole pure way, by the example strategy and a run of our own: file, chunks, columns, values, points, alarms.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;
use phalanx_defender::judge::rows::{Before, Entry};
use phalanx_defender::judge::{History, Run, judge};
use phalanx_defender::notification::{Message, Notification};
use phalanx_defender::record::{Chamber, Flags, Mark, Outcome, Results, Severity};
use phalanx_defender::strategy::Strategy;
use phalanx_defender::traces::{Recording, Traces};

fn beside(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One message, as the pipeline processes it.
fn process(sequence: u64, file: &str, tool: &str, last: Option<&Results>) -> Results {
    let strategy =
        Strategy::parse(&beside("../../examples/strategies/etch.toml")).expect("the fixture is good");
    let chamber = Chamber::new(tool, "B").expect("the fixture is good");
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("the fixture is good");
    let time = start + SignedDuration::from_hours(sequence as i64);
    let sent =
        Notification::new(chamber.clone(), &format!("ctx_{sequence}"), time).expect("the fixture is good");
    let message = Message::parse(&sent.to_json(), &chamber).expect("the fixture is good");
    let chunks = Recording::from_csv(beside(file).as_bytes())
        .expect("the fixture is good")
        .to_chunks()
        .expect("the fixture is good");

    let charts = strategy.charts_for(&chamber);
    let traces = Traces::decode(&chunks, charts.svids()).expect("the fixture is good");
    let values = traces.evaluate(&charts);
    let position = Position { generation: 1, sequence: Sequence(sequence) };
    let entry = Entry {
        chamber: chamber.clone(),
        mark: Mark { position, take: 1, stamp: sequence },
        predecessor: last.map(|last| last.mark.position),
        stream: 1,
        context: message.context().clone(),
        timestamp: message.timestamp(),
        strategy: strategy.version().clone(),
    };
    let before = Before::decode(last.map(|last| &last.state)).expect("the fixture is good");
    let rows =
        last.into_iter().flat_map(|last| last.charts.iter().map(|row| (row.clone(), last.mark.position, 1)));
    let history = History::assemble(rows, &before.history);
    let run = Run {
        chamber: &chamber,
        context: &entry.context,
        timestamp: entry.timestamp,
        position,
        strategy: &entry.strategy,
        values: &values,
    };
    entry.results(&before, judge(run, &charts, &before.state, &history))
}

#[test]
fn a_good_run_has_the_values_that_were_calculated_elsewhere() {
    let results = process(1, "../../examples/runs/good.csv", "etch-01", None);
    assert_eq!(results.context.outcome, Outcome::Processed);
    let expected = [
        ("rf-power", 499.975_609_756_097_6),
        ("rf-reflected", 3.5),
        ("temperature-range", 6.0),
        ("pressure-drift", 0.02),
        ("gas-flow", 100.003_048_780_487_8),
    ];
    for (point, (name, value)) in results.charts.iter().zip(expected) {
        assert_eq!(&*point.indicator, name);
        let found = point.value.unwrap();
        assert!((found - value).abs() < 1e-9, "{name}: {found}, not {value}");
    }
    let learning: Vec<bool> = results.charts.iter().map(|point| point.flags.has(Flags::LEARNING)).collect();
    assert_eq!(learning, [false, false, true, true, true]);
    assert_eq!(results.alarms, []);
}

#[test]
fn a_bad_run_is_an_alarm_until_a_good_one_comes() {
    let good = process(1, "../../examples/runs/good.csv", "etch-01", None);
    let bad = process(2, "../../examples/runs/bad.csv", "etch-01", Some(&good));
    let alarm = &bad.alarms[0];
    assert_eq!((&*alarm.indicator, &*alarm.rule, alarm.severity), ("rf-power", "limits", Severity::Critical));
    assert_eq!(
        alarm.message,
        "etch-01:B, chart rf-power: 529.976 in run ctx_2 is above the upper limit 520 (rule limits)."
    );
    let after = process(3, "../../examples/runs/good.csv", "etch-01", Some(&bad));
    assert_eq!(after.alarms[0].id, alarm.id);
    assert_eq!(after.alarms[0].cleared.as_ref().map(|(context, _)| &**context), Some("ctx_3"));
}

#[test]
fn the_exception_of_the_example_has_its_own_limits() {
    let results = process(1, "../../examples/runs/good.csv", "etch-07", None);
    assert_eq!(results.alarms[0].limit, Some(490.0));
}

#[test]
fn a_notification_has_the_fields_of_the_requirements_and_no_other() {
    let names: toml::Table = phalanx_testkit::requirements().parse().unwrap();
    let shapes = names["json"].as_array().unwrap();
    let shape = shapes.iter().find(|one| one["id"].as_str() == Some("completion_notification")).unwrap();
    let field = |one: &toml::Value, key: &str| one[key].as_str().unwrap().to_owned();
    let fields = shape["field"].as_array().unwrap();
    let example: serde_json::Map<String, serde_json::Value> =
        fields.iter().map(|one| (field(one, "name"), field(one, "example").into())).collect();
    let chamber = Chamber::new("tool001", "chamber1").unwrap();
    let bytes = serde_json::to_vec(&example).unwrap();
    let Message::Completed(read) = Message::parse(&bytes, &chamber).unwrap() else { panic!() };
    let written: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&read.to_json()).unwrap();
    assert_eq!(written, example);
}
