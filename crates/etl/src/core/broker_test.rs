use super::*;

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn grant(provider: &str, permits: u32) -> Effect {
    Effect::Grant(provider.to_owned(), permits)
}

fn revoke(provider: &str, permits: u32, reason: Reason) -> Effect {
    Effect::Revoke(provider.to_owned(), permits, reason)
}

fn ask(provider: &str) -> Input {
    Input::Ask(provider.to_owned(), 10)
}

/// A broker on virtual time.
struct Scene {
    broker: Broker,
}

impl Scene {
    fn new() -> Self {
        Self { broker: Broker::new(s(0), Config { lease: s(30), ..Config::default() }) }
    }

    fn at(&mut self, seconds: u64, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        self.broker.handle(s(seconds), input, &mut out);
        out
    }

    /// Checks with that write latency per record at `seconds`, holders being alive.
    fn check(&mut self, seconds: u64, latency_ms: u64) -> Vec<Effect> {
        for provider in ["a", "b"] {
            self.broker.handle(s(seconds), Input::Renew(provider.to_owned()), &mut Vec::new());
        }
        let write_latency_p99 = Some(Duration::from_millis(latency_ms));
        self.at(seconds, Input::Check(Load { write_latency_p99, saturation: 0.0 }))
    }
}

const SLOW: Reason = Reason::SlowWrites(Duration::from_millis(50));

#[test]
fn one_provider_gets_the_pool_and_a_second_one_its_half() {
    let mut scene = Scene::new();
    assert_eq!(scene.at(0, ask("a")), [grant("a", 10)]);
    assert_eq!(scene.at(1, ask("b")), [revoke("a", 5, Reason::FairShare), grant("b", 5)]);
    assert_eq!(scene.at(2, Input::Return("a".to_owned())), [grant("b", 5)]);
}

#[test]
fn who_wants_little_leaves_the_rest_to_the_others() {
    let mut scene = Scene::new();
    assert_eq!(scene.at(0, Input::Ask("a".to_owned(), 2)), [grant("a", 2)]);
    assert_eq!(scene.at(1, ask("b")), [grant("b", 8)]);
}

#[test]
fn a_lease_that_is_not_renewed_expires() {
    let mut scene = Scene::new();
    scene.at(0, ask("a"));
    assert_eq!(scene.at(29, Input::Tick), []);
    scene.at(29, Input::Renew("a".to_owned()));
    assert_eq!(scene.at(58, Input::Tick), []);
    assert_eq!(scene.at(59, Input::Tick), [revoke("a", 10, Reason::LeaseExpired)]);
    let statistics = scene.broker.statistics("a");
    assert_eq!((statistics.held, statistics.revoked, statistics.why), (0, 10, Some(Reason::LeaseExpired)));
}

#[test]
fn one_slow_check_revokes_nothing_and_two_in_a_row_take_a_fifth() {
    let mut scene = Scene::new();
    scene.at(0, ask("a"));
    assert_eq!(scene.check(5, 50), []);
    assert_eq!(scene.check(10, 30), [], "30 ms is not above 30 ms");
    assert_eq!(scene.check(15, 50), []);
    assert_eq!(scene.check(20, 50), [revoke("a", 2, SLOW)]);
    assert_eq!(scene.broker.capacity(), 8);
}

#[test]
fn a_full_queue_revokes_too() {
    let mut scene = Scene::new();
    scene.at(0, ask("a"));
    let full = Load { write_latency_p99: None, saturation: 0.9 };
    assert_eq!(scene.at(5, Input::Check(full)), []);
    assert_eq!(scene.at(10, Input::Check(full)), [revoke("a", 2, Reason::QueueFull(0.9))]);
}

#[test]
fn a_lasting_overload_takes_everything_and_recovery_gives_it_back() {
    let mut scene = Scene::new();
    scene.at(0, ask("a"));
    let mut held = vec![10];
    let mut now = 0;
    while scene.broker.capacity() > 0 {
        now += 5;
        scene.check(now, 50);
        held.push(scene.broker.statistics("a").held);
    }
    held.dedup();
    assert_eq!(held, [10, 8, 6, 4, 3, 2, 1, 0]);
    // It asks again; while nothing is written nothing is slow.
    assert_eq!(scene.at(now, ask("a")), []);
    let mut granted = Vec::new();
    while scene.broker.capacity() < 10 {
        now += 5;
        scene.at(now, Input::Renew("a".to_owned()));
        granted.extend(scene.at(now, Input::Check(Load::default())));
    }
    assert_eq!(granted, vec![grant("a", 2); 5]);
}

#[test]
fn two_providers_lose_and_regain_permits_alike() {
    let mut scene = Scene::new();
    scene.at(0, ask("a"));
    scene.at(0, ask("b"));
    for round in 1..=4 {
        scene.check(round * 5, 50);
    }
    let held = |scene: &Scene, provider| scene.broker.statistics(provider).held;
    assert_eq!((held(&scene, "a"), held(&scene, "b")), (3, 3));
    for round in 5..=6 {
        scene.check(round * 5, 1);
    }
    assert_eq!((held(&scene, "a"), held(&scene, "b")), (4, 4));
}

#[test]
fn with_one_permit_for_two_they_take_turns_of_a_lease() {
    let config = Config { pool: 1, lease: s(30), ..Config::default() };
    let mut scene = Scene { broker: Broker::new(s(0), config) };
    scene.at(0, ask("a"));
    assert_eq!(scene.at(0, ask("b")), []);
    let mut changes = Vec::new();
    for round in 1..=20 {
        for effect in scene.check(round * 5, 1) {
            if let Effect::Revoke(provider, ..) = &effect {
                scene.at(round * 5, Input::Ask(provider.clone(), 1));
            }
            changes.push((round * 5, effect));
        }
    }
    let fair = || Reason::FairShare;
    assert_eq!(
        changes,
        [
            (30, revoke("a", 1, fair())),
            (30, grant("b", 1)),
            (60, revoke("b", 1, fair())),
            (60, grant("a", 1)),
            (90, revoke("a", 1, fair())),
            (90, grant("b", 1)),
        ]
    );
}
