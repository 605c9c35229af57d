//! The same message processed by two workers leaves the rows of one: on a real Cassandra.

use std::sync::Arc;

use crate::fleet::paused::{Order, rows_by};
use phalanx_defender::store::cassandra::Config;
use phalanx_defender::store::{Cassandra, ChartStore, Sqlite};
use phalanx_testkit::cassandra::Keyspace;

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_predecessor_changes_nothing_whenever_it_writes() {
    let folder = tempfile::tempdir().unwrap();
    let file: Arc<dyn ChartStore> = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
    let expected = rows_by(&file, Order::Alone).await;
    for order in [Order::Alone, Order::PredecessorFirst, Order::PredecessorLast] {
        let keyspace = tokio::task::spawn_blocking(Keyspace::create).await.unwrap().unwrap();
        let config = Config { keyspace: keyspace.name().to_owned(), ..Config::new(keyspace.hosts()) };
        Cassandra::apply(&config, None).await.unwrap();
        let store: Arc<dyn ChartStore> = Arc::new(Cassandra::connect(&config).await.unwrap());
        assert_eq!(rows_by(&store, order).await, expected, "{order:?}");
        drop(store);
        tokio::task::spawn_blocking(move || drop(keyspace)).await.unwrap();
    }
}
