//! What a node does by itself: ends terms that are over, and makes room for another leader when it is heard no more.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use openraft::ServerState;

use super::Node;
use crate::leases::Command;

/// How often terms are looked at: so much later than its end a lease may be taken by another.
const LOOK: Duration = Duration::from_millis(20);
/// A leader that no majority answered for so long does not serve.
const UNHEARD: Duration = Duration::from_millis(1000);
/// How long it is silent then: longer than the others need to find another leader.
const SILENCE: Duration = Duration::from_millis(2000);

impl Node {
    /// Ends terms that are over, as long as this node leads. Runs for ever.
    pub(super) async fn end_terms(self) {
        let mut counted_in = None;
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            let leading = {
                let metrics = self.metrics();
                (metrics.state == ServerState::Leader).then_some(metrics.current_term)
            };
            if leading != counted_in {
                counted_in = leading;
                self.applied().restart_terms();
            }
            let Some(raft_term) = leading else { continue };
            let ends = self.applied().over().into_iter().map(|(election, mark)| {
                self.proposer().propose(Command::Expire { election, mark, raft_term })
            });
            // What failed is found again at the next look.
            drop(join_all(ends).await);
        }
    }

    /// Falls silent when no majority answers this node although it leads: its messages may arrive all the same, and would
    /// keep the others from finding a leader that can hear them. Runs for ever.
    pub(super) async fn make_room(self) {
        let mut look = tokio::time::interval(Duration::from_millis(100));
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut was_told = false;
        loop {
            look.tick().await;
            let is_heard = self.heard_by_a_majority().is_ok();
            if is_heard {
                was_told = false;
                continue;
            }
            if !was_told {
                was_told = true;
                self.say(
                    "warning: this node leads but no majority answers it: it falls silent so that others can lead",
                );
            }
            self.peers().fall_silent(Instant::now() + SILENCE);
            tokio::time::sleep(SILENCE).await;
            // The others get a full chance to answer before it is looked at again.
            tokio::time::sleep(UNHEARD).await;
        }
    }

    /// Whether a majority has answered this node lately; always, if it does not lead.
    pub(crate) fn heard_by_a_majority(&self) -> Result<(), String> {
        let metrics = self.metrics();
        let silence = metrics.millis_since_quorum_ack.map(Duration::from_millis);
        match silence {
            Some(silence) if metrics.state == ServerState::Leader && silence > UNHEARD => {
                Err(format!("no majority of the nodes has answered this one for {} ms", silence.as_millis()))
            }
            _ => Ok(()),
        }
    }
}
