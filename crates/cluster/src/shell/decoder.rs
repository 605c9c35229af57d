//! Decoding messages once. The latest decoded message of each partition is kept: the next read of the log returns it again,
//! and its processing needs its decoded form.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::handler::{Decoded, Handler, payload_hash};
use crate::backend;
use crate::core::types::Sequence;
use crate::core::{LastMessage, Message};

/// A decoded message.
#[derive(Clone)]
struct DecodedMessage {
    payload: Arc<[u8]>,
    message_id: Arc<str>,
    value: Option<Arc<dyn Any + Send + Sync>>,
}

/// Decodes messages with the handler of the application.
pub(super) struct MessageDecoder {
    handler: Arc<dyn Handler>,
    /// The latest message of each partition that this worker has read: at most one for each partition.
    latest: Mutex<HashMap<Arc<str>, DecodedMessage>>,
}

impl MessageDecoder {
    pub(super) fn new(handler: Arc<dyn Handler>) -> Self {
        Self { handler, latest: Mutex::default() }
    }

    pub(super) fn handler(&self) -> Arc<dyn Handler> {
        self.handler.clone()
    }

    /// Returns messages that were read, in order, with their ids. Keeps the last one.
    pub(super) fn messages(&self, partition: &Arc<str>, read: Vec<backend::Message>) -> Vec<Message> {
        let decoded: Vec<DecodedMessage> =
            read.iter().map(|message| self.decode(partition, &message.payload)).collect();
        if let Some(last) = decoded.last() {
            self.lock().insert(partition.clone(), last.clone());
        }
        let message = |(message, decoded): (backend::Message, DecodedMessage)| Message {
            sequence: Sequence(message.sequence),
            message_id: decoded.message_id,
            stored_at: message.stored_at,
            payload: decoded.payload,
        };
        read.into_iter().zip(decoded).map(message).collect()
    }

    /// Returns the id of the last message of a partition.
    pub(super) fn last_message(&self, partition: &Arc<str>, last: &backend::Message) -> LastMessage {
        let message_id = self.decode(partition, &last.payload).message_id;
        LastMessage { sequence: Sequence(last.sequence), message_id }
    }

    /// Returns the decoded form of a message that was read, if it is still known.
    pub(super) fn value(
        &self,
        partition: &Arc<str>,
        payload: &Arc<[u8]>,
    ) -> Option<Arc<dyn Any + Send + Sync>> {
        let latest = self.lock();
        latest.get(partition).filter(|known| Arc::ptr_eq(&known.payload, payload))?.value.clone()
    }

    /// Forgets the message of a partition that this worker no longer owns.
    pub(super) fn forget(&self, partition: &Arc<str>) {
        self.lock().remove(partition);
    }

    fn decode(&self, partition: &Arc<str>, payload: &[u8]) -> DecodedMessage {
        if let Some(known) = self.lock().get(partition).filter(|known| *known.payload == *payload) {
            return known.clone();
        }
        // A handler that panics here gives neither an id nor a decoded form.
        let decode = AssertUnwindSafe(|| self.handler.decode(partition, payload));
        let Decoded { message_id, value } = catch_unwind(decode).unwrap_or_default();
        let message_id = message_id.unwrap_or_else(|| payload_hash(payload)).into();
        DecodedMessage { payload: payload.into(), message_id, value }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, DecodedMessage>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;

    use super::*;
    use crate::{Delivery, Failure};

    #[derive(Default)]
    struct Counting(Arc<AtomicUsize>);

    #[async_trait]
    impl Handler for Counting {
        async fn handle(&self, _: Delivery) -> Result<(), Failure> {
            Ok(())
        }

        fn decode(&self, _: &str, payload: &[u8]) -> Decoded {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert_ne!(payload, b"broken", "a payload that this handler cannot decode");
            let text = String::from_utf8_lossy(payload).into_owned();
            Decoded { message_id: Some(text.clone()), value: Some(Arc::new(text)) }
        }
    }

    fn message(sequence: u64, payload: &'static str) -> backend::Message {
        backend::Message { subject: "a".to_owned(), sequence, payload: payload.into(), stored_at: sequence }
    }

    #[test]
    fn a_message_is_decoded_once_for_its_read_its_processing_and_the_next_read() {
        let (handler, partition) = (Counting::default(), Arc::<str>::from("a"));
        let decoded = handler.0.clone();
        let decoder = MessageDecoder::new(Arc::new(handler));
        let first = decoder.messages(&partition, vec![message(1, "one")]);
        let value = decoder.value(&partition, &first[0].payload).expect("it is known");
        assert_eq!(value.downcast_ref::<String>().map(String::as_str), Some("one"));
        decoder.messages(&partition, vec![message(1, "one"), message(2, "two")]);
        decoder.last_message(&partition, &message(2, "two"));
        assert_eq!(decoded.load(Ordering::Relaxed), 2);
        assert!(decoder.value(&partition, &first[0].payload).is_none(), "only the latest is kept");
    }

    #[test]
    fn another_message_at_the_same_place_is_decoded_again() {
        let decoder = MessageDecoder::new(Arc::new(Counting::default()));
        let partition = Arc::<str>::from("a");
        let ids = |read: Vec<Message>| {
            read.iter().map(|message| message.message_id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ids(decoder.messages(&partition, vec![message(1, "one")])), ["one"]);
        assert_eq!(ids(decoder.messages(&partition, vec![message(1, "other")])), ["other"]);
    }

    #[test]
    fn a_message_whose_decoding_panics_is_named_by_its_hash() {
        let decoder = MessageDecoder::new(Arc::new(Counting::default()));
        let read = decoder.messages(&"a".into(), vec![message(1, "broken")]);
        assert_eq!(*read[0].message_id, *payload_hash(b"broken"));
        assert!(decoder.value(&"a".into(), &read[0].payload).is_none());
    }
}
