use super::*;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn started(id: &str) -> Effect {
    Effect::StartProvider(id.to_owned())
}

fn moved(from: State, to: State, cause: &'static str) -> Effect {
    Effect::Moved { from, to, cause: cause.into() }
}

/// cwe <- capec <- attack, and asvs on its own.
fn orchestrator(satisfied: &[&str]) -> Orchestrator {
    let registry =
        Registry::new([("cwe", vec![]), ("capec", vec!["cwe"]), ("attack", vec!["capec"]), ("asvs", vec![])])
            .unwrap();
    Orchestrator::new(s(0), registry, satisfied.iter().map(|&id| id.to_owned()).collect())
}

#[track_caller]
fn step(orchestrator: &mut Orchestrator, input: Input, expected: &[Effect]) {
    let mut out = Vec::new();
    orchestrator.handle(s(1), input, &mut out);
    assert_eq!(out, expected);
}

fn start(ids: &[&str]) -> Input {
    Input::Start(ids.iter().map(|&id| id.to_owned()).collect())
}

fn ended(id: &str, outcome: Outcome) -> Input {
    Input::Ended(id.to_owned(), outcome)
}

fn event(id: &str, kind: EventKind) -> Input {
    Input::Event(id.to_owned(), kind)
}

use State::{Bootstrapping, Draining, Orchestrating, Stabilizing};

#[test]
fn all_start_in_topological_order_each_when_its_dependency_is_satisfied() {
    let mut macros = orchestrator(&[]);
    step(&mut macros, start(&["attack", "asvs", "capec", "cwe"]), &[started("asvs"), started("cwe")]);
    assert_eq!(macros.state(), Bootstrapping);
    step(
        &mut macros,
        event("cwe", EventKind::ProviderStarted),
        &[moved(Bootstrapping, Orchestrating, "a provider started")],
    );
    step(&mut macros, event("asvs", EventKind::ProviderStarted), &[]);
    step(&mut macros, ended("asvs", Outcome::Completed), &[]);
    step(&mut macros, ended("cwe", Outcome::CompletedWithGaps), &[started("capec")]);
    step(&mut macros, ended("capec", Outcome::Completed), &[started("attack")]);
    step(
        &mut macros,
        ended("attack", Outcome::Completed),
        &[moved(Orchestrating, Stabilizing, "no provider can make progress")],
    );
}

#[test]
fn who_waits_behind_a_failure_is_blocked_and_the_machine_stabilizes() {
    for outcome in [Outcome::Failed, Outcome::Stopped] {
        let mut macros = orchestrator(&[]);
        step(&mut macros, start(&["attack", "capec", "cwe"]), &[started("cwe")]);
        macros.handle(s(1), event("cwe", EventKind::ProviderStarted), &mut Vec::new());
        step(
            &mut macros,
            ended("cwe", outcome),
            &[moved(Orchestrating, Stabilizing, "no provider can make progress")],
        );
        assert_eq!(macros.blocked().collect::<Vec<_>>(), ["attack", "capec"]);
    }
}

#[test]
fn a_dependency_that_completed_once_stays_satisfied_when_a_later_run_fails() {
    let mut macros = orchestrator(&["cwe"]);
    step(&mut macros, start(&["capec", "cwe"]), &[started("cwe")]);
    step(&mut macros, ended("cwe", Outcome::Failed), &[started("capec")]);
}

#[test]
fn a_paused_provider_keeps_orchestrating_and_everything_is_at_rest() {
    let mut macros = orchestrator(&[]);
    step(&mut macros, start(&["asvs", "cwe"]), &[started("asvs"), started("cwe")]);
    for id in ["asvs", "cwe"] {
        macros.handle(s(1), event(id, EventKind::ProviderStarted), &mut Vec::new());
    }
    step(&mut macros, event("asvs", EventKind::ProviderPaused), &[]);
    assert!(!macros.is_at_rest());
    step(&mut macros, ended("cwe", Outcome::Completed), &[]);
    assert!(macros.is_at_rest());
    assert_eq!((macros.state(), macros.paused().collect::<Vec<_>>()), (Orchestrating, vec!["asvs"]));
    step(&mut macros, event("asvs", EventKind::ProviderResumed), &[]);
    assert!(!macros.is_at_rest());
}

#[test]
fn a_restart_of_a_provider_orchestrates_again() {
    let mut macros = orchestrator(&[]);
    macros.handle(s(1), start(&["asvs"]), &mut Vec::new());
    macros.handle(s(1), event("asvs", EventKind::ProviderStarted), &mut Vec::new());
    macros.handle(s(1), ended("asvs", Outcome::Failed), &mut Vec::new());
    assert_eq!(macros.state(), Stabilizing);
    step(&mut macros, start(&["asvs"]), &[started("asvs")]);
    step(
        &mut macros,
        event("asvs", EventKind::ProviderStarted),
        &[moved(Stabilizing, Orchestrating, "a provider started")],
    );
}

#[test]
fn draining_is_reached_from_everywhere_and_is_the_end() {
    let mut macros = orchestrator(&[]);
    step(&mut macros, Input::Drain, &[moved(Bootstrapping, Draining, "drain")]);
    step(&mut macros, Input::Drain, &[]);
    step(&mut macros, start(&["asvs"]), &[]);
    step(&mut macros, event("asvs", EventKind::ProviderStarted), &[]);

    let mut macros = orchestrator(&[]);
    macros.handle(s(1), start(&["asvs"]), &mut Vec::new());
    macros.handle(s(1), event("asvs", EventKind::ProviderStarted), &mut Vec::new());
    step(&mut macros, Input::Drain, &[moved(Orchestrating, Draining, "drain")]);

    let mut macros = orchestrator(&[]);
    macros.handle(s(1), start(&["asvs"]), &mut Vec::new());
    macros.handle(s(1), event("asvs", EventKind::ProviderStarted), &mut Vec::new());
    macros.handle(s(1), ended("asvs", Outcome::Completed), &mut Vec::new());
    step(&mut macros, Input::Drain, &[moved(Stabilizing, Draining, "drain")]);
}

#[test]
fn a_run_that_goes_on_after_a_restart_counts_as_started() {
    let mut macros = orchestrator(&[]);
    step(
        &mut macros,
        Input::Recovered("cwe".to_owned(), false),
        &[moved(Bootstrapping, Orchestrating, "a run goes on")],
    );
    step(&mut macros, start(&["cwe", "capec"]), &[]);
    step(&mut macros, ended("cwe", Outcome::Completed), &[started("capec")]);
}
