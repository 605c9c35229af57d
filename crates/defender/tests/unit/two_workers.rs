//! The same message processed by two workers leaves the rows of one: on an SQLite file.

use std::sync::Arc;

use crate::fleet::paused::{Order, rows_by};
use phalanx_defender::store::{ChartStore, Sqlite};

#[tokio::test]
async fn a_paused_predecessor_changes_nothing_whenever_it_writes() {
    let folder = tempfile::tempdir().unwrap();
    let open =
        |name: &str| -> Arc<dyn ChartStore> { Arc::new(Sqlite::open(&folder.path().join(name)).unwrap()) };
    let alone = rows_by(&open("alone.db"), Order::Alone).await;
    assert_eq!((alone.charts.len(), alone.alarms.len()), (30, 1), "{alone:?}");
    assert_eq!(rows_by(&open("first.db"), Order::PredecessorFirst).await, alone);
    assert_eq!(rows_by(&open("last.db"), Order::PredecessorLast).await, alone);
}
