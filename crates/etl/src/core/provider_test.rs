use State::{Acquiring, Idle, Paused, Running, Terminated, WaitingBackoff, WaitingQuota};

use super::*;

const POLICY: Policy = Policy { max_retries: 3, retry_delay: Duration::from_secs(5) };

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn moved(from: State, to: State, cause: &'static str) -> Effect {
    Effect::Moved { from, to, cause: cause.into() }
}

fn emit(kind: EventKind, detail: &str) -> Effect {
    Effect::Emit(kind, detail.to_owned())
}

fn failed(status: u16, retry_after: Option<Duration>) -> Input {
    Input::PageFailed { fault: Fault::Status(status), retry_after, jitter: 0.0 }
}

/// A provider in `state`, reached by inputs alone.
fn provider_in(state: State) -> Provider {
    let mut provider = Provider::new(s(0), POLICY);
    let inputs: &[Input] = match state {
        Idle => &[],
        Acquiring => &[Input::Start],
        Running => &[Input::Start, Input::QuotaGranted(2)],
        WaitingQuota => &[Input::Start, Input::QuotaGranted(2), Input::QuotaRevoked(2, Reason::LeaseExpired)],
        WaitingBackoff => &[
            Input::Start,
            Input::QuotaGranted(2),
            Input::PageFailed { fault: Fault::TimedOut, retry_after: None, jitter: 0.0 },
        ],
        Paused => &[Input::Start, Input::Pause],
        Terminated => &[Input::Start, Input::Stop],
    };
    for input in inputs {
        provider.handle(s(0), input.clone(), &mut Vec::new());
    }
    assert_eq!(provider.state(), state);
    provider
}

/// Gives one input to a provider in `state` and compares everything that comes out.
#[track_caller]
fn check(state: State, at: Duration, input: Input, expected: &[Effect]) -> Provider {
    let mut provider = provider_in(state);
    let mut out = Vec::new();
    provider.handle(at, input, &mut out);
    assert_eq!(out, expected);
    provider
}

#[test]
fn start_emits_started_and_asks_for_permits() {
    check(
        Idle,
        s(1),
        Input::Start,
        &[moved(Idle, Acquiring, "start"), emit(EventKind::ProviderStarted, ""), Effect::AskPermits],
    );
}

#[test]
fn granted_permits_set_it_to_work_and_further_ones_raise_its_concurrency() {
    let mut provider = check(
        Acquiring,
        s(1),
        Input::QuotaGranted(3),
        &[
            moved(Acquiring, Running, "permits granted"),
            emit(EventKind::QuotaGranted, "3 permits, 3 held"),
            Effect::Work(3),
        ],
    );
    let mut out = Vec::new();
    provider.handle(s(2), Input::QuotaGranted(2), &mut out);
    assert_eq!(out, [emit(EventKind::QuotaGranted, "2 permits, 5 held"), Effect::Work(5)]);
}

#[test]
fn a_partial_revocation_lowers_concurrency_and_the_last_permit_stops_it() {
    let slow = || Reason::SlowWrites(Duration::from_millis(50));
    let mut provider = check(
        Running,
        s(1),
        Input::QuotaRevoked(1, slow()),
        &[
            emit(EventKind::QuotaRevoked, "1 permits, 1 held: writes take 50.0 ms per record"),
            Effect::Work(1),
        ],
    );
    let mut out = Vec::new();
    provider.handle(s(2), Input::QuotaRevoked(1, slow()), &mut out);
    assert_eq!(
        out,
        [
            emit(EventKind::QuotaRevoked, "1 permits, 0 held: writes take 50.0 ms per record"),
            Effect::Halt,
            moved(Running, WaitingQuota, "the last permit was revoked"),
        ]
    );
    assert_eq!(provider.next_deadline(), Some(s(7)));
    out.clear();
    provider.handle(s(6), Input::Tick, &mut out);
    assert_eq!(out, []);
    provider.handle(s(7), Input::Tick, &mut out);
    assert_eq!(out, [moved(WaitingQuota, Acquiring, "asking again"), Effect::AskPermits]);
}

#[test]
fn a_rate_limit_waits_as_long_as_the_source_asks() {
    let provider = check(
        Running,
        s(10),
        failed(429, Some(s(60))),
        &[
            emit(EventKind::RateLimited, "the source answered 429"),
            Effect::Halt,
            Effect::ReturnPermits,
            moved(Running, WaitingBackoff, "the source answered 429"),
        ],
    );
    assert_eq!((provider.next_deadline(), provider.permits()), (Some(s(70)), 0));
}

#[test]
fn a_broken_gateway_waits_without_being_a_rate_limit() {
    check(
        Running,
        s(10),
        failed(502, None),
        &[Effect::Halt, Effect::ReturnPermits, moved(Running, WaitingBackoff, "the source answered 502")],
    );
}

#[test]
fn the_fourth_failure_in_a_row_of_one_page_fails_the_run_and_a_page_read_forgives() {
    let mut provider = provider_in(Running);
    let mut out = Vec::new();
    let mut now = s(0);
    let fail_and_return = |provider: &mut Provider, now: &mut Duration, out: &mut Vec<Effect>| {
        provider.handle(*now, failed(503, None), out);
        *now = provider.next_deadline().unwrap();
        provider.handle(*now, Input::Tick, out);
        provider.handle(*now, Input::QuotaGranted(1), out);
    };
    for _ in 0..3 {
        fail_and_return(&mut provider, &mut now, &mut out);
    }
    assert_eq!(now, s(5 + 10 + 20));
    provider.handle(now, Input::PageRead, &mut out);
    for _ in 0..3 {
        fail_and_return(&mut provider, &mut now, &mut out);
    }
    assert_eq!(now, s(70));
    out.clear();
    provider.handle(now, failed(503, None), &mut out);
    let why = "the source answered 503, 4 times in a row";
    assert_eq!(
        out,
        [
            Effect::Halt,
            Effect::ReturnPermits,
            moved(Running, Terminated, why),
            emit(EventKind::ProviderFailed, why),
            Effect::EndRun(Outcome::Failed, why.to_owned()),
        ]
    );
    assert_eq!(provider.saved().failures, 0, "the next run begins to count anew");
}

#[test]
fn pause_takes_effect_at_once_in_acquiring_and_running() {
    check(
        Acquiring,
        s(1),
        Input::Pause,
        &[Effect::ReturnPermits, moved(Acquiring, Paused, "pause"), emit(EventKind::ProviderPaused, "")],
    );
    check(
        Running,
        s(1),
        Input::Pause,
        &[
            Effect::Halt,
            Effect::ReturnPermits,
            moved(Running, Paused, "pause"),
            emit(EventKind::ProviderPaused, ""),
        ],
    );
}

#[test]
fn pause_while_waiting_is_a_wish_taken_at_the_next_acquiring() {
    for waiting in [WaitingQuota, WaitingBackoff] {
        let mut provider = check(waiting, s(1), Input::Pause, &[]);
        assert!(provider.saved().pause_wish);
        let mut out = Vec::new();
        provider.handle(s(5), Input::Tick, &mut out);
        assert_eq!(provider.state(), Paused);
        let cause = if waiting == WaitingQuota { "asking again" } else { "back-off expired" };
        assert_eq!(
            out,
            [
                moved(waiting, Acquiring, cause),
                Effect::ReturnPermits,
                moved(Acquiring, Paused, "pause, as wished"),
                emit(EventKind::ProviderPaused, ""),
            ]
        );
        assert!(!provider.saved().pause_wish);
    }
}

#[test]
fn resume_takes_a_wish_back() {
    let mut provider = check(WaitingBackoff, s(1), Input::Pause, &[]);
    let mut out = Vec::new();
    provider.handle(s(2), Input::Resume, &mut out);
    provider.handle(s(5), Input::Tick, &mut out);
    assert_eq!(out, [moved(WaitingBackoff, Acquiring, "back-off expired"), Effect::AskPermits]);
}

#[test]
fn resume_asks_for_permits_again() {
    check(
        Paused,
        s(1),
        Input::Resume,
        &[moved(Paused, Acquiring, "resume"), emit(EventKind::ProviderResumed, ""), Effect::AskPermits],
    );
}

#[test]
fn stop_ends_the_run_wherever_it_is() {
    for state in [Acquiring, Running, WaitingQuota, WaitingBackoff, Paused] {
        let mut provider = provider_in(state);
        let mut out = Vec::new();
        provider.handle(s(1), Input::Stop, &mut out);
        assert_eq!(provider.state(), Terminated);
        let tail =
            [moved(state, Terminated, "stopped"), Effect::EndRun(Outcome::Stopped, "stopped".to_owned())];
        assert!(out.ends_with(&tail), "{out:?}");
    }
}

#[test]
fn completion_says_whether_there_are_gaps() {
    check(
        Running,
        s(1),
        Input::Exhausted { gaps: Some("2 of 5 are missing".to_owned()) },
        &[
            Effect::Halt,
            Effect::ReturnPermits,
            moved(Running, Terminated, "2 of 5 are missing"),
            emit(EventKind::ProviderCompleted, "2 of 5 are missing"),
            Effect::EndRun(Outcome::CompletedWithGaps, "2 of 5 are missing".to_owned()),
        ],
    );
    let provider = {
        let mut provider = provider_in(Running);
        provider.handle(s(1), Input::Exhausted { gaps: None }, &mut Vec::new());
        provider
    };
    assert_eq!(provider.state(), Terminated);
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let refused = |command, state| Effect::Refused(Refused { command, state });
    for state in [Acquiring, Running, WaitingQuota, WaitingBackoff, Paused, Terminated] {
        let provider = check(state, s(1), Input::Start, &[refused("start", state)]);
        assert_eq!(provider.state(), state);
    }
    for state in [Idle, Paused, Terminated] {
        check(state, s(1), Input::Pause, &[refused("pause", state)]);
    }
    for state in [Idle, Acquiring, Running, WaitingQuota, WaitingBackoff, Terminated] {
        check(state, s(1), Input::Resume, &[refused("resume", state)]);
    }
    for state in [Idle, Terminated] {
        check(state, s(1), Input::Stop, &[refused("stop", state)]);
    }
}

#[test]
fn a_late_grant_is_given_back() {
    for state in [Idle, WaitingQuota, WaitingBackoff, Paused, Terminated] {
        check(state, s(1), Input::QuotaGranted(2), &[Effect::ReturnPermits]);
    }
}

#[test]
fn a_checkpoint_is_emitted_for_each_hundred_items() {
    let mut provider = provider_in(Running);
    let mut out = Vec::new();
    let mut batch = |items, out: &mut Vec<Effect>| {
        let last = Some("v2e::nvd::cve::CVE-2024-1".to_owned());
        provider.handle(s(1), Input::Batch { items, errors: 1, last }, out);
    };
    batch(99, &mut out);
    assert_eq!(out, []);
    batch(1, &mut out);
    batch(250, &mut out);
    let at = |items| emit(EventKind::Checkpoint, &format!("{items} items, at v2e::nvd::cve::CVE-2024-1"));
    assert_eq!(out, [at(100), at(200), at(300)]);
    assert_eq!((provider.saved().processed, provider.saved().errors), (350, 3));
}

#[test]
fn recovery_follows_the_table() {
    let table = [
        (Running, Acquiring),
        (Acquiring, Acquiring),
        (WaitingQuota, Acquiring),
        (WaitingBackoff, WaitingBackoff),
        (Paused, Paused),
        (Idle, Idle),
        (Terminated, Terminated),
    ];
    for (saved_state, expected) in table {
        let saved = Saved {
            state: saved_state,
            failures: 2,
            deadline: Some(s(90)),
            processed: 40,
            ..Saved::default()
        };
        let mut out = Vec::new();
        let mut provider = Provider::recover(s(60), POLICY, saved, &mut out);
        assert_eq!(provider.state(), expected, "{saved_state}");
        assert_eq!((provider.saved().failures, provider.saved().processed), (2, 40));
        let mut effects = Vec::new();
        if !matches!(saved_state, Idle | Terminated) {
            effects.push(Effect::Recovered { saved: saved_state, state: expected });
        }
        if expected == Acquiring {
            effects.push(Effect::AskPermits);
        }
        assert_eq!(out, effects, "{saved_state}");

        out.clear();
        provider.handle(s(89), Input::Tick, &mut out);
        assert_eq!(out, [], "{saved_state}: nothing moves before the saved deadline");
        provider.handle(s(90), Input::Tick, &mut out);
        let moves = expected == WaitingBackoff;
        assert_eq!(provider.state(), if moves { Acquiring } else { expected });
    }
}

#[test]
fn a_wish_to_pause_survives_a_restart() {
    let saved = Saved { state: WaitingBackoff, deadline: Some(s(9)), pause_wish: true, ..Saved::default() };
    let mut out = Vec::new();
    let mut provider = Provider::recover(s(1), POLICY, saved, &mut out);
    provider.handle(s(9), Input::Tick, &mut out);
    assert_eq!(provider.state(), Paused);
}
