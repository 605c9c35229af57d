//! When each lease runs out, by the clock of this node. Time is passed in.
//!
//! A term is counted from when this node applied the grant or the renewal, which is after its holder sent it: so the holder,
//! who counts from the sending, has stopped when anybody here calls the term over. Whoever comes to lead counts
//! all terms anew.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::leases::{Leases, Mark, Seat};

/// The ends of all terms.
#[derive(Debug, Default)]
pub struct Deadlines {
    terms: HashMap<String, (Mark, Instant)>,
    order: BTreeSet<(Instant, String)>,
}

impl Deadlines {
    /// Notes how an election is now. A term that goes on is not counted anew.
    pub fn note(&mut self, now: Instant, election: &str, seat: &Seat) {
        let known = self.terms.get(election).map(|(mark, _)| *mark);
        if known == seat.mark() {
            return;
        }
        self.forget(election);
        if let Some(mark) = seat.mark() {
            let end = now + Duration::from_millis(seat.ttl_ms);
            self.terms.insert(election.to_owned(), (mark, end));
            self.order.insert((end, election.to_owned()));
        }
    }

    /// Counts every term from now on.
    pub fn restart(&mut self, now: Instant, leases: &Leases) {
        *self = Self::default();
        for (election, seat) in leases.seats() {
            self.note(now, election, &seat);
        }
    }

    /// The terms that are over.
    pub fn over(&self, now: Instant) -> Vec<(String, Mark)> {
        let over = self.order.iter().take_while(|(end, _)| *end <= now);
        over.filter_map(|(_, election)| Some((election.clone(), self.terms.get(election)?.0))).collect()
    }

    /// How much is left of a term.
    pub fn left(&self, now: Instant, election: &str) -> Option<Duration> {
        self.terms.get(election).map(|(_, end)| end.saturating_duration_since(now))
    }

    /// How many terms run.
    pub fn len(&self) -> usize {
        self.terms.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    fn forget(&mut self, election: &str) {
        if let Some((_, end)) = self.terms.remove(election) {
            self.order.remove(&(end, election.to_owned()));
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs an instant to start from")]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn held(epoch: u64, renewals: u64) -> Seat {
        let ttl_ms = TTL.as_millis() as u64;
        Seat { epoch, renewals, leader: Some("a".to_owned()), ttl_ms, ..Seat::default() }
    }

    #[test]
    fn a_renewal_begins_a_term_and_nothing_else_does() {
        let (start, ms) = (Instant::now(), Duration::from_millis(1));
        let mut deadlines = Deadlines::default();
        deadlines.note(start, "e", &held(1, 0));
        deadlines.note(start + 9 * TTL / 10, "e", &Seat { ending: true, ..held(1, 0) });
        assert_eq!(deadlines.over(start + TTL - ms), []);
        assert_eq!(deadlines.left(start + TTL - ms, "e"), Some(ms));
        assert_eq!(deadlines.over(start + TTL), [("e".to_owned(), Mark { epoch: 1, renewals: 0 })]);
        deadlines.note(start + TTL, "e", &held(1, 1));
        assert_eq!(deadlines.over(start + 2 * TTL - ms), []);
        deadlines.note(start + TTL, "e", &Seat { epoch: 1, ..Seat::default() });
        assert_eq!(deadlines.over(start + 100 * TTL), [], "nobody leads");
        assert!(deadlines.is_empty());
    }

    #[test]
    fn whoever_comes_to_lead_gives_every_lease_a_full_term() {
        use crate::leases::{Command, Nonce};
        let mut leases = Leases::default();
        let (start, mut deadlines) = (Instant::now(), Deadlines::default());
        for election in ["x", "y"] {
            leases.apply(
                1,
                &Command::Campaign {
                    election: election.to_owned(),
                    candidate: "a".to_owned(),
                    ttl_ms: TTL.as_millis() as u64,
                    nonce: Nonce(1, 1),
                },
            );
            deadlines.note(start, election, &leases.seat(election).unwrap());
        }
        assert_eq!(deadlines.over(start + TTL).len(), 2);
        deadlines.restart(start + TTL, &leases);
        assert_eq!(deadlines.over(start + TTL + TTL / 2), []);
        assert_eq!(deadlines.over(start + 2 * TTL).len(), 2);
    }
}
