//! Events of a defender, for programs that want to know of them.

use std::sync::Arc;

use phalanx_cluster::core::{Position, WorkerState};

use crate::record::{Alarm, Chamber};

/// Receiver of a defender's events.
///
/// The defender calls it while it works, and waits until it returns: return immediately. A message that is processed again
/// is reported again.
pub trait Observer: Send + Sync + 'static {
    /// Called when an alarm was raised or cleared, stored and published.
    fn alarm(&self, alarm: &Alarm) {
        let _ = alarm;
    }

    /// Called when the message at this position is committed or dead-lettered.
    fn committed(&self, chamber: &Chamber, position: Position) {
        let _ = (chamber, position);
    }

    /// Called when the worker took over or released chambers.
    fn assignment(&self, added: &[Arc<str>], removed: &[Arc<str>]) {
        let _ = (added, removed);
    }

    /// Called when the worker changed its state.
    fn state(&self, from: WorkerState, to: WorkerState) {
        let _ = (from, to);
    }

    /// Called when another strategy came into force.
    fn strategy(&self, from: &str, to: &str) {
        let _ = (from, to);
    }

    /// Called with a problem that an operator should know of.
    fn problem(&self, text: &str) {
        let _ = text;
    }
}

/// Ignores every event.
impl Observer for () {}
