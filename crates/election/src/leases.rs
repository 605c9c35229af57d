//! The leases themselves: commands in, replies and a new state out. No clock: that a term is over is a command too.
//!
//! Every node applies the same commands in the same order and so has the same leases. A lease ends by
//! [`Command::Release`] and its like, or by [`Command::Expire`]; as long as it has not ended nobody else gets it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// As many elections as there may ever be: each is remembered for ever, so that its epochs grow.
pub const ELECTIONS_MAX: usize = 100_000;

/// What only the holder of a lease knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Nonce(pub u64, pub u64);

/// Everything that changes leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Takes a vacant lease, or the lease of an earlier life of the same name.
    Acquire {
        /// Of what.
        election: String,
        /// Who wants to lead.
        candidate: String,
        /// How long a term lasts.
        ttl_ms: u64,
        /// The epoch is at least this.
        epoch_min: u64,
        /// Tells attempts of one name apart; the same again means the same lease.
        attempt: u64,
        /// Only if nothing has changed since this revision.
        if_revision: Option<u64>,
        /// The secret of the lease, if it is granted.
        nonce: Nonce,
    },
    /// Keeps a lease for another term.
    Renew {
        /// Of what.
        election: String,
        /// The secret of the lease.
        nonce: Nonce,
    },
    /// Gives a lease back.
    Release {
        /// Of what.
        election: String,
        /// The secret of the lease.
        nonce: Nonce,
    },
    /// Takes a vacant lease, or keeps one's own: names hold, not secrets.
    Campaign {
        /// Of what.
        election: String,
        /// Who wants to lead.
        candidate: String,
        /// How long a term lasts.
        ttl_ms: u64,
        /// The secret of the lease, if it is granted.
        nonce: Nonce,
    },
    /// Keeps the lease of a name for another term.
    Extend {
        /// Of what.
        election: String,
        /// Who leads.
        leader: String,
        /// How long the term lasts.
        ttl_ms: u64,
    },
    /// Gives back the lease of a name.
    Resign {
        /// Of what.
        election: String,
        /// Who leads.
        leader: String,
    },
    /// Gives the lease to another name at once, whoever has it.
    Handover {
        /// Of what.
        election: String,
        /// Who leads from now on.
        leader: String,
        /// How long its term lasts.
        ttl_ms: u64,
        /// The secret of the new lease.
        nonce: Nonce,
    },
    /// Lets a lease run out: it is not renewed any more.
    End {
        /// Of what.
        election: String,
        /// Only this one.
        epoch: u64,
    },
    /// A term is over, by the clock of the node that led the replication in `raft_term`. Void for a lease that was renewed
    /// since, and under another leader, who counts anew.
    Expire {
        /// Of what.
        election: String,
        /// The lease that was seen.
        mark: Mark,
        /// Who counted.
        raft_term: u64,
    },
}

/// Names one term of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Of which lease.
    pub epoch: u64,
    /// After how many renewals.
    pub renewals: u64,
}

/// What everybody may know of an election.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// Of the present lease, or the last one.
    pub epoch: u64,
    /// Of the last change.
    pub revision: u64,
    /// Who leads.
    pub leader: Option<String>,
    /// Of the present lease.
    pub renewals: u64,
    /// How long a term of it lasts.
    pub ttl_ms: u64,
    /// It is not renewed any more.
    pub ending: bool,
}

impl Seat {
    /// The present term; none if nobody leads.
    pub fn mark(&self) -> Option<Mark> {
        self.leader.is_some().then_some(Mark { epoch: self.epoch, renewals: self.renewals })
    }
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The lease is the asker's, with this secret.
    Granted(Seat, Nonce),
    /// Somebody else leads, or something has changed since it was looked at.
    Taken(Seat),
    /// The lease was kept.
    Kept(Seat),
    /// The lease ended, or will with its term.
    Ended(Seat),
    /// Nothing changed.
    Refused(Refusal),
}

/// Why nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// There never was such an election.
    Unknown,
    /// The asker does not lead; this is how it is instead.
    NotLeader(Seat),
    /// The asker was asked to resign, and may lead until its term is over.
    Ending(Seat),
    /// No room for one more election.
    Full,
}

/// All leases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leases {
    revision: u64,
    elections: BTreeMap<String, Record>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    epoch: u64,
    revision: u64,
    holding: Option<Holding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holding {
    leader: String,
    nonce: Nonce,
    attempt: u64,
    ttl_ms: u64,
    renewals: u64,
    ending: bool,
}

impl Leases {
    /// Applies a command. `raft_term` is the term under which it was ordered.
    pub fn apply(&mut self, raft_term: u64, command: &Command) -> Reply {
        match command {
            Command::Acquire { election, candidate, ttl_ms, epoch_min, attempt, if_revision, nonce } => {
                let wish = Wish { leader: candidate, ttl_ms: *ttl_ms, attempt: *attempt, nonce: *nonce };
                self.acquire(election, &wish, *epoch_min, *if_revision)
            }
            Command::Campaign { election, candidate, ttl_ms, nonce } => {
                let wish = Wish { leader: candidate, ttl_ms: *ttl_ms, attempt: 0, nonce: *nonce };
                self.campaign(election, &wish)
            }
            Command::Renew { election, nonce } => self.keep(election, None, |held| held.nonce == *nonce),
            Command::Extend { election, leader, ttl_ms } => {
                self.keep(election, Some(*ttl_ms), |held| held.leader == *leader)
            }
            Command::Release { election, nonce } => self.vacate(election, |held| held.nonce == *nonce),
            Command::Resign { election, leader } => self.vacate(election, |held| held.leader == *leader),
            Command::Handover { election, leader, ttl_ms, nonce } => {
                let wish = Wish { leader, ttl_ms: *ttl_ms, attempt: 0, nonce: *nonce };
                self.grant(election, &wish, 0)
            }
            Command::End { election, epoch } => self.end(election, *epoch),
            Command::Expire { election, mark, raft_term: counted } => {
                let seat = self.seat(election).unwrap_or_default();
                if *counted != raft_term || seat.mark() != Some(*mark) {
                    return Reply::Refused(Refusal::NotLeader(seat));
                }
                self.vacate(election, |_| true)
            }
        }
    }

    /// What there is to know of an election; none if there never was one of that name.
    pub fn seat(&self, election: &str) -> Option<Seat> {
        self.elections.get(election).map(Record::seat)
    }

    /// Every election, in the order of names.
    pub fn seats(&self) -> impl Iterator<Item = (&str, Seat)> {
        self.elections.iter().map(|(name, record)| (name.as_str(), record.seat()))
    }

    /// How many elections there ever were.
    pub fn len(&self) -> usize {
        self.elections.len()
    }

    /// Whether there never was one.
    pub fn is_empty(&self) -> bool {
        self.elections.is_empty()
    }

    /// The last change of all.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn acquire(
        &mut self,
        election: &str,
        wish: &Wish<'_>,
        epoch_min: u64,
        if_revision: Option<u64>,
    ) -> Reply {
        let seat = self.seat(election).unwrap_or_default();
        let held = self.elections.get(election).and_then(|record| record.holding.as_ref());
        if let Some(held) = held {
            if held.leader != wish.leader || held.ending {
                return Reply::Taken(seat);
            }
            // The same request again, whose answer was lost. Its sender counts its term from this one, so a term begins.
            if wish.attempt != 0 && held.attempt == wish.attempt {
                let nonce = held.nonce;
                self.change(election, |record| {
                    if let Some(held) = &mut record.holding {
                        held.ttl_ms = wish.ttl_ms;
                        held.renewals += 1;
                    }
                });
                return Reply::Granted(self.seat(election).unwrap_or_default(), nonce);
            }
        }
        // A request that is late: whatever it was to be part of is over.
        if if_revision.is_some_and(|seen| seen != seat.revision) {
            return Reply::Taken(seat);
        }
        self.grant(election, wish, epoch_min)
    }

    fn campaign(&mut self, election: &str, wish: &Wish<'_>) -> Reply {
        let seat = self.seat(election).unwrap_or_default();
        match seat.leader.as_deref() {
            None => self.grant(election, wish, 0),
            Some(leader) if leader == wish.leader && !seat.ending => {
                self.keep(election, Some(wish.ttl_ms), |_| true)
            }
            Some(_) => Reply::Taken(seat),
        }
    }

    fn grant(&mut self, election: &str, wish: &Wish<'_>, epoch_min: u64) -> Reply {
        if self.elections.len() >= ELECTIONS_MAX && !self.elections.contains_key(election) {
            return Reply::Refused(Refusal::Full);
        }
        self.change(election, |record| {
            record.epoch = (record.epoch + 1).max(epoch_min);
            record.holding = Some(Holding {
                leader: wish.leader.to_owned(),
                nonce: wish.nonce,
                attempt: wish.attempt,
                ttl_ms: wish.ttl_ms,
                renewals: 0,
                ending: false,
            });
        });
        Reply::Granted(self.seat(election).unwrap_or_default(), wish.nonce)
    }

    fn keep(&mut self, election: &str, ttl_ms: Option<u64>, is_theirs: impl Fn(&Holding) -> bool) -> Reply {
        match self.theirs(election, is_theirs) {
            Err(refusal) => Reply::Refused(refusal),
            Ok(seat) if seat.ending => Reply::Refused(Refusal::Ending(seat)),
            Ok(_) => {
                self.change(election, |record| {
                    if let Some(held) = &mut record.holding {
                        held.renewals += 1;
                        held.ttl_ms = ttl_ms.unwrap_or(held.ttl_ms);
                    }
                });
                Reply::Kept(self.seat(election).unwrap_or_default())
            }
        }
    }

    fn vacate(&mut self, election: &str, is_theirs: impl Fn(&Holding) -> bool) -> Reply {
        match self.theirs(election, is_theirs) {
            Err(refusal) => Reply::Refused(refusal),
            Ok(_) => {
                self.change(election, |record| record.holding = None);
                Reply::Ended(self.seat(election).unwrap_or_default())
            }
        }
    }

    fn end(&mut self, election: &str, epoch: u64) -> Reply {
        match self.theirs(election, |_| true) {
            Err(refusal) => Reply::Refused(refusal),
            Ok(seat) if seat.epoch != epoch => Reply::Refused(Refusal::NotLeader(seat)),
            Ok(_) => {
                self.change(election, |record| {
                    if let Some(held) = &mut record.holding {
                        held.ending = true;
                    }
                });
                Reply::Ended(self.seat(election).unwrap_or_default())
            }
        }
    }

    fn theirs(&self, election: &str, is_theirs: impl Fn(&Holding) -> bool) -> Result<Seat, Refusal> {
        let record = self.elections.get(election).ok_or(Refusal::Unknown)?;
        match &record.holding {
            Some(held) if is_theirs(held) => Ok(record.seat()),
            _ => Err(Refusal::NotLeader(record.seat())),
        }
    }

    fn change(&mut self, election: &str, change: impl FnOnce(&mut Record)) {
        self.revision += 1;
        let record = self.elections.entry(election.to_owned()).or_default();
        change(record);
        record.revision = self.revision;
    }
}

struct Wish<'a> {
    leader: &'a str,
    ttl_ms: u64,
    attempt: u64,
    nonce: Nonce,
}

impl Record {
    fn seat(&self) -> Seat {
        let Self { epoch, revision, .. } = *self;
        match &self.holding {
            None => Seat { epoch, revision, ..Seat::default() },
            Some(held) => Seat {
                epoch,
                revision,
                leader: Some(held.leader.clone()),
                renewals: held.renewals,
                ttl_ms: held.ttl_ms,
                ending: held.ending,
            },
        }
    }
}

impl Command {
    /// Which election it is about.
    pub fn election(&self) -> &str {
        match self {
            Self::Acquire { election, .. }
            | Self::Renew { election, .. }
            | Self::Release { election, .. }
            | Self::Campaign { election, .. }
            | Self::Extend { election, .. }
            | Self::Resign { election, .. }
            | Self::Handover { election, .. }
            | Self::End { election, .. }
            | Self::Expire { election, .. } => election,
        }
    }
}

#[cfg(test)]
#[path = "leases_test.rs"]
mod tests;
