//! Invariant 11: a process that was never paused and never cut off loses its id only by its own release.

use phalanx_cluster_core::types::{Time, WorkerId};

use crate::fleet::ProcessId;
use crate::oracle::processes::Processes;
use crate::oracle::report::Report;

const NUMBER: u32 = 11;

/// The id that each process held when it was last checked.
#[derive(Debug, Default)]
pub(crate) struct KeptId {
    held: Vec<Option<WorkerId>>,
}

impl KeptId {
    /// Notes that the next process starts.
    pub(crate) fn started(&mut self) {
        self.held.push(None);
    }

    /// Checks the id of a process. `was_taken` tells whether it lost its last id without a release.
    pub(crate) fn check(
        &mut self,
        report: &mut Report,
        now: Time,
        process: ProcessId,
        (holds, was_taken): (Option<WorkerId>, impl FnOnce() -> bool),
        processes: &Processes,
    ) {
        let held = &mut self.held[process.index()];
        if *held == holds {
            return;
        }
        if let Some(lost) = held.filter(|_| !processes.is_disturbed(process) && was_taken()) {
            let what = format!("{process} lost worker id {} although it had no fault", lost.0);
            report.violate(NUMBER, now, what);
        }
        *held = holds;
    }
}
