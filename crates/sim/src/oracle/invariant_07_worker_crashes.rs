//! Invariant 7: no message starts more than (attempt limit + 1) times because of worker crashes. A suspected message runs
//! isolated, and a message that has done nothing is not dead-lettered.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_cluster_core::types::Time;
use phalanx_cluster_core::{Cursor, MAX_ATTEMPTS};

use crate::HashMap;
use crate::broker::MessageKind;
use crate::fleet::ProcessId;
use crate::oracle::messages::MessageIndex;
use crate::oracle::processes::Running;
use crate::oracle::report::Report;

const NUMBER: u32 = 7;

/// Crashes of workers by message, and isolated attempts.
#[derive(Debug, Default)]
pub(crate) struct WorkerCrashes {
    crashes: HashMap<(u32, MessageIndex), u32>,
    /// Messages during whose isolated attempt a worker crashed: these may be dead-lettered.
    crashed_isolated: BTreeSet<(u32, MessageIndex)>,
    /// Processes with an isolated attempt, and its partition.
    isolated: BTreeMap<ProcessId, u32>,
}

impl WorkerCrashes {
    /// Checks that a message starts on a process without an isolated attempt at another partition.
    pub(crate) fn check_isolated(&self, report: &mut Report, now: Time, process: ProcessId, partition: u32) {
        if let Some(isolated) = self.isolated.get(&process).filter(|isolated| **isolated != partition) {
            let what =
                format!("{process} starts partition {partition} while partition {isolated} runs isolated");
            report.violate(NUMBER, now, what);
        }
    }

    /// Checks the number of crashes before a message starts.
    pub(crate) fn check_start(
        &self,
        report: &mut Report,
        now: Time,
        name: &str,
        message: (u32, MessageIndex),
    ) {
        let crashes = self.crashes.get(&message).copied().unwrap_or(0);
        if crashes > MAX_ATTEMPTS {
            report.violate(NUMBER, now, format!("{name} starts again after {crashes} crashes"));
        }
    }

    /// Counts a crash of a worker that processed a message.
    pub(crate) fn crashed(&mut self, message: (u32, MessageIndex)) {
        *self.crashes.entry(message).or_default() += 1;
    }

    /// Forgets the crashes of a message that is read again.
    pub(crate) fn reopened(&mut self, message: (u32, MessageIndex)) {
        self.crashes.remove(&message);
    }

    /// Forgets isolated attempts: every cursor is gone.
    pub(crate) fn cursors_lost(&mut self) {
        self.isolated.clear();
    }

    /// Notes whether the stored cursor of a partition isolates its message.
    pub(crate) fn cursor_stored(&mut self, partition: u32, is: &Cursor) {
        if !is.isolated {
            self.isolated.retain(|_, isolated| *isolated != partition);
        }
    }

    /// Checks that nothing runs on a process when a message is about to run isolated.
    pub(crate) fn check_isolation(
        &mut self,
        report: &mut Report,
        now: Time,
        process: ProcessId,
        partition: u32,
        running: &Running,
    ) {
        if let Some(beside) = running.partition_of(process) {
            let what = format!(
                "partition {partition} runs isolated on {process}, which also runs partition {beside}"
            );
            report.violate(NUMBER, now, what);
        }
        self.isolated.insert(process, partition);
    }

    /// Notes that a takeover gives a message up because its worker crashed during an isolated attempt.
    pub(crate) fn crashed_isolated(&mut self, message: (u32, MessageIndex)) {
        self.crashed_isolated.insert(message);
    }

    /// Checks that a dead-lettered message has done something.
    pub(crate) fn check_dead_letter(
        &self,
        report: &mut Report,
        now: Time,
        name: &str,
        message: (u32, MessageIndex),
        kind: MessageKind,
    ) {
        if kind == MessageKind::Good && !self.crashed_isolated.contains(&message) {
            report.violate(NUMBER, now, format!("{name} was dead-lettered and has done nothing"));
        }
    }
}
