//! Every name the design's list promises of the engine, against the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use phalanx_etl::core::EventKind;
use phalanx_etl::core::backoff::Policy;
use phalanx_etl::core::provider::{Provider, Saved};
use phalanx_etl::engine::{Engine, Options, ProviderConfig};
use phalanx_etl::source::Source;
use phalanx_etl::store::Reader;
use phalanx_etl::{MacroState, ProviderState, Urn};
use phalanx_fsm::State;
use phalanx_testkit::requirements;
use serde_json::Value;
use toml::Table;

/// The entries of one kind that stand in the document of the engine.
fn entries(kind: &str) -> Vec<Table> {
    let names: Table = requirements().parse().expect("TOML");
    let of_the_engine = |entry: &&Table| {
        entry["doc"].as_array().is_some_and(|doc| doc.iter().any(|one| text(one) == "provider-fsm-lifecycle"))
    };
    let all = names[kind].as_array().expect("a list of entries");
    let found: Vec<_> =
        all.iter().filter_map(|entry| entry.as_table()).filter(of_the_engine).cloned().collect();
    assert!(!found.is_empty(), "the list names no {kind} of the engine");
    found
}

fn text(value: &toml::Value) -> &str {
    value.as_str().expect("text")
}

fn states<S: State>() -> BTreeSet<String> {
    S::MACHINE.states.iter().map(|decl| decl.name.to_owned()).collect()
}

fn transitions<S: State>() -> BTreeSet<(String, String)> {
    S::MACHINE.transitions().map(|(from, to)| (from.name().to_owned(), to.name().to_owned())).collect()
}

#[test]
fn states_are_those_of_the_list() {
    let entries = entries("state");
    let listed = |machine: &str| -> BTreeSet<String> {
        let of = entries.iter().filter(|entry| text(&entry["machine"]) == machine);
        of.map(|entry| text(&entry["name"]).to_owned()).collect()
    };
    assert_eq!(states::<MacroState>(), listed("macro"));
    assert_eq!(states::<ProviderState>(), listed("provider"));
    for entry in &entries {
        let flag = |name: &str| entry.get(name).and_then(toml::Value::as_bool).unwrap_or_default();
        let name = text(&entry["name"]);
        let (initial, terminal) = match text(&entry["machine"]) {
            "macro" => (MacroState::MACHINE.initial().name() == name, is_terminal::<MacroState>(name)),
            _ => (ProviderState::MACHINE.initial().name() == name, is_terminal::<ProviderState>(name)),
        };
        assert_eq!((initial, terminal), (flag("initial"), flag("terminal")), "{name}");
    }
}

fn is_terminal<S: State>(name: &str) -> bool {
    S::from_name(name).expect("compared above").is_terminal()
}

#[test]
fn transitions_are_those_of_the_list() {
    let entries = entries("transition");
    let listed = |machine: &str| -> BTreeSet<(String, String)> {
        let of = entries.iter().filter(|entry| text(&entry["machine"]) == machine);
        of.map(|entry| (text(&entry["from"]).to_owned(), text(&entry["to"]).to_owned()))
            .filter(|(from, to)| from != "[*]" && to != "[*]")
            .collect()
    };
    assert_eq!(transitions::<MacroState>(), listed("macro"));
    assert_eq!(transitions::<ProviderState>(), listed("provider"));
}

#[test]
fn events_are_those_of_the_list() {
    let entries = entries("event");
    let listed: Vec<_> = entries.iter().map(|entry| text(&entry["name"])).collect();
    let ours: Vec<_> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(ours, listed);
}

#[test]
fn the_configuration_has_the_fields_and_defaults_of_the_list() {
    let entries = entries("config");
    let ProviderConfig {
        id,
        provider_type,
        storage,
        executor,
        dependencies,
        batch_size,
        max_retries,
        retry_delay,
    } = ProviderConfig::new("", "");
    let nil = |is_nil: bool| if is_nil { "nil".to_owned() } else { "something".to_owned() };
    let ours = BTreeMap::from([
        ("ID", id),
        ("ProviderType", provider_type),
        ("Storage", nil(storage.is_none())),
        ("Executor", nil(executor.is_none())),
        ("Dependencies", nil(dependencies.is_empty())),
        ("BatchSize", batch_size.to_string()),
        ("MaxRetries", max_retries.to_string()),
        ("RetryDelay", format!("{}s", retry_delay.as_secs())),
    ]);
    let listed: BTreeMap<_, _> =
        entries.iter().map(|entry| (text(&entry["name"]), text(&entry["default"]).to_owned())).collect();
    assert_eq!(ours, listed);
}

#[test]
fn statistics_and_checkpoints_have_the_names_of_the_list() {
    let (statistics, shapes) = (entries("statistic"), entries("json"));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("asvs.csv");
    fs::write(
        &file,
        "chapter_id,chapter_name,section_id,section_name,req_id,req_description,L\nV1,E,V1.1,A,V1.1.1,Do.,2\n",
    )
    .unwrap();
    let mut options = Options::new(dir.path().join("x.db"));
    options.sources.insert("asvs".to_owned(), Source::parse(&file.display().to_string(), None));
    Engine::new(options).unwrap().run(&["asvs".to_owned()], &mut |_| {}).unwrap();
    let reader = Reader::open(&dir.path().join("x.db")).unwrap();
    let shown = |value: Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
    let provider = shown(serde_json::to_value(&reader.providers().unwrap()[0]).unwrap());
    let orchestrator = shown(serde_json::to_value(reader.macro_stats().unwrap().unwrap()).unwrap());
    for entry in &statistics {
        let name = text(&entry["name"]);
        let ours = if text(&entry["owner"]) == "macro" { &orchestrator } else { &provider };
        assert!(ours.contains(name), "{name} is missing in {ours:?}");
    }
    let checkpoint = shown(serde_json::to_value(&reader.checkpoints(1).unwrap()[0]).unwrap());
    for shape in shapes {
        let ours = match text(&shape["id"]) {
            "checkpoint_record" => &checkpoint,
            "macro_stats" => &orchestrator,
            "provider_stats" => &provider,
            other => panic!("nobody shows {other}"),
        };
        for field in shape["field"].as_array().unwrap() {
            let optional = text(&field["type"]).contains("optional");
            assert!(optional || ours.contains(text(&field["name"])), "{field} is missing in {ours:?}");
        }
    }
}

#[test]
fn recovery_knows_every_saved_state_of_the_list() {
    let entries = entries("recovery");
    for entry in entries {
        let saved = ProviderState::from_name(text(&entry["saved_state"])).expect("a state");
        let action = text(&entry["action"]);
        let policy = Policy { max_retries: 3, retry_delay: Duration::from_secs(5) };
        let saved = Saved { state: saved, deadline: Some(Duration::from_secs(9)), ..Saved::default() };
        let provider = Provider::recover(Duration::from_secs(1), policy, saved.clone(), &mut Vec::new());
        let expected = if action.contains("ask") { ProviderState::Acquiring } else { saved.state };
        assert_eq!(provider.state(), expected, "{}: {action}", saved.state);
    }
}

#[test]
fn the_urns_of_the_list_can_be_read() {
    let entries = entries("urn");
    for entry in entries {
        let example = text(&entry["example"]);
        let urn: Urn = example.parse().unwrap_or_else(|error| panic!("{example}: {error}"));
        assert_eq!(urn.as_str(), example);
    }
}
