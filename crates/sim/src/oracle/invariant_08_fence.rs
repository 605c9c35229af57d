//! Invariant 8: no worker starts work or writes anything but heartbeats and its claim later than 4.5 s after the sending of
//! its last acknowledged heartbeat.

use std::collections::BTreeMap;
use std::time::Duration;

use phalanx_cluster_core::RequestId;
use phalanx_cluster_core::types::Time;

use crate::fleet::ProcessId;
use crate::oracle::report::Report;

const NUMBER: u32 = 8;

/// The limit, with an allowance for clocks that drift.
const FENCE: Duration = Duration::from_micros(4_502_000);

/// The heartbeats of every process.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    sent: BTreeMap<(ProcessId, RequestId), Time>,
    /// The time at which each process sent its newest acknowledged heartbeat.
    proven: Vec<Time>,
}

impl Fence {
    /// Notes that the next process starts.
    pub(crate) fn started(&mut self, now: Time) {
        self.proven.push(now);
    }

    /// Notes that the worker of a process starts: its fence is measured from here until its first heartbeat.
    pub(crate) fn worker_started(&mut self, now: Time, process: ProcessId) {
        let proven = &mut self.proven[process.index()];
        *proven = (*proven).max(now);
    }

    /// Notes that a process sends a heartbeat.
    pub(crate) fn heartbeat_sent(&mut self, now: Time, process: ProcessId, request_id: RequestId) {
        self.sent.insert((process, request_id), now);
    }

    /// Notes that a process receives the acknowledgment of a heartbeat.
    pub(crate) fn heartbeat_acknowledged(&mut self, process: ProcessId, request_id: RequestId) {
        if let Some(sent) = self.sent.remove(&(process, request_id)) {
            let proven = &mut self.proven[process.index()];
            *proven = (*proven).max(sent);
        }
    }

    /// Checks something that only an unfenced worker may do.
    pub(crate) fn check(&self, report: &mut Report, now: Time, process: ProcessId, what: &str) {
        let late = now.saturating_sub(self.proven[process.index()]);
        if late > FENCE {
            let what = format!("{process} {what} {late:?} after its last acknowledged heartbeat");
            report.violate(NUMBER, now, what);
        }
    }
}
