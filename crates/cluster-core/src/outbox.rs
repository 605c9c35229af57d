//! The outbox of a worker: the effects of one step, and the ids of the requests among them.

use super::io::{Condition, Effect, Notice, Purpose, RequestId, Warning};
use super::types::{Key, Revision, Value};

/// The effects of the current step, in order.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    last_serial: u64,
    effects: Vec<Effect>,
}

impl Outbox {
    /// Exchanges the collected effects with `effects`. A step begins and ends with this call, so that it appends to the
    /// caller's list without a copy.
    pub(crate) fn swap(&mut self, effects: &mut Vec<Effect>) {
        std::mem::swap(&mut self.effects, effects);
    }

    /// Returns the serial number of the newest request; later requests have higher ones.
    pub(crate) fn last_serial(&self) -> u64 {
        self.last_serial
    }

    /// Appends an instruction that has no answer.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Appends a request, built from its id, and returns the id that its answer will carry.
    pub(crate) fn request(
        &mut self,
        purpose: Purpose,
        effect: impl FnOnce(RequestId) -> Effect,
    ) -> RequestId {
        self.last_serial =
            self.last_serial.checked_add(1).unwrap_or_else(|| violated!("serial numbers never run out"));
        let request_id = RequestId { purpose, serial: self.last_serial };
        self.effects.push(effect(request_id));
        request_id
    }

    /// Writes a value.
    pub(crate) fn write(
        &mut self,
        purpose: Purpose,
        key: Key,
        value: Value,
        condition: Condition,
    ) -> RequestId {
        invariant!(value.belongs_to(&key), "{key:?} never holds {value:?}");
        invariant!(
            condition != Condition::None || key.has_one_writer(),
            "a key with several writers is written by compare-and-swap: {key:?}"
        );
        self.request(purpose, |request_id| Effect::Write { request_id, key, value, condition })
    }

    /// Deletes exactly this revision of a value.
    pub(crate) fn delete(&mut self, purpose: Purpose, key: Key, revision: Revision) -> RequestId {
        invariant!(
            matches!(key, Key::Claim(_) | Key::Lease),
            "only claims and the lease are released: {key:?}"
        );
        self.request(purpose, |request_id| Effect::Delete { request_id, key, revision })
    }

    /// Reads a value from the stream leader.
    pub(crate) fn read(&mut self, purpose: Purpose, key: Key) -> RequestId {
        self.request(purpose, |request_id| Effect::Read { request_id, key })
    }

    /// Reports an event that is counted.
    pub(crate) fn notify(&mut self, notice: Notice) {
        self.push(Effect::Notice(notice));
    }

    /// Warns the operator.
    pub(crate) fn warn(&mut self, warning: Warning) {
        self.push(Effect::Warn(warning));
    }
}

#[cfg(test)]
impl Outbox {
    /// Returns the effects since the last call.
    pub(crate) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::WorkerId;

    #[test]
    fn serial_numbers_grow_over_steps() {
        let mut outbox = Outbox::default();
        let first = outbox.read(Purpose::ReadMap, Key::Map);
        let mut effects = Vec::new();
        outbox.swap(&mut effects);
        assert_eq!(effects, [Effect::Read { request_id: first, key: Key::Map }]);
        assert_eq!(outbox.read(Purpose::ReadMap, Key::Map).serial, first.serial + 1);
    }

    #[test]
    #[should_panic(expected = "compare-and-swap")]
    fn a_claim_is_never_written_without_a_condition() {
        let pod = crate::types::Pod { name: "pod".into(), uid: "uid".into() };
        let claim = Value::Claim(crate::types::Claim { pod, renewals: 0 });
        Outbox::default().write(Purpose::Claim, Key::Claim(WorkerId(0)), claim, Condition::None);
    }

    #[test]
    #[should_panic(expected = "never holds")]
    fn a_value_is_never_written_to_the_key_of_another_kind() {
        let size = Value::FleetSize(3);
        Outbox::default().write(Purpose::PublishMap, Key::Map, size, Condition::Absent);
    }
}
