//! Every metric of the requirements: each happening is made to happen, and the value is seen to move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fleet::line::{at, listed, traces};
use crate::fleet::moody::Mood;
use crate::fleet::options;
use crate::fleet::served::{Served, Site};
use phalanx_cluster::Role;
use phalanx_cluster::SubscriptionConfig;
use phalanx_cluster::backend::faults::{Fault, Op};
use phalanx_cluster::core::WorkerState;
use phalanx_defender::Metrics;
use phalanx_defender::notification::Notification;
use phalanx_defender::record::{Chamber, Metadata};
use phalanx_defender::worker::Options;
use phalanx_service::Token;
use phalanx_testkit::wait::until_async;

/// An example of user code in a document, not a metric of ours.
const NOT_OURS: &str = "parti_emergency_rebalance";
/// Counted by the command while it cannot connect: `cli/tests/cli/defender.rs` makes it happen.
const OF_THE_COMMAND: &str = "defender_initialization_failures_total";

struct Metric {
    name: String,
    kind: String,
    labels: BTreeSet<String>,
}

/// Returns the metrics of the requirements.
fn required() -> Vec<Metric> {
    let list: toml::Table = phalanx_testkit::requirements().parse().unwrap();
    let text = |value: &toml::Value| value.as_str().unwrap().to_owned();
    let metric = |metric: &toml::Value| Metric {
        name: text(&metric["name"]),
        kind: text(&metric["type"]),
        labels: metric["labels"].as_array().unwrap().iter().map(text).collect(),
    };
    let ours: Vec<Metric> = list["metric"].as_array().unwrap().iter().map(metric).collect();
    let ours: Vec<Metric> = ours.into_iter().filter(|metric| metric.name != NOT_OURS).collect();
    assert_eq!(ours.len(), 60);
    ours
}

/// Looks at registries all the time, and knows which series took more than one value.
#[derive(Clone, Default)]
struct Lookout(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    watched: Vec<Metrics>,
    first: BTreeMap<(usize, String), String>,
    moved: BTreeSet<String>,
}

impl Lookout {
    fn watch(&self, metrics: Metrics) {
        self.0.lock().unwrap().watched.push(metrics);
    }

    fn look(&self) {
        let mut seen = self.0.lock().unwrap();
        for (place, metrics) in seen.watched.clone().iter().enumerate() {
            for line in metrics.text().lines().filter(|line| !line.starts_with('#')) {
                let Some((series, value)) = line.rsplit_once(' ') else { continue };
                let name = series.split('{').next().unwrap_or_default().to_owned();
                // A series that appears has moved from nothing, unless it appears at 0.
                let first = seen.first.entry((place, series.to_owned())).or_insert_with(|| "0".to_owned());
                if *first != value && !name.ends_with("_bucket") && !name.ends_with("_sum") {
                    seen.moved.insert(name.strip_suffix("_count").unwrap_or(&name).to_owned());
                    seen.moved.insert(name);
                }
            }
        }
    }

    fn moved(&self) -> BTreeSet<String> {
        self.look();
        self.0.lock().unwrap().moved.clone()
    }
}

/// Twelve chambers, some ten times as heavy as others.
async fn chambers(site: &Site) -> Vec<Chamber> {
    let chambers: Vec<Chamber> =
        (0..12).map(|number| Chamber::new("etch-02", &format!("C{number}")).unwrap()).collect();
    let weigh = |(place, chamber): (usize, &Chamber)| Metadata {
        weight: [1_000, 3_000, 700, 10_000][place % 4] + place as u64,
        ..listed(chamber)
    };
    let list: Vec<Metadata> = chambers.iter().enumerate().map(weigh).collect();
    site.store.put_metadata(&list).await.unwrap();
    chambers
}

async fn own_all(served: &[&Served], count: usize) {
    until_async("all chambers are owned by all", async || {
        let owned: Vec<usize> = served.iter().map(|one| one.defender.handle().assignment().len()).collect();
        (owned.iter().sum::<usize>() == count && owned.iter().all(|owned| *owned > 0)).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_moves_when_what_it_counts_happens() {
    let site = Site::new().await;
    let chambers = chambers(&site).await;
    let lookout = Lookout::default();
    let looking = tokio::spawn({
        let lookout = lookout.clone();
        async move {
            loop {
                lookout.look();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let start = async |name: &str, options: Options| {
        let served = site.start(name, Token::none(), options).await;
        lookout.watch(served.metrics.clone());
        served
    };

    // A cold start of two; the first of them hangs a doorbell in vain.
    let doorbells = SubscriptionConfig { attempts: 1, ..SubscriptionConfig::default() };
    let anna = start("anna", Options { subscriptions: doorbells, ..options(2) }).await;
    for chamber in &chambers {
        let subject = format!("dc.{}.{}.completed", chamber.tool(), chamber.chamber());
        anna.faults.inject(Op::Read, &subject, Fault::Drop);
    }
    let berta = start("berta", options(2)).await;
    own_all(&[&anna, &berta], 13).await;

    // Runs are processed, one fails because its traces are not there, and a second run finds its history in the cache.
    for run in 0..2 {
        for chamber in &chambers {
            let context = format!("run-{run}");
            anna.defender.collector().submit(chamber, &context, at(run), &traces(500.0)).await.unwrap();
        }
        let done = async || {
            let processed: u64 =
                [&anna, &berta].iter().map(|one| one.defender.handle().stats().processed).sum();
            (processed >= 12 * (run as u64 + 1)).then_some(())
        };
        until_async("the runs are processed", done).await;
    }
    let missing = Notification::new(chambers[0].clone(), "missing", at(9)).unwrap();
    let nothing = phalanx_cluster::backend::AppendCondition::None;
    let subject = format!("dc.{}.{}.completed", chambers[0].tool(), chambers[0].chamber());
    site.stores.log.append(&subject, missing.to_json().into(), nothing).await.unwrap();
    until_async("it is given up", async || {
        let dead: u64 = [&anna, &berta].iter().map(|one| one.defender.handle().stats().dead_letters).sum();
        (dead == 1).then_some(())
    })
    .await;

    // Two heartbeats do not get through.
    let id = format!("defender-{}", berta.defender.handle().id().unwrap());
    for _ in 0..2 {
        berta.faults.inject(Op::Write, &id, Fault::Drop);
    }
    until_async("that is seen", async || {
        (berta.metric("defender_heartbeat_errors_total") > 0.0).then_some(())
    })
    .await;
    own_all(&[&anna, &berta], 13).await;

    // A crash: the other one takes all. A third joins, and gets its share after a window.
    let leads = anna.defender.handle().role() == Role::Leader;
    let (survivor, victim) = if leads { (anna, berta) } else { (berta, anna) };
    drop(victim);
    own_all(&[&survivor], 13).await;
    let carla = start("carla", options(2)).await;
    own_all(&[&survivor, &carla], 13).await;

    // The leader leaves while a message is in work.
    survivor.moody.be(Mood::Silent);
    let own = survivor.defender.handle().assignment();
    let busy = Chamber::of_partition(own.first().unwrap()).unwrap();
    let (collector, moody) = (carla.defender.collector(), &survivor.moody);
    let received = || survivor.defender.handle().stats().received;
    let before = received();
    collector.submit(&busy, "run-last", at(20), &traces(500.0)).await.unwrap();
    until_async("it is in progress", async || (received() > before).then_some(())).await;
    let leaving = survivor.defender.shutdown();
    let letting = async {
        survivor.defender.handle().wait_for(WorkerState::Shutdown).await;
        moody.be(Mood::Well);
    };
    tokio::join!(leaving, letting);
    for series in [
        "defender_active_defenders",
        "defender_active_heartbeat_count",
        "defender_pending_topology_changes",
        "defender_assignment_chambers_moved",
        "defender_assignment_weight_variance_percent",
        "defender_assignment_max_weight",
        "defender_assignment_avg_chambers",
        "defender_weight_rebalance_iterations",
        "defender_is_leader{defender=\"defender-0\"}",
        "defender_is_leader{defender=\"defender-1\"}",
        "defender_stable_id_claimed{id=\"0\"}",
        "defender_stable_id_claimed{id=\"1\"}",
    ] {
        assert_eq!(survivor.metric(series), 0.0, "{series} of one that leads and holds nothing any more");
    }
    assert_eq!(survivor.metric("defender_stable_id"), -1.0);
    drop((survivor, carla));
    restart_of_ten(&lookout).await;

    looking.abort();
    let moved = lookout.moved();
    let still: Vec<String> = required()
        .into_iter()
        .map(|metric| metric.name)
        .filter(|name| !moved.contains(name) && name != OF_THE_COMMAND)
        .collect();
    assert!(still.is_empty(), "these never moved: {still:#?}");
}

/// Ten work, all die, and one comes back: that is a restart of the fleet.
async fn restart_of_ten(lookout: &Lookout) {
    let site = Site::new().await;
    chambers(&site).await;
    let mut ten = Vec::new();
    for number in 0..10 {
        ten.push(site.start(&format!("pod-{number}"), Token::none(), options(10)).await);
    }
    own_all(&ten.iter().collect::<Vec<_>>(), 13).await;
    drop(ten);
    let one = site.start("pod-0", Token::none(), options(10)).await;
    lookout.watch(one.metrics.clone());
    until_async("it recognises that", async || {
        (one.metric("defender_restart_detected_total") == 1.0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_have_their_kinds_labels_and_meanings_and_twins_agree_when_all_is_settled() {
    let site = Site::new().await;
    let served = site.start("one", Token::none(), options(1)).await.ready().await;
    served.defender.collector().submit(&site.chamber, "run-1", at(1), &traces(500.0)).await.unwrap();
    until_async("it is processed", async || (served.defender.handle().stats().processed == 1).then_some(()))
        .await;
    let text = served.metrics.text();
    for metric in required() {
        let Metric { name, kind, labels } = metric;
        assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} is no {kind}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name} does not say what it means");
        let series: Vec<&str> = text
            .lines()
            .filter(|line| line.strip_prefix(&*name).is_some_and(|rest| rest.starts_with(['{', ' ', '_'])))
            .collect();
        for label in &labels {
            let labelled = |line: &&&str| line.contains(&format!("{label}=\""));
            assert!(series.iter().any(|line| labelled(&line)), "{name} has no label {label}: {series:?}");
        }
    }
    for (one, other) in [
        ("defender_assignment_version", "defender_assignment_map_version"),
        ("defender_active_defenders", "defender_active_heartbeat_count"),
        ("defender_assigned_chambers", "defender_current_subscriptions"),
    ] {
        assert!(served.metric(one) > 0.0, "{one}");
        assert_eq!(served.metric(one), served.metric(other), "{one} and {other}");
    }
}
