//! What the tools of the fab publish.

use super::*;

impl World {
    /// Publishes a message for a partition now. Gives its number.
    pub fn publish(&mut self, partition: u32, kind: MessageKind) -> u64 {
        let number = self.next_number[partition as usize];
        self.next_number[partition as usize] += 1;
        self.append(partition, number, number, kind);
        number
    }

    /// Publishes a message again, as a tool does that did not hear the answer.
    pub fn publish_again(&mut self, partition: u32, number: u64) {
        self.append(partition, number, number, MessageKind::Good);
    }

    /// Publishes a message again, as a person does who has mended what was wrong: under an id that no other message has.
    pub fn replay(&mut self, partition: u32, number: u64) {
        self.append(
            partition,
            u64::MAX - self.now.since_origin().as_micros() as u64,
            number,
            MessageKind::Good,
        );
    }

    /// No more messages are published.
    pub fn stop_traffic(&mut self) {
        self.traffic_enabled = false;
    }

    /// A partition that is not in the list begins to publish.
    pub fn add_unlisted_partition(&mut self) -> u32 {
        let partition = self.names.len() as u32;
        let name: Arc<str> = format!("tool:{partition}").into();
        self.names.push(name.clone());
        self.numbers.insert(name, partition);
        self.next_number.push(0);
        self.unlisted.push(partition);
        self.plan_traffic(partition);
        partition
    }

    /// A partition is removed from the list; what it has published must still be processed.
    pub fn unlist(&mut self, partition: u32) {
        self.unlisted.push(partition);
        let name = self.names[partition as usize].clone();
        let listed: Arc<[_]> = self.partitions.iter().filter(|(known, _)| *known != name).cloned().collect();
        self.partitions = listed.clone();
        for process in self.living.clone() {
            self.later(LATENCY, SimEvent::Arrival(process, Event::Partitions(listed.clone())));
        }
    }

    pub(super) fn append(&mut self, partition: u32, id: u64, number: u64, kind: MessageKind) {
        self.expire();
        let id = if self.setup.enforces(EnvironmentRule::MessageIds) { (partition, id) } else { (0, id) };
        let (now, micros) = (self.now, self.micros());
        // Without the rule the broker takes it for a repetition and acknowledges it all the same.
        let acknowledged =
            self.log.append(now, micros, partition, id, context_name(number), encode(number, kind));
        match acknowledged {
            Some(sequence) => self.oracle.published(partition, sequence, number, kind),
            None if id.0 != partition => {
                self.oracle.violate(
                    1,
                    now,
                    format!("message {number} of partition {partition} was never stored"),
                );
            }
            None => {}
        }
        let name = self.names[partition as usize].clone();
        for process in self.living.clone() {
            let target = &self.processes[process.index()];
            if target.subscriptions.contains(&partition) && target.cut_in <= now {
                self.later(LATENCY, SimEvent::Arrival(process, Event::WakeUp(name.clone())));
            }
        }
    }

    pub(super) fn plan_traffic(&mut self, partition: u32) {
        if let Some(mean) = self.setup.traffic {
            let mean = mean.as_millis() as u64;
            let wait = self.traffic.between(mean / 2, mean * 3 / 2);
            self.later(Duration::from_millis(wait), SimEvent::Traffic(partition));
        }
    }

    pub(super) fn expire(&mut self) {
        let gone = self.log.expire(self.now);
        self.oracle.expired(&gone);
    }
}
