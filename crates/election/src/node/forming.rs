//! How a node comes to take part: with its memory, as one of those that begin together, or by joining the others.
//!
//! A node that has lost its memory must not vote: it could help somebody into the lead that lacks what it once confirmed.
//! So a node with an empty folder refuses everything that Raft asks until it is certain that nobody counts on its memory:
//! either all nodes of the set begin together, or a majority of the others has taken the old member out.

use std::collections::BTreeMap;
use std::time::Duration;

use openraft::{BasicNode, ChangeMembers};
use serde::{Deserialize, Serialize};

use super::Node;
use super::asking::{Answer, Ask, Miss, Passed};
use crate::security::explain;

/// What the folder says about how far it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Memory {
    /// Begins together with the others.
    Beginning,
    /// Nobody counts on what this node forgot, but it is no member yet.
    Admitted,
    /// A member, or one that was taken out later.
    Member,
}

pub(super) const MEMORY: &str = "memory";
const POLL: Duration = Duration::from_millis(200);
/// How long a node may take to say who it is.
const HELLO: Duration = Duration::from_secs(1);
/// How long a change of the members may take: a newcomer gets all there is first.
const CHANGE: Duration = Duration::from_secs(30);

impl Node {
    /// Gets this node to take part, however long that takes.
    pub(super) async fn form(self, memory: Option<Memory>) {
        let formed = match memory {
            Some(Memory::Member) => Ok(()),
            Some(Memory::Beginning) if self.has_begun() => self.note(Memory::Member).await,
            Some(Memory::Admitted) => self.join_as_member(self.known()).await,
            Some(Memory::Beginning) => self.begin().await,
            None if !self.config().join.is_empty() => self.come_back(self.config().join.clone()).await,
            None => self.begin().await,
        };
        if let Err(reason) = formed {
            self.fail(reason);
        }
    }

    /// Begins together with the others, or comes back to them if they have begun without us.
    async fn begin(&self) -> Result<(), String> {
        let others = self.others();
        loop {
            let mut absent = Vec::new();
            let mut unready = Vec::new();
            for (id, address) in &others {
                match self.peers().identify(address, HELLO).await {
                    Err(status) => absent.push(format!("{id} at {address} ({})", explain(&status))),
                    Ok(found) if found.node_id != *id => {
                        return Err(format!(
                            "{address} is node {}, but --peers says that node {id} is there; correct one of them",
                            found.node_id
                        ));
                    }
                    Ok(found) if found.formed => {
                        return match self.is_open() {
                            // It begins with this node in it.
                            true => self.note(Memory::Member).await,
                            false => self.come_back(others.values().cloned().collect()).await,
                        };
                    }
                    Ok(found) if !found.open => unready.push(*id),
                    Ok(_) => {}
                }
            }
            if absent.is_empty() {
                if !self.is_open() {
                    self.note(Memory::Beginning).await?;
                    self.open();
                }
                let is_first = others.keys().all(|id| self.id() < *id);
                if is_first && unready.is_empty() {
                    return self.initialize(&others).await;
                }
                self.wait_for("the first node to begin".to_owned());
            } else {
                self.wait_for(format!(
                    "the other nodes, all of which must be there the first time: {}",
                    absent.join(", ")
                ));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn initialize(&self, others: &BTreeMap<u64, String>) -> Result<(), String> {
        let own = (self.id(), BasicNode::new(&self.config().advertise));
        let others = others.iter().map(|(id, address)| (*id, BasicNode::new(address)));
        let members: BTreeMap<u64, BasicNode> = others.chain([own]).collect();
        match self.raft().initialize(members).await {
            Ok(()) => self.note(Memory::Member).await,
            Err(error) => Err(format!("the set of nodes cannot begin: {error}")),
        }
    }

    /// Comes back to a set that has begun: as somebody new, or as somebody who has forgotten everything.
    async fn come_back(&self, addresses: Vec<String>) -> Result<(), String> {
        self.wait_for(format!("being let in by {}", addresses.join(", ")));
        self.ask_around(&addresses, Ask::Admit(self.id())).await?;
        self.note(Memory::Admitted).await?;
        self.open();
        self.join_as_member(addresses).await
    }

    async fn join_as_member(&self, addresses: Vec<String>) -> Result<(), String> {
        self.wait_for("catching up with the others".to_owned());
        let ask = Ask::Promote(self.id(), self.config().advertise.clone());
        self.ask_around(&addresses, ask).await?;
        self.note(Memory::Member).await
    }

    /// Asks one after the other until one has done it.
    async fn ask_around(&self, addresses: &[String], ask: Ask) -> Result<(), String> {
        if addresses.is_empty() {
            return Err("this node is no member yet and knows nobody to ask: name one with --join".to_owned());
        }
        for address in addresses.iter().cycle() {
            let passed = Passed { ask: ask.clone(), pass_on: true, patience: CHANGE };
            match self.ask_at((0, address), &passed).await {
                Ok(Answer::Nonsense(reason)) => return Err(reason),
                Ok(_) => return Ok(()),
                Err(Miss { reason, .. }) => self.wait_for(reason),
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn note(&self, memory: Memory) -> Result<(), String> {
        self.disk().remember(MEMORY, &memory).await.map_err(|error| error.to_string())?;
        if memory == Memory::Member {
            self.settled();
        }
        Ok(())
    }

    /// As the leader: forgets a member that has lost its memory. Those that remain must be a majority without it.
    pub(super) async fn forget_member(&self, id: u64) -> Result<Answer, Miss> {
        let (voters, is_known) = {
            let membership = self.metrics().membership_config.membership().clone();
            (membership.voter_ids().collect::<Vec<_>>(), membership.get_node(&id).is_some())
        };
        if id == self.id() {
            let reason = format!(
                "node {id} leads and has its memory: no other can take its place; give the new node another id"
            );
            return Ok(Answer::Nonsense(reason));
        }
        if !is_known {
            return Ok(Answer::Done);
        }
        let change = match voters.contains(&id) {
            true => ChangeMembers::RemoveVoters([id].into()),
            false => ChangeMembers::RemoveNodes([id].into()),
        };
        self.change_members(change, false).await
    }

    /// As the leader: takes a node in once it has everything.
    pub(super) async fn take_in(&self, id: u64, address: String) -> Result<Answer, Miss> {
        let change = ChangeMembers::AddNodes([(id, BasicNode::new(address))].into());
        self.change_members(change, true).await?;
        // The newcomer gets the log, or a snapshot, and votes only when it has caught up.
        let waiting = self.raft().wait(Some(CHANGE));
        let caught_up = waiting.metrics(
            |metrics| {
                let matched =
                    metrics.replication.as_ref().and_then(|nodes| nodes.get(&id).copied().flatten());
                let matched = matched.map(|matched| matched.index);
                metrics.state != openraft::ServerState::Leader
                    || matched
                        .is_some_and(|matched| matched + 100 >= metrics.last_log_index.unwrap_or_default())
            },
            "a newcomer catches up",
        );
        caught_up.await.map_err(|error| Miss::not_done(format!("node {id} does not catch up: {error}")))?;
        self.change_members(ChangeMembers::AddVoterIds([id].into()), true).await
    }

    /// As the leader: takes a member out.
    pub(super) async fn remove_member(&self, id: u64) -> Result<Answer, Miss> {
        let (is_known, voters) = {
            let membership = self.metrics().membership_config.membership().clone();
            (membership.get_node(&id).is_some(), membership.voter_ids().collect::<Vec<_>>())
        };
        if !is_known {
            return Ok(Answer::Nonsense(format!("there is no node {id} in the set")));
        }
        if voters == [id] {
            return Ok(Answer::Nonsense(format!("node {id} is the last one that votes")));
        }
        let change = match voters.contains(&id) {
            true => ChangeMembers::RemoveVoters([id].into()),
            false => ChangeMembers::RemoveNodes([id].into()),
        };
        self.change_members(change, false).await
    }

    async fn change_members(
        &self,
        change: ChangeMembers<u64, BasicNode>,
        retain: bool,
    ) -> Result<Answer, Miss> {
        let _one_at_a_time = self.changing().lock().await;
        match tokio::time::timeout(CHANGE, self.raft().change_membership(change, retain)).await {
            Ok(Ok(_)) => Ok(Answer::Done),
            Ok(Err(error)) => Err(Miss::in_doubt(error.to_string())),
            Err(_) => Err(Miss::in_doubt("no majority agreed to the change of the members")),
        }
    }
}
