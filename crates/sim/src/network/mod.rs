//! The network between processes and broker: links with outages, and faults of single requests.

mod link;

use std::collections::BTreeMap;
use std::time::Duration;

use phalanx_cluster_core::Purpose;
use phalanx_cluster_core::types::{Key, Time};

use crate::faults::RequestFault;
use crate::fleet::ProcessId;
use crate::rng::Rng;

pub(crate) use link::{Link, WatchedBucket};

/// The time that a request or an answer takes.
pub(crate) const LATENCY: Duration = Duration::from_millis(1);
/// The time after which a caller gives up.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest outage after which a write that was sent during it still arrives.
const MAX_HELD: Duration = Duration::from_secs(8);

/// A request, as the network sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The one key that it is about.
    pub(crate) key: Option<&'a Key>,
    /// The purpose of a write or a deletion of a key.
    pub(crate) purpose: Option<Purpose>,
    /// Whether it is a change.
    pub(crate) is_write: bool,
}

/// The route of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Delays of copies that arrive too; their answers are lost.
    pub(crate) copies: [Option<Duration>; 2],
    pub(crate) passage: Passage,
}

/// The fate of the request itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It is lost, and its caller gives up.
    Lost,
    /// It arrives after this time.
    Arrives(Duration),
    /// Its caller gives up, and it may arrive after this time.
    TimesOut(Option<Duration>),
}

/// The links of all processes, and the faults of single requests. `E` is the type of watch events.
#[derive(Debug)]
pub(crate) struct Network<E> {
    links: Vec<Link<E>>,
    /// Chooses request faults; none in a network without them.
    rng: Option<Rng>,
    request_faults: Vec<RequestFault>,
    request_fault_counts: BTreeMap<&'static str, u64>,
    /// Until then the Election Agent does not answer.
    pub(crate) agent_down_until: Time,
    /// Requests of processes below this number are lost: they ended before the embedded folder was opened again.
    first_of_folder: u32,
}

impl<E> Default for Network<E> {
    fn default() -> Self {
        Self {
            links: Vec::new(),
            rng: None,
            request_faults: Vec::new(),
            request_fault_counts: BTreeMap::new(),
            agent_down_until: Time::ZERO,
            first_of_folder: 0,
        }
    }
}

impl<E> Network<E> {
    /// Adds the link of the next process.
    pub(crate) fn add_link(&mut self) {
        self.links.push(Link::default());
    }

    /// Returns the link of a process.
    pub(crate) fn link(&self, process: ProcessId) -> &Link<E> {
        &self.links[process.index()]
    }

    /// Returns the link of a process, to change it.
    pub(crate) fn link_mut(&mut self, process: ProcessId) -> &mut Link<E> {
        &mut self.links[process.index()]
    }

    /// Enables request faults of these kinds.
    pub(crate) fn enable_request_faults(&mut self, seed: u64, kinds: &[RequestFault]) {
        self.rng = Some(Rng::new(seed));
        self.request_faults = kinds.to_vec();
    }

    /// Ends every fault.
    pub(crate) fn disable_faults(&mut self, now: Time) {
        self.rng = None;
        self.request_faults.clear();
        self.links.iter_mut().for_each(|link| link.disable_faults(now));
    }

    /// Returns the request faults so far, by kind.
    pub(crate) fn request_fault_counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.request_fault_counts
    }

    /// Loses the requests of processes that ended before the embedded folder was opened again.
    pub(crate) fn reopen_folder(&mut self) {
        self.first_of_folder = self.links.len() as u32;
    }

    /// Returns whether the requests of a process still reach the broker.
    pub(crate) fn carries(&self, process: ProcessId) -> bool {
        process.0 >= self.first_of_folder
    }

    /// Chooses the route of a request that a process sends.
    pub(crate) fn route(&mut self, now: Time, process: ProcessId, request: Request<'_>) -> Route {
        let link = &mut self.links[process.index()];
        let is_lost_heartbeat = request.purpose == Some(Purpose::Heartbeat) && link.drops_heartbeats;
        let is_agent_away = self.agent_down_until.max(link.cut_from_agent) > now;
        if is_lost_heartbeat || is_agent_away && request.key == Some(&Key::Lease) {
            return Route { copies: [None, None], passage: Passage::Lost };
        }
        let cut = link.cut_out.saturating_sub(now);
        let repeats = link.repeats.take_if(|(purpose, _)| request.purpose == Some(*purpose));
        let mut copies = [repeats.map(|(_, after)| after), None];
        let (mut delay, mut is_answered) = (LATENCY, true);
        match self.rng.as_mut().map_or(0, |rng| rng.between(0, 2_000)) {
            1..=4 => {
                let late = self.rng.as_mut().map_or(0, |rng| rng.between(100, 6_000));
                let fault = if request.is_write { RequestFault::LateWrite } else { RequestFault::LateAnswer };
                if self.roll(fault) {
                    delay = Duration::from_millis(late);
                }
            }
            5..=7 if self.roll(RequestFault::LostAnswer) => is_answered = false,
            8..=9 if request.is_write && self.roll(RequestFault::DuplicatedRequest) => {
                // Sent twice, as by a client that reconnects: the second one comes later.
                copies[1] = Some(cut + Duration::from_millis(700));
            }
            _ => {}
        }
        let arrives = cut + delay;
        let passage = if arrives + LATENCY > TIMEOUT || !is_answered {
            // The caller gives up; a write may still arrive, if the connection comes back soon.
            Passage::TimesOut(Some(arrives).filter(|_| cut < MAX_HELD && request.is_write))
        } else {
            Passage::Arrives(arrives)
        };
        Route { copies, passage }
    }

    /// Returns the time until an answer reaches its process; none if its caller has given up by then.
    pub(crate) fn answer_delay(&self, now: Time, process: ProcessId) -> Option<Duration> {
        let link = self.link(process);
        let wait = LATENCY + link.slowness + link.cut_in.saturating_sub(now);
        Some(wait).filter(|wait| *wait < TIMEOUT)
    }

    /// Returns whether a read is answered with an old value.
    pub(crate) fn rolls_stale_read(&mut self) -> bool {
        self.rng.as_mut().is_some_and(|rng| rng.one_in(500)) && self.roll(RequestFault::StaleRead)
    }

    /// Returns whether a read of the log is answered by a replica that is behind.
    pub(crate) fn rolls_stale_log(&mut self) -> bool {
        self.rng.as_mut().is_some_and(|rng| rng.one_in(20)) && self.roll(RequestFault::StaleLog)
    }

    /// Returns whether a kind of request fault is enabled, and counts it then.
    fn roll(&mut self, fault: RequestFault) -> bool {
        let is_enabled = self.request_faults.contains(&fault);
        if is_enabled {
            *self.request_fault_counts.entry(fault.name()).or_default() += 1;
        }
        is_enabled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Request<'_> = Request { key: None, purpose: Some(Purpose::Claim), is_write: true };
    const READ: Request<'_> = Request { key: None, purpose: None, is_write: false };

    fn network() -> (Network<()>, ProcessId) {
        let mut network = Network::default();
        network.add_link();
        (network, ProcessId(0))
    }

    #[test]
    fn a_write_during_a_short_outage_arrives_after_its_caller_has_given_up() {
        let (mut network, process) = network();
        let now = Time::from_secs(1);
        assert_eq!(network.route(now, process, WRITE).passage, Passage::Arrives(LATENCY));
        network.link_mut(process).cut_out = Time::from_secs(6);
        let late = Some(Duration::from_secs(5) + LATENCY);
        assert_eq!(network.route(now, process, WRITE).passage, Passage::TimesOut(late));
        assert_eq!(network.route(now, process, READ).passage, Passage::TimesOut(None));
        network.link_mut(process).cut_out = Time::from_secs(60);
        assert_eq!(network.route(now, process, WRITE).passage, Passage::TimesOut(None));
    }

    #[test]
    fn only_a_repeated_purpose_is_copied_and_only_once() {
        let (mut network, process) = network();
        let after = Duration::from_secs(3);
        network.link_mut(process).repeats = Some((Purpose::Claim, after));
        assert_eq!(network.route(Time::ZERO, process, READ).copies, [None, None]);
        assert_eq!(network.route(Time::ZERO, process, WRITE).copies, [Some(after), None]);
        assert_eq!(network.route(Time::ZERO, process, WRITE).copies, [None, None]);
    }

    #[test]
    fn an_answer_over_a_slow_link_is_late_or_lost() {
        let (mut network, process) = network();
        network.link_mut(process).slowness = Duration::from_millis(500);
        assert_eq!(network.answer_delay(Time::ZERO, process), Some(Duration::from_millis(501)));
        network.link_mut(process).cut_in = Time::from_secs(2);
        assert_eq!(network.answer_delay(Time::ZERO, process), None);
    }
}
