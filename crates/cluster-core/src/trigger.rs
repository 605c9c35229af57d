//! When to recalculate: windows that open at the first pending change, do not slide, and close by themselves when the
//! change undoes itself.

use std::time::Duration;

use super::config::Config;
use super::types::{Time, WindowKind};

/// An open window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) kind: WindowKind,
    pub(super) opened: Time,
    pub(super) ends: Time,
}

/// The facts behind a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TriggerInput {
    /// There is no map yet.
    pub(super) no_map: bool,
    /// Almost nobody of the map was there at take-over, and the fleet has not been whole since.
    pub(super) restarting: bool,
    /// Workers, partitions or weights differ from the map's, or it could be balanced and is not.
    pub(super) changed: bool,
    /// Somebody of the map has not been heard yet, and may still come.
    pub(super) missing: bool,
    /// The fleet size is known and that many are there.
    pub(super) complete: bool,
    /// The fleet size is known and above that of the map.
    pub(super) growing: bool,
    /// Nothing is waited for: the fleet shrinks by command, or cursors are ahead of the map.
    pub(super) urgent: bool,
}

/// What to do about planned changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Nothing is pending.
    Idle,
    /// A window is open.
    Wait(Window),
    /// Calculate now.
    Calculate,
}

/// Decides, given the window that is open.
pub(super) fn decide(now: Time, open: Option<Window>, situation: TriggerInput, config: &Config) -> Decision {
    invariant!(open.is_none_or(|open| open.opened <= now), "{open:?} was opened before {now:?}");
    invariant!(!situation.no_map || !situation.growing, "a fleet without a map does not grow: {situation:?}");
    let window = |kind, length: Duration| Window { kind, opened: now, ends: now + length };
    if situation.no_map {
        let window = open.unwrap_or_else(|| window(WindowKind::ColdStart, config.cold_start_window));
        return if situation.complete || now >= window.ends {
            Decision::Calculate
        } else {
            Decision::Wait(window)
        };
    }
    if situation.restarting {
        if !situation.missing && !situation.changed {
            return Decision::Idle;
        }
        // A window that was open when the last of them left is no restart's.
        let open = open.filter(|open| open.kind == WindowKind::Restart);
        let window = open.unwrap_or_else(|| window(WindowKind::Restart, config.cold_start_window));
        return if situation.complete || now >= window.ends {
            Decision::Calculate
        } else {
            Decision::Wait(window)
        };
    }
    // Whoever is missing may only not have been heard yet: until that is known, nothing is planned.
    if !situation.changed || situation.missing {
        return Decision::Idle;
    }
    if situation.urgent {
        return Decision::Calculate;
    }
    let length = if situation.growing { config.cold_start_window } else { config.scale_window };
    let window = open.unwrap_or_else(|| window(WindowKind::PlannedScale, length));
    let all_came = situation.growing && situation.complete;
    if all_came || now >= window.ends { Decision::Calculate } else { Decision::Wait(window) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: TriggerInput = TriggerInput {
        no_map: false,
        restarting: false,
        changed: false,
        missing: false,
        complete: false,
        growing: false,
        urgent: false,
    };

    fn s(seconds: u64) -> Time {
        Time::from_secs(seconds)
    }

    #[track_caller]
    fn check(now: u64, open: Option<Window>, situation: TriggerInput, expected: Decision) {
        assert_eq!(decide(s(now), open, situation, &Config::default()), expected);
    }

    #[test]
    fn a_cold_start_waits_thirty_seconds_or_for_the_whole_fleet() {
        let cold = TriggerInput { no_map: true, ..CALM };
        let window = Window { kind: WindowKind::ColdStart, opened: s(5), ends: s(35) };
        check(5, None, cold, Decision::Wait(window));
        check(34, Some(window), cold, Decision::Wait(window));
        check(35, Some(window), cold, Decision::Calculate);
        check(6, Some(window), TriggerInput { complete: true, ..cold }, Decision::Calculate);
    }

    #[test]
    fn a_planned_window_opens_once_does_not_slide_and_closes_when_the_change_undoes_itself() {
        let changed = TriggerInput { changed: true, ..CALM };
        let window = Window { kind: WindowKind::PlannedScale, opened: s(100), ends: s(110) };
        check(100, None, changed, Decision::Wait(window));
        check(109, Some(window), changed, Decision::Wait(window));
        check(110, Some(window), changed, Decision::Calculate);
        check(105, Some(window), CALM, Decision::Idle);
    }

    #[test]
    fn nothing_is_planned_while_somebody_of_the_map_was_never_heard() {
        check(5, None, TriggerInput { changed: true, missing: true, ..CALM }, Decision::Idle);
    }

    #[test]
    fn a_restart_ends_without_a_calculation_when_everybody_is_back() {
        let restarting = TriggerInput { restarting: true, missing: true, ..CALM };
        let window = Window { kind: WindowKind::Restart, opened: s(100), ends: s(130) };
        check(100, None, restarting, Decision::Wait(window));
        check(129, Some(window), TriggerInput { missing: false, ..restarting }, Decision::Idle);
        check(130, Some(window), restarting, Decision::Calculate);
        let left_open = Window { kind: WindowKind::PlannedScale, opened: s(95), ends: s(105) };
        check(100, Some(left_open), restarting, Decision::Wait(window));
    }

    #[test]
    fn a_restart_with_others_ends_when_the_fleet_is_whole() {
        let others_came = TriggerInput { restarting: true, changed: true, ..CALM };
        let window = Window { kind: WindowKind::Restart, opened: s(100), ends: s(130) };
        check(101, Some(window), others_came, Decision::Wait(window));
        check(101, Some(window), TriggerInput { complete: true, ..others_came }, Decision::Calculate);
    }

    #[test]
    fn a_commanded_scale_up_ends_when_all_are_there_or_after_thirty_seconds() {
        let growing = TriggerInput { changed: true, growing: true, ..CALM };
        let window = Window { kind: WindowKind::PlannedScale, opened: s(5), ends: s(35) };
        check(5, None, growing, Decision::Wait(window));
        check(9, Some(window), TriggerInput { complete: true, ..growing }, Decision::Calculate);
        check(35, Some(window), growing, Decision::Calculate);
    }

    #[test]
    fn a_commanded_scale_down_waits_for_nothing() {
        check(5, None, TriggerInput { changed: true, urgent: true, ..CALM }, Decision::Calculate);
    }
}
