//! What a node is asked that only the leader can answer, and how the answer gets back.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Node;
use crate::leases::{Command, Refusal, Reply, Seat};
use crate::security::explain;

/// How long a confirmation by the majority may take before a read is given up.
const CONFIRMATION: Duration = Duration::from_secs(1);
/// How soon a node is asked again that could not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// Something that the leader must answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Changes leases.
    Propose(Command),
    /// How an election is.
    Read(String),
    /// How all elections are.
    List,
    /// Takes out the memory of a node that has lost its own, so that it may come back without one.
    Admit(u64),
    /// Takes a node in that is reached there.
    Promote(u64, String),
    /// Takes a node out.
    Remove(u64),
}

/// The leader's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Reply(Reply, Option<Duration>),
    Seat(Option<Seat>, Option<Duration>),
    Seats(Vec<(String, Seat, Option<Duration>)>),
    Done,
    /// It makes no sense, however often it is asked.
    Nonsense(String),
}

/// No answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Miss {
    /// Whether it may have been done all the same, or may be yet.
    pub(crate) in_doubt: bool,
    pub(crate) reason: String,
}

impl Miss {
    pub(crate) fn not_done(reason: impl Into<String>) -> Self {
        Self { in_doubt: false, reason: reason.into() }
    }

    pub(crate) fn in_doubt(reason: impl Into<String>) -> Self {
        Self { in_doubt: true, reason: reason.into() }
    }
}

/// A question on its way to another node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Passed {
    pub(crate) ask: Ask,
    /// Whoever gets it may pass it on: only of nodes that do not know the others yet.
    pub(crate) pass_on: bool,
    pub(crate) patience: Duration,
}

impl Node {
    /// Gets the leader's answer, from here or from another node, within `patience`.
    ///
    /// What was in doubt is asked again: every command may be repeated. The token of a repeated attempt is the same, a
    /// renewal twice is a renewal, and what is to end has ended.
    pub(crate) async fn ask(&self, ask: Ask, patience: Duration) -> Result<Answer, Miss> {
        let until = Instant::now() + patience;
        let mut doubt = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let tried = match self.leader() {
                Ok(leader) if leader == self.id() => {
                    tokio::time::timeout(left, self.answer(ask.clone())).await.unwrap_or_else(|_| {
                        Err(Miss::in_doubt(format!(
                            "no majority answered within {} ms",
                            patience.as_millis()
                        )))
                    })
                }
                Ok(leader) => self.pass(leader, &ask, left).await,
                Err(reason) => Err(Miss::not_done(reason)),
            };
            let miss = match tried {
                Ok(answer) => return Ok(if doubt.is_some() { settle(&ask, answer) } else { answer }),
                Err(miss) => miss,
            };
            if miss.in_doubt {
                doubt = Some(miss.reason.clone());
            }
            if Instant::now() + PAUSE >= until {
                return Err(doubt.map_or_else(|| Miss::not_done(miss.reason), Miss::in_doubt));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Answers, if this node leads.
    pub(crate) async fn answer(&self, ask: Ask) -> Result<Answer, Miss> {
        self.heard_by_a_majority().map_err(Miss::not_done)?;
        match ask {
            Ask::Propose(command) => {
                let election = command.election().to_owned();
                let reply = self.proposer().propose(command).await?;
                let left = match &reply {
                    // The term has just begun.
                    Reply::Granted(seat, _) | Reply::Kept(seat) => Some(Duration::from_millis(seat.ttl_ms)),
                    _ => self.applied().seat(&election).1,
                };
                Ok(Answer::Reply(reply, left))
            }
            Ask::Read(election) => {
                self.confirm().await?;
                let (seat, left) = self.applied().seat(&election);
                Ok(Answer::Seat(seat, left))
            }
            Ask::List => {
                self.confirm().await?;
                Ok(Answer::Seats(self.applied().seats()))
            }
            Ask::Admit(id) => self.forget_member(id).await,
            Ask::Promote(id, address) => self.take_in(id, address).await,
            Ask::Remove(id) => self.remove_member(id).await,
        }
    }

    /// Makes sure that this node still leads and has applied everything that was acknowledged before.
    async fn confirm(&self) -> Result<(), Miss> {
        match tokio::time::timeout(CONFIRMATION, self.raft().ensure_linearizable()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Miss::not_done(error.to_string())),
            Err(_) => Err(Miss::not_done("no majority confirmed that this node leads")),
        }
    }

    async fn pass(&self, leader: u64, ask: &Ask, patience: Duration) -> Result<Answer, Miss> {
        let address = self.address_of(leader);
        let Some(address) = address else {
            return Err(Miss::not_done(format!("node {leader} leads, but its address is not known here")));
        };
        let passed = Passed { ask: ask.clone(), pass_on: false, patience };
        self.ask_at((leader, &address), &passed).await
    }

    /// Asks the node at an address; 0 is whoever is there.
    pub(crate) async fn ask_at(&self, to: (u64, &str), passed: &Passed) -> Result<Answer, Miss> {
        let answer: Result<Result<Answer, Miss>, _> = self.peers().ask(to, passed, passed.patience).await;
        answer.unwrap_or_else(|status| {
            let reason = format!("{} does not answer: {}", to.1, explain(&status));
            // Refused before anything was read, or nobody was there to be asked.
            let is_certain = matches!(
                status.code(),
                tonic::Code::InvalidArgument | tonic::Code::Unauthenticated | tonic::Code::Unimplemented
            );
            Err(if is_certain { Miss::not_done(reason) } else { Miss::in_doubt(reason) })
        })
    }
}

/// The answer to a question that may have been answered before, without our hearing it.
fn settle(ask: &Ask, answer: Answer) -> Answer {
    match (ask, answer) {
        (
            Ask::Propose(Command::Release { .. } | Command::Resign { .. }),
            Answer::Reply(Reply::Refused(Refusal::NotLeader(seat)), left),
        ) => Answer::Reply(Reply::Ended(seat), left),
        (_, answer) => answer,
    }
}
