//! Commands on their way into the log: those that wait while one write is under way share the next one.

use std::time::Duration;

use openraft::error::{ClientWriteError, RaftError};
use tokio::sync::{mpsc, oneshot};

use super::asking::Miss;
use crate::leases::{Command, Reply};
use crate::raft::{Batch, Raft};

/// As many commands as one write takes.
const BATCH_MAX: usize = 512;
/// How many commands may wait; whoever comes then waits to be let in.
const QUEUE: usize = 4096;
/// How long a write may take before those behind it get their chance.
const PATIENCE: Duration = Duration::from_secs(2);

type Waiting = (Command, oneshot::Sender<Result<Reply, Miss>>);

/// Where commands are handed in.
#[derive(Clone)]
pub(crate) struct Proposer(mpsc::Sender<Waiting>);

impl Proposer {
    /// Starts with a task of its own, which ends when the last clone is dropped.
    pub(crate) fn start(raft: Raft) -> Self {
        let (sender, inbox) = mpsc::channel(QUEUE);
        tokio::spawn(write_all(raft, inbox));
        Self(sender)
    }

    /// Hands a command in and waits for what comes of it.
    pub(crate) async fn propose(&self, command: Command) -> Result<Reply, Miss> {
        let (told, reply) = oneshot::channel();
        let gone = || Miss::in_doubt("the node is stopping");
        self.0.send((command, told)).await.map_err(|_| gone())?;
        reply.await.unwrap_or_else(|_| Err(gone()))
    }
}

async fn write_all(raft: Raft, mut inbox: mpsc::Receiver<Waiting>) {
    let mut waiting = Vec::with_capacity(BATCH_MAX);
    while inbox.recv_many(&mut waiting, BATCH_MAX).await > 0 {
        let (commands, tellers): (Vec<_>, Vec<_>) = waiting.drain(..).unzip();
        match tokio::time::timeout(PATIENCE, raft.client_write(Batch(commands))).await {
            Ok(Ok(written)) => {
                for (teller, reply) in tellers.into_iter().zip(written.data.0) {
                    let _ = teller.send(Ok(reply));
                }
            }
            Ok(Err(error)) => tell_all(tellers, &miss(&error)),
            Err(_) => {
                tell_all(tellers, &Miss::in_doubt(format!("no majority within {} s", PATIENCE.as_secs())));
            }
        }
    }
}

fn tell_all(tellers: Vec<oneshot::Sender<Result<Reply, Miss>>>, miss: &Miss) {
    for teller in tellers {
        let _ = teller.send(Err(miss.clone()));
    }
}

fn miss(error: &RaftError<u64, ClientWriteError<u64, openraft::BasicNode>>) -> Miss {
    // Also where Raft says that another node leads: it says the same when it had to take the entry out of its log again,
    // and then another node may still bring it through.
    Miss::in_doubt(error.to_string())
}
