//! An import of chambers reaches the leader.

use std::sync::Arc;

use jiff::Timestamp;
use phalanx_cluster::PartitionSource;
use phalanx_cluster::backend::{Backend, BucketConfig, Embedded, Kv};
use phalanx_defender::store::{ChartStore, Sqlite};
use phalanx_defender::weights::{CACHE_TTL, ChamberSource, announce_import, follow_imports, import};
use tempfile::TempDir;
use tokio::sync::mpsc;

const HEADER: &str = "tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds\n";

async fn world() -> (TempDir, Arc<Sqlite>, Arc<dyn Kv>, ChamberSource) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
    let bucket = Embedded::in_memory().unwrap().bucket(&BucketConfig::new("assignments")).await.unwrap();
    let source = ChamberSource::new(store.clone(), bucket.clone(), CACHE_TTL);
    (folder, store, bucket, source)
}

#[tokio::test]
async fn the_leader_asks_the_store_again_only_after_an_import() {
    let (_folder, store, bucket, source) = world().await;
    assert!(source.partitions().await.unwrap().is_empty());
    let chambers = import(&format!("{HEADER}etch-01,A,100,1,1200"), Timestamp::now()).unwrap();
    store.put_metadata(&chambers).await.unwrap();
    assert!(source.partitions().await.unwrap().is_empty(), "it is remembered for an hour");
    announce_import(&*bucket, "1 chamber").await.unwrap();
    assert_eq!(source.partitions().await.unwrap(), [("etch-01:A".to_owned(), 120_000)]);
}

#[tokio::test]
async fn whoever_follows_hears_of_every_import_that_comes() {
    let (_folder, _store, bucket, _source) = world().await;
    announce_import(&*bucket, "before").await.unwrap();
    let (told, mut heard) = mpsc::unbounded_channel();
    let following = {
        let bucket = bucket.clone();
        let tell = move || {
            let told = told.clone();
            async move { told.send(()).unwrap() }
        };
        tokio::spawn(async move { follow_imports(&*bucket, tell).await })
    };
    // The watch may still be at what was there before, and an import among that: told again until one is heard.
    let hears = async {
        while heard.try_recv().is_err() {
            announce_import(&*bucket, "now").await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), hears).await.expect("an import is heard of");
    following.abort();
}
