//! Retention: a defender deletes rows that are too old, whichever program runs it.

use std::sync::Arc;

use crate::fleet::line::STRATEGY;
use crate::fleet::options;
use crate::store_sqlite::results;
use jiff::{SignedDuration, Timestamp};
use phalanx_cluster::backend::Embedded;
use phalanx_defender::store::{ChartStore as _, Sqlite};
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::worker::Defender;
use phalanx_testkit::wait::until_async;

#[tokio::test(flavor = "multi_thread")]
async fn a_defender_started_through_the_library_deletes_expired_rows() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
    let now = Timestamp::now();
    let (old, new) = (results(1, now - SignedDuration::from_hours(24 * 31)), results(2, now));
    for written in [&old, &new] {
        store.write(written).await.unwrap();
    }
    let backend = Arc::new(Embedded::in_memory().unwrap());
    let strategy = Arc::new(Holder::new(Strategy::parse(STRATEGY).unwrap()));
    let _defender =
        Defender::start(backend, store.clone(), strategy, Arc::new(()), options(1)).await.unwrap();
    let left = until_async("the expired rows are deleted", async || {
        let rows = store.contexts(&old.chamber, None, 9).await.unwrap();
        (rows.len() == 1).then_some(rows)
    })
    .await;
    assert_eq!(left[0].position, new.mark.position);
    assert_eq!(store.u_charts(&old.chamber, "power", None, 9).await.unwrap().len(), 1);
}
