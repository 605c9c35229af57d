//! The macro and provider machines against the design's tables, written out a second time.

use phalanx_etl::core::EventKind;
use phalanx_etl::{MacroState, ProviderState};
use phalanx_testkit::machine::assert_follows;

#[test]
fn the_macro_machine_is_the_one_designed() {
    assert_follows::<MacroState>(&[
        (0, "BOOTSTRAPPING", &["ORCHESTRATING", "DRAINING"]),
        (1, "ORCHESTRATING", &["STABILIZING", "DRAINING"]),
        (2, "STABILIZING", &["ORCHESTRATING", "DRAINING"]),
        (3, "DRAINING", &[]),
    ]);
}

#[test]
fn the_provider_machine_is_the_one_designed() {
    assert_follows::<ProviderState>(&[
        (0, "IDLE", &["ACQUIRING"]),
        (1, "ACQUIRING", &["RUNNING", "PAUSED", "TERMINATED"]),
        (2, "RUNNING", &["WAITING_QUOTA", "WAITING_BACKOFF", "PAUSED", "TERMINATED"]),
        (3, "WAITING_QUOTA", &["ACQUIRING", "TERMINATED"]),
        (4, "WAITING_BACKOFF", &["ACQUIRING", "TERMINATED"]),
        (5, "PAUSED", &["ACQUIRING", "TERMINATED"]),
        (6, "TERMINATED", &[]),
    ]);
}

#[test]
fn the_nine_events_are_those_of_the_design() {
    let names: Vec<_> = EventKind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(
        names,
        [
            "PROVIDER_STARTED",
            "PROVIDER_COMPLETED",
            "PROVIDER_FAILED",
            "PROVIDER_PAUSED",
            "PROVIDER_RESUMED",
            "QUOTA_REVOKED",
            "QUOTA_GRANTED",
            "RATE_LIMITED",
            "CHECKPOINT",
        ]
    );
}
