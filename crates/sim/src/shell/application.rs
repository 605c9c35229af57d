//! The application of a simulated worker: a handler and hooks that pass everything to the port.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use phalanx_cluster::{Decoded, Delivery, Failure, Handler, HookError, Hooks, Problem, Unavailable};
use phalanx_cluster_core::{Message, Position, ProcessRequest, RecoveryPoint};

use crate::broker::{MessageKind, decode, message_id};
use crate::shell::port::{Call, Port, StoreReply};

/// The handler and the hooks of one worker.
#[derive(Clone, Debug)]
pub(crate) struct Application {
    port: Arc<Port>,
}

impl Application {
    /// Creates an application that uses a port.
    pub(crate) fn new(port: Arc<Port>) -> Self {
        Self { port }
    }

    async fn process(&self, delivery: &Delivery) -> Result<(), Failure> {
        let (partition, work) = (delivery.partition.clone(), Box::new(request(delivery)));
        let start = self.port.call(|reply| Call::Start(partition.clone(), work, reply));
        let duration = match delivery.exclude_from_timeout(start).await {
            StoreReply::Started(duration) => duration,
            StoreReply::MissingState => return Err(Failure::Retry("no handler state".to_owned())),
            _ => return Err(Failure::Unavailable),
        };
        match decode(&delivery.payload).1 {
            MessageKind::CrashesWorker => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                self.port.post(Call::Crash);
                std::future::pending().await
            }
            MessageKind::Poison => Err(Failure::Poison("it is broken".to_owned())),
            MessageKind::Flaky(times) if delivery.attempt <= u32::from(times) => {
                Err(Failure::Retry("it fails".to_owned()))
            }
            MessageKind::NeverEnds => std::future::pending().await,
            MessageKind::Good | MessageKind::Flaky(_) => {
                tokio::time::sleep(duration).await;
                let write = self.port.call(|reply| Call::WriteRows(partition, reply));
                match delivery.exclude_from_timeout(write).await {
                    StoreReply::Stored => Ok(()),
                    _ => Err(Failure::Unavailable),
                }
            }
        }
    }
}

/// Tells the oracle when a message is not processed any more, also if its future is dropped.
struct Running<'a> {
    port: &'a Port,
    partition: Arc<str>,
    is_complete: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.port.post(Call::End(self.partition.clone(), self.is_complete));
    }
}

#[async_trait]
impl Handler for Application {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        let partition = delivery.partition.clone();
        let mut running = Running { port: &self.port, partition, is_complete: false };
        let result = self.process(&delivery).await;
        running.is_complete = true;
        result
    }

    fn decode(&self, _: &str, payload: &[u8]) -> Decoded {
        Decoded { message_id: Some(message_id(decode(payload).0).to_string()), value: None }
    }

    async fn recovery_point(&self, partition: &str) -> Result<Option<RecoveryPoint>, Unavailable> {
        match self.port.call(|reply| Call::RecoveryPoint(partition.into(), reply)).await {
            StoreReply::RecoveryPoint(point) => Ok(point),
            _ => Err(Unavailable),
        }
    }

    async fn record_dead_letter(&self, delivery: Delivery, _reason: &str) -> Result<(), Unavailable> {
        let (partition, work) = (delivery.partition.clone(), Box::new(request(&delivery)));
        match self.port.call(|reply| Call::RecordDeadLetter(partition, work, reply)).await {
            StoreReply::Stored => Ok(()),
            _ => Err(Unavailable),
        }
    }

    fn committed(&self, partition: &str, _position: Position) {
        self.port.post(Call::Committed(partition.into()));
    }
}

#[async_trait]
impl Hooks for Application {
    fn may_block(&self) -> bool {
        false
    }

    async fn on_error(&self, problem: Problem) -> Result<(), HookError> {
        match problem {
            Problem::Expired { partition, after, before } => {
                self.port.post(Call::Expired(partition, after, before));
            }
            Problem::IdentityLost { .. } => self.port.post(Call::IdentityLost),
            Problem::InvariantViolated(violation) => self.port.post(Call::InvariantViolated(violation)),
            _ => {}
        }
        Ok(())
    }
}

/// Returns a delivery in the terms of the core, which the model of the handler uses.
fn request(delivery: &Delivery) -> ProcessRequest {
    ProcessRequest {
        message: Message {
            sequence: delivery.position.sequence,
            message_id: delivery.message_id.clone(),
            stored_at: delivery.stored_at,
            payload: Arc::from(&*delivery.payload),
        },
        position: delivery.position,
        committed: delivery.committed,
        log_id: delivery.log_id,
        fencing_token: delivery.fencing_token,
        write_timestamp: delivery.write_timestamp,
        attempt: delivery.attempt,
        ignore_cache: delivery.ignore_cache,
    }
}
