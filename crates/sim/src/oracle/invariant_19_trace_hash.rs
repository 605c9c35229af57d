//! Invariant 19: the same seed gives the same trace hash. The hash is computed here; `tests/sim_chaos.rs` compares it.

use phalanx_cluster_core::types::Time;

/// A hash over everything that happened, and a line for each event if lines are kept.
#[derive(Debug)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    lines: Option<Vec<String>>,
}

impl Default for Trace {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, events: 0, lines: None }
    }
}

impl Trace {
    /// Adds an event to the hash, by FNV-1a over whole words.
    pub(crate) fn event(&mut self, now: Time, subject: u32, shape: u64) {
        self.events += 1;
        for word in [now.since_origin().as_micros() as u64, u64::from(subject), shape] {
            self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Returns the hash over all events.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the number of events.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Keeps a line for each event from now on.
    pub(crate) fn keep_lines(&mut self) {
        self.lines.get_or_insert_default();
    }

    /// Removes and returns the lines so far.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Adds a line, if lines are kept.
    pub(crate) fn line(&mut self, now: Time, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>12.6} {}", now.since_origin().as_secs_f64(), what()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_depends_on_time_subject_and_shape() {
        let hash = |at, subject, shape| {
            let mut trace = Trace::default();
            trace.event(Time::from_millis(at), subject, shape);
            trace.hash()
        };
        let one = hash(1, 2, 3);
        assert_eq!(one, hash(1, 2, 3));
        assert!([hash(2, 2, 3), hash(1, 3, 3), hash(1, 2, 4)].iter().all(|other| *other != one));
    }
}
