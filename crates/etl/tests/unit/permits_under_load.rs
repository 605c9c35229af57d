//! Broker and providers together, on virtual time, with a store that becomes slow and recovers.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use phalanx_etl::ProviderState;
use phalanx_etl::core::backoff::Policy;
use phalanx_etl::core::broker::{self, Broker, Config, Load};
use phalanx_etl::core::provider::{self, Effect, Input};

const BATCH: u32 = 20;
const STEP: Duration = Duration::from_millis(10);

struct Scene {
    now: Duration,
    broker: Broker,
    providers: BTreeMap<String, provider::Provider>,
    in_flight: BTreeMap<String, u32>,
    written: BTreeMap<String, u64>,
    queue: VecDeque<String>,
    busy_until: Option<(Duration, String)>,
    per_record: Duration,
    slowest: Option<Duration>,
}

impl Scene {
    fn new(ids: [&str; 2]) -> Self {
        let policy = Policy { max_retries: 3, retry_delay: Duration::from_secs(5) };
        let now = Duration::from_secs(1000);
        let mut scene = Self {
            now,
            broker: Broker::new(now, Config::default()),
            providers: ids.map(|id| (id.to_owned(), provider::Provider::new(now, policy))).into(),
            in_flight: BTreeMap::new(),
            written: BTreeMap::new(),
            queue: VecDeque::new(),
            busy_until: None,
            per_record: Duration::from_millis(1),
            slowest: None,
        };
        for id in ids {
            scene.give(id, Input::Start);
        }
        scene
    }

    fn give(&mut self, id: &str, input: Input) {
        let mut effects = Vec::new();
        self.providers.get_mut(id).expect("a provider of the scene").handle(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                Effect::AskPermits => self.broker(broker::Input::Ask(id.to_owned(), 10)),
                Effect::ReturnPermits => self.broker(broker::Input::Return(id.to_owned())),
                _ => {}
            }
        }
    }

    fn broker(&mut self, input: broker::Input) {
        let mut effects = Vec::new();
        self.broker.handle(self.now, input, &mut effects);
        for effect in effects {
            match effect {
                broker::Effect::Grant(id, permits) => self.give(&id, Input::QuotaGranted(permits)),
                broker::Effect::Revoke(id, permits, why) => self.give(&id, Input::QuotaRevoked(permits, why)),
            }
        }
    }

    /// Ten milliseconds of everybody's life.
    fn step(&mut self) {
        self.now += STEP;
        while self.busy_until.as_ref().is_none_or(|(until, _)| *until <= self.now) {
            let mut free_at = self.now;
            if let Some((until, id)) = self.busy_until.take() {
                free_at = until;
                *self.in_flight.get_mut(&id).expect("it was counted when it was sent") -= 1;
                *self.written.entry(id).or_default() += u64::from(BATCH);
                self.slowest = self.slowest.max(Some(self.per_record));
            }
            self.fill();
            let Some(id) = self.queue.pop_front() else { break };
            self.busy_until = Some((free_at + self.per_record * BATCH, id));
        }
        for id in self.providers.keys().cloned().collect::<Vec<_>>() {
            self.give(&id, Input::Tick);
            if self.providers[&id].state() == ProviderState::Running {
                self.broker(broker::Input::Renew(id));
            }
        }
        if self.broker.check_due(self.now) {
            let write_latency_p99 = self.slowest.take();
            self.broker(broker::Input::Check(Load { write_latency_p99, saturation: 0.0 }));
        }
    }

    /// Everybody who may sends batches, in turn.
    fn fill(&mut self) {
        for (id, provider) in &self.providers {
            let in_flight = self.in_flight.entry(id.clone()).or_default();
            while provider.state() == ProviderState::Running && *in_flight < provider.permits() {
                *in_flight += 1;
                self.queue.push_back(id.clone());
            }
        }
    }

    /// Lives for so long, and says how many records of each were written.
    fn live(&mut self, seconds: u64) -> BTreeMap<String, u64> {
        let before = self.written.clone();
        for _ in 0..seconds * 100 {
            self.step();
        }
        self.written
            .iter()
            .map(|(id, count)| (id.clone(), count - before.get(id).copied().unwrap_or_default()))
            .collect()
    }

    fn held(&self) -> u32 {
        self.providers.values().map(provider::Provider::permits).sum()
    }
}

fn assert_shared_within_a_tenth(written: &BTreeMap<String, u64>) {
    let (Some(least), Some(most)) = (written.values().min(), written.values().max()) else {
        panic!("nobody wrote anything");
    };
    assert!(most - least <= most / 10, "{written:?}");
}

#[test]
fn a_slow_store_lowers_concurrency_before_it_stops_anybody_and_throughput_returns() {
    let mut scene = Scene::new(["a", "b"]);
    let healthy = scene.live(60);
    assert_eq!(scene.held(), 10, "healthy bulk loading revokes nothing");
    assert_shared_within_a_tenth(&healthy);

    scene.per_record = Duration::from_millis(50);
    let mut held = vec![scene.held()];
    let mut stopped_at = None;
    while scene.held() > 0 {
        scene.step();
        held.push(scene.held());
        let waiting = scene.providers.values().any(|one| one.state() == ProviderState::WaitingQuota);
        if waiting && stopped_at.is_none() {
            stopped_at = Some(scene.held());
        }
        assert!(scene.now < Duration::from_secs(2000), "permits never fell to zero: {held:?}");
    }
    held.dedup();
    assert_eq!(held, [10, 8, 6, 4, 3, 2, 1, 0]);
    assert!(stopped_at.unwrap() <= 2, "concurrency fell first, then somebody stopped");

    scene.per_record = Duration::from_millis(1);
    scene.live(120);
    assert_eq!(scene.held(), 10);
    let recovered = scene.live(60);
    assert_shared_within_a_tenth(&recovered);
    let sum = |written: &BTreeMap<String, u64>| written.values().sum::<u64>();
    assert!(sum(&recovered) * 10 >= sum(&healthy) * 9, "{healthy:?} then {recovered:?}");
}
