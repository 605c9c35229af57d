//! The content of a simulated message: its number, and how it behaves.

use std::sync::Arc;

/// The behavior of a message, chosen by its publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MessageKind {
    /// It is processed.
    Good,
    /// It crashes the worker that processes it.
    CrashesWorker,
    /// It can never be processed.
    Poison,
    /// It fails this often.
    Flaky(u8),
    /// Its processing never ends by itself.
    NeverEnds,
}

/// Returns the payload of a message: the publisher's number in its partition, and the kind.
pub(crate) fn encode(number: u64, kind: MessageKind) -> Arc<[u8]> {
    let kind = match kind {
        MessageKind::Good => 0,
        MessageKind::CrashesWorker => 1,
        MessageKind::Poison => 2,
        MessageKind::NeverEnds => 3,
        MessageKind::Flaky(times) => 10 + times,
    };
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.into()
}

/// Returns the number and the kind of a message.
pub(crate) fn decode(payload: &[u8]) -> (u64, MessageKind) {
    let mut number = [0; 8];
    number.copy_from_slice(&payload[..8]);
    let kind = match payload[8] {
        0 => MessageKind::Good,
        1 => MessageKind::CrashesWorker,
        2 => MessageKind::Poison,
        3 => MessageKind::NeverEnds,
        times => MessageKind::Flaky(times - 10),
    };
    (u64::from_le_bytes(number), kind)
}

/// Returns the id of the message with a number.
pub(crate) fn message_id(number: u64) -> Arc<str> {
    format!("run-{number}").into()
}

/// Returns the number of the message with an id.
pub(crate) fn number_of(message_id: &str) -> Option<u64> {
    message_id.strip_prefix("run-")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        for kind in [MessageKind::Good, MessageKind::Poison, MessageKind::Flaky(3), MessageKind::NeverEnds] {
            assert_eq!(decode(&encode(7, kind)), (7, kind));
        }
        assert_eq!(number_of(&message_id(7)), Some(7));
    }
}
