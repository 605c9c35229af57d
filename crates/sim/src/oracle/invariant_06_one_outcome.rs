//! Invariant 6: no message is both committed and dead-lettered. Each message has at most one dead letter.

use phalanx_cluster_core::types::Time;

use crate::HashMap;
use crate::oracle::messages::{MessageIndex, MessageStatus};
use crate::oracle::report::Report;

const NUMBER: u32 = 6;

/// The number of dead letters of each message.
#[derive(Debug, Default)]
pub(crate) struct OneOutcome {
    dead_letters: HashMap<(u32, MessageIndex), u32>,
}

impl OneOutcome {
    /// Notes a dead letter.
    pub(crate) fn dead_lettered(
        &mut self,
        report: &mut Report,
        now: Time,
        name: &str,
        message: (u32, MessageIndex),
    ) {
        let letters = self.dead_letters.entry(message).or_default();
        *letters += 1;
        if *letters > 1 {
            report.violate(NUMBER, now, format!("{name} has {letters} dead letters"));
        }
    }

    /// Forgets the dead letter of a message that is read again.
    pub(crate) fn reopened(&mut self, message: (u32, MessageIndex)) {
        self.dead_letters.remove(&message);
    }

    /// Checks a message that a cursor passes as dead. Returns whether it has a dead letter.
    pub(crate) fn check_passed(
        &self,
        report: &mut Report,
        now: Time,
        name: &str,
        message: (u32, MessageIndex),
        before: MessageStatus,
    ) -> bool {
        if before == MessageStatus::Committed {
            report.violate(NUMBER, now, format!("{name} is committed and dead"));
        }
        self.dead_letters.contains_key(&message)
    }

    /// Checks a message that is committed.
    pub(crate) fn check_committed(
        &self,
        report: &mut Report,
        now: Time,
        name: &str,
        message: (u32, MessageIndex),
        before: MessageStatus,
    ) {
        if self.dead_letters.contains_key(&message) || before == MessageStatus::Dead {
            report.violate(NUMBER, now, format!("{name} is committed, and has a dead letter"));
        }
    }
}
