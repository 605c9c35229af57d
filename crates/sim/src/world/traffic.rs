//! What the tools of the fab publish.

use super::*;

impl World {
    /// Publishes a message for a chamber now. Gives its number.
    pub fn publish(&mut self, chamber: u32, kind: Kind) -> u64 {
        let number = self.next_number[chamber as usize];
        self.next_number[chamber as usize] += 1;
        self.append(chamber, number, number, kind);
        number
    }

    /// Publishes a message again, as a tool does that did not hear the answer.
    pub fn publish_again(&mut self, chamber: u32, number: u64) {
        self.append(chamber, number, number, Kind::Good);
    }

    /// Publishes a message again, as a person does who has mended what was wrong: under an id that no other message has.
    pub fn replay(&mut self, chamber: u32, number: u64) {
        self.append(chamber, u64::MAX - self.now.as_micros() as u64, number, Kind::Good);
    }

    /// No more messages are published.
    pub fn silence(&mut self) {
        self.flowing = false;
    }

    /// A chamber that is not in the list begins to publish.
    pub fn add_unlisted_chamber(&mut self) -> u32 {
        let chamber = self.names.len() as u32;
        let name: Arc<str> = format!("tool:{chamber}").into();
        self.names.push(name.clone());
        self.numbers.insert(name, chamber);
        self.next_number.push(0);
        self.unlisted.push(chamber);
        self.plan_traffic(chamber);
        chamber
    }

    /// A chamber is removed from the list; what it has published must still be processed.
    pub fn unlist(&mut self, chamber: u32) {
        self.unlisted.push(chamber);
        let name = self.names[chamber as usize].clone();
        let listed: Arc<[_]> = self.partitions.iter().filter(|(known, _)| *known != name).cloned().collect();
        self.partitions = listed.clone();
        for process in self.living.clone() {
            self.later(LATENCY, Happening::Arrival(process, Event::Partitions(listed.clone())));
        }
    }

    pub(super) fn append(&mut self, chamber: u32, id: u64, number: u64, kind: Kind) {
        self.expire();
        let id = if self.setup.config.keeps(Guard::MessageIds) { (chamber, id) } else { (0, id) };
        let (now, micros) = (self.now, self.micros());
        // Without the rule the broker takes it for a repetition and acknowledges it all the same.
        let acknowledged =
            self.log.append(now, micros, chamber, id, context_name(number), encode(number, kind));
        match acknowledged {
            Some(sequence) => self.ledger.published(chamber, sequence, number, kind),
            None if id.0 != chamber => {
                self.ledger.violate(
                    1,
                    now,
                    format!("message {number} of chamber {chamber} was never stored"),
                );
            }
            None => {}
        }
        let name = self.names[chamber as usize].clone();
        for process in self.living.clone() {
            let target = &self.processes[process.index()];
            if target.bells.contains(&chamber) && target.cut_in <= now {
                self.later(LATENCY, Happening::Arrival(process, Event::Rung(name.clone())));
            }
        }
    }

    pub(super) fn plan_traffic(&mut self, chamber: u32) {
        if let Some(mean) = self.setup.traffic {
            let mean = mean.as_millis() as u64;
            let wait = self.traffic.between(mean / 2, mean * 3 / 2);
            self.later(Duration::from_millis(wait), Happening::Traffic(chamber));
        }
    }

    pub(super) fn expire(&mut self) {
        let gone = self.log.expire(self.now);
        self.ledger.expired(&gone);
    }
}
