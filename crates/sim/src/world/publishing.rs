//! Publication of messages, and changes of the list of partitions.

use phalanx_cluster_core::Event;

use crate::broker::{MessageKind, encode, message_id};
use crate::event::SimEvent;
use crate::network::LATENCY;
use crate::rules::EnvironmentRule;
use crate::world::World;

impl World {
    /// Publishes a message for a partition. Returns its number.
    pub fn publish(&mut self, partition: u32, kind: MessageKind) -> u64 {
        let number = self.traffic.next_number(partition);
        self.append(partition, number, number, kind);
        number
    }

    /// Publishes a message again, as a publisher does that did not receive the answer.
    pub fn publish_again(&mut self, partition: u32, number: u64) {
        self.append(partition, number, number, MessageKind::Good);
    }

    /// Publishes a message again, as an operator does after a repair: under an id that no other message has.
    pub fn replay(&mut self, partition: u32, number: u64) {
        let id = u64::MAX - self.now.since_origin().as_micros() as u64;
        self.append(partition, id, number, MessageKind::Good);
    }

    /// Stops the traffic.
    pub fn stop_traffic(&mut self) {
        self.traffic.stop();
    }

    /// Adds a partition that publishes and is not in the list.
    pub fn add_unlisted_partition(&mut self) -> u32 {
        let partition = self.traffic.add_unlisted();
        self.plan_traffic(partition);
        partition
    }

    /// Removes a partition from the list; what it has published must still be processed.
    pub fn unlist(&mut self, partition: u32) {
        self.traffic.unlist(partition);
        for process in self.fleet.running().to_vec() {
            let listed = Event::Partitions(self.traffic.listed().clone());
            self.later(LATENCY, SimEvent::Arrival(process, listed));
        }
    }

    fn append(&mut self, partition: u32, id: u64, number: u64, kind: MessageKind) {
        self.expire();
        // Without the rule the broker takes a message for one of another partition and acknowledges it all the same.
        let names_partition = self.setup.enforces(EnvironmentRule::MessageIds);
        let id = if names_partition { (partition, id) } else { (0, id) };
        let at = (self.now, self.broker.micros(self.now));
        let payload = encode(number, kind);
        match self.broker.log.append(at, partition, Some(id), message_id(number), payload) {
            Some(sequence) => self.oracle.published(partition, sequence, number, kind),
            None if id.0 != partition => self.oracle.never_stored(self.now, partition, number),
            None => self.oracle.dropped_duplicate(),
        }
        for process in self.fleet.running().to_vec() {
            let link = self.network.link(process);
            if link.subscriptions.contains(&partition) && link.cut_in <= self.now {
                let event = Event::WakeUp(self.traffic.name(partition).clone());
                self.later(LATENCY, SimEvent::Arrival(process, event));
            }
        }
    }

    pub(super) fn plan_traffic(&mut self, partition: u32) {
        if let Some(interval) = self.traffic.next_interval() {
            self.later(interval, SimEvent::Traffic(partition));
        }
    }

    /// Deletes messages that are too old.
    pub(super) fn expire(&mut self) {
        let gone = self.broker.log.expire(self.now);
        self.oracle.expired(&gone);
    }
}
