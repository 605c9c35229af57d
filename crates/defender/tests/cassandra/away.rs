//! A real Cassandra that goes away while messages come, and comes back.

use std::sync::Arc;
use std::time::Instant;

use crate::fleet::{assert_as_recomputed, chamber, chunks, options, start, submit, time};
use phalanx_cluster::backend::{AppendCondition, Backend, Embedded, Stores};
use phalanx_defender::notification::Notification;
use phalanx_defender::store::cassandra::Config;
use phalanx_defender::store::{Cassandra, ChartStore};
use phalanx_defender::weights;
use phalanx_fab::Fab;
use phalanx_testkit::cassandra::Server;
use phalanx_testkit::wait::until_async;

const CHAMBERS: usize = 8;

/// What the pipeline has counted of messages that had to wait for the store.
fn waits(registry: &prometheus::Registry) -> f64 {
    let families = registry.gather();
    let counter = families.iter().find(|family| family.name() == "defender_store_waits_total");
    counter.map_or(0.0, |family| family.get_metric()[0].get_counter().get_value())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_cassandra_is_away_messages_wait_and_when_it_is_back_all_flow() {
    let mut server = tokio::task::spawn_blocking(Server::start).await.unwrap().unwrap();
    let config = Config::new(server.host());
    Cassandra::apply(&config, Some(&"1".parse().unwrap())).await.unwrap();
    let store: Arc<dyn ChartStore> = Arc::new(Cassandra::connect(&config).await.unwrap());
    let backend: Arc<dyn Backend> = Arc::new(Embedded::in_memory().unwrap());
    let fab = Fab::new(5, CHAMBERS);
    store.put_metadata(&weights::import(&fab.chambers_csv(), jiff::Timestamp::now()).unwrap()).await.unwrap();
    let options = options(1);
    let registry = options.metrics.cluster().registry().clone();
    let stores = Stores::open(&*backend, &options.settings).await.unwrap();
    let defender = start(&backend, &store, options).await;
    let processed = async |least: u64| (defender.handle().stats().processed >= least).then_some(());

    for run in 0..5 {
        for number in 0..CHAMBERS {
            submit(&defender, &fab, number, run).await;
        }
    }
    until_async("five runs of each are committed", async || processed(40).await).await;
    // Their traces are stored while that is possible; their notifications come when nothing is.
    for run in 5..10 {
        for number in 0..CHAMBERS {
            let (context, chunks) = chunks(&fab, number, run);
            store.put_t_chart(&chamber(&fab, number), &context, &chunks).await.unwrap();
        }
    }
    let mut server = tokio::task::spawn_blocking(move || {
        server.stop();
        server
    })
    .await
    .unwrap();
    for run in 5..10 {
        for number in 0..CHAMBERS {
            let chamber = chamber(&fab, number);
            let notification =
                Notification::new(chamber.clone(), &fab.run(number, run).context, time(run)).unwrap();
            let subject = format!("dc.{}.{}.completed", chamber.tool(), chamber.chamber());
            let payload = notification.to_json().into();
            stores.log.append(&subject, payload, AppendCondition::None).await.unwrap();
        }
    }
    let often = 2.0 * CHAMBERS as f64;
    until_async("messages wait, and ask again", async || (waits(&registry) >= often).then_some(())).await;
    let stats = defender.handle().stats();
    assert_eq!((stats.processed, stats.failed, stats.dead_letters), (40, 0, 0));

    let server =
        tokio::task::spawn_blocking(move || server.restart().map(|()| server)).await.unwrap().unwrap();
    let back = Instant::now();
    until_async("all are committed", async || processed(80).await).await;
    println!(
        "measured: 40 messages that waited for Cassandra committed {} ms after it was back",
        back.elapsed().as_millis()
    );
    let stats = defender.handle().stats();
    assert_eq!((stats.processed, stats.failed, stats.dead_letters), (80, 0, 0));
    for number in 0..CHAMBERS {
        assert_as_recomputed(&*store, &fab, number, 10).await;
    }
    defender.shutdown().await;
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
}
