//! Facts about buckets.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use super::{Fixture, bucket, bucket_with_ttl, create_with_retries, next, soon, unique, until};
use crate::backend::validate::VALUE_BYTES_MAX;
use crate::backend::{BucketConfig, Error, Kv, StoreKind, WatchEvent};
use crate::core::types::Revision;

/// The shortest that every backend can do.
const TTL: Duration = Duration::from_secs(1);

fn assert_conflict<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Conflict { .. })), "{result:?}");
}

async fn value(bucket: &dyn Kv, key: &str) -> Option<(Bytes, Revision)> {
    bucket.get(key).await.expect("an answer").map(|entry| (entry.value, entry.revision))
}

async fn gone(bucket: &dyn Kv, key: &str) {
    until("the key expires", async || value(bucket, key).await.is_none().then_some(())).await;
}

/// Create needs an absent key.
pub async fn create_on_an_existing_key_is_refused(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    let revision = bucket.create("key", "1".into()).await.expect("created");
    assert_conflict(bucket.create("key", "2".into()).await);
    assert_eq!(value(&*bucket, "key").await, Some(("1".into(), revision)));
}

/// A deleted key is absent.
pub async fn a_key_can_be_created_again_after_it_was_deleted(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    let first = bucket.create("key", "1".into()).await.expect("created");
    bucket.delete("key", first).await.expect("deleted");
    assert_eq!(value(&*bucket, "key").await, None);
    let second = bucket.create("key", "2".into()).await.expect("created again");
    assert!(second > first);
    assert_eq!(value(&*bucket, "key").await, Some(("2".into(), second)));
    assert_conflict(bucket.create("key", "3".into()).await);
}

/// An expired key is absent.
pub async fn a_key_can_be_created_again_after_it_expired(fixture: &dyn Fixture) {
    let bucket = bucket_with_ttl(fixture, TTL).await;
    let first = bucket.create("key", "1".into()).await.expect("created");
    gone(&*bucket, "key").await;
    let second = bucket.create("key", "2".into()).await.expect("created again");
    assert!(second > first);
}

/// An expired key has no revision to compare with.
pub async fn an_expired_key_can_be_neither_updated_nor_deleted(fixture: &dyn Fixture) {
    let bucket = bucket_with_ttl(fixture, TTL).await;
    let revision = bucket.create("key", "1".into()).await.expect("created");
    gone(&*bucket, "key").await;
    let error = bucket.update("key", "2".into(), revision).await.expect_err("refused");
    assert!(matches!(error, Error::Conflict { found: None | Some(Revision(0)), .. }), "{error:?}");
    assert_conflict(bucket.delete("key", revision).await);
    assert_eq!(value(&*bucket, "key").await, None);
}

/// Update compares.
pub async fn update_with_a_wrong_revision_is_refused_and_changes_nothing(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    let first = bucket.create("key", "1".into()).await.expect("created");
    let second = bucket.update("key", "2".into(), first).await.expect("updated");
    assert_conflict(bucket.update("key", "3".into(), first).await);
    assert_conflict(bucket.update("key", "3".into(), Revision(second.0 + 1)).await);
    assert_conflict(bucket.update("absent", "3".into(), second).await);
    assert_eq!(value(&*bucket, "key").await, Some(("2".into(), second)));
    bucket.delete("key", second).await.expect("deleted");
    assert_conflict(bucket.update("key", "3".into(), second).await);
}

/// Delete compares.
pub async fn delete_with_a_wrong_revision_is_refused_and_changes_nothing(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    let first = bucket.create("key", "1".into()).await.expect("created");
    let second = bucket.update("key", "2".into(), first).await.expect("updated");
    assert_conflict(bucket.delete("key", first).await);
    assert_conflict(bucket.delete("absent", second).await);
    assert_eq!(value(&*bucket, "key").await, Some(("2".into(), second)));
    bucket.delete("key", second).await.expect("deleted");
    assert_conflict(bucket.delete("key", second).await);
}

/// A revision names one write of the bucket.
pub async fn revisions_grow_over_all_keys_and_times_do_not_fall(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    let mut last = (Revision(0), 0);
    for key in ["a", "b", "a", "c", "b"] {
        let revision = bucket.put(key, "x".into()).await.expect("put");
        let entry = bucket.get(key).await.expect("an answer").expect("a value");
        assert_eq!(entry.revision, revision);
        assert!(entry.revision > last.0 && entry.stored_at >= last.1, "{entry:?} after {last:?}");
        last = (entry.revision, entry.stored_at);
    }
    let year_2020 = 1_577_836_800_000_000;
    assert!(last.1 > year_2020, "{} are no microseconds since 1970", last.1);
}

/// The store time of a claim is a worker's incarnation.
pub async fn the_time_of_a_revision_is_known_while_it_is_the_value(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    let first = bucket.create("key", "1".into()).await.expect("created");
    let entry = bucket.get("key").await.expect("an answer").expect("a value");
    assert_eq!(bucket.stored_at("key", first).await, Ok(Some(entry.stored_at)));
    bucket.update("key", "2".into(), first).await.expect("updated");
    assert_eq!(bucket.stored_at("key", first).await, Ok(None));
}

/// Deleted keys are not listed.
pub async fn keys_are_those_that_have_a_value(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    assert_eq!(bucket.keys().await, Ok(BTreeSet::new()));
    bucket.put("a", "1".into()).await.expect("put");
    bucket.put("b.c", "1".into()).await.expect("put");
    let revision = bucket.put("d", "1".into()).await.expect("put");
    bucket.delete("d", revision).await.expect("deleted");
    assert_eq!(bucket.keys().await, Ok(BTreeSet::from(["a".to_owned(), "b.c".to_owned()])));
}

/// Create is atomic.
pub async fn of_ten_creators_one_wins(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    let creators = (0..10).map(|n: u8| {
        let bucket = bucket.clone();
        tokio::spawn(async move { bucket.create("key", vec![n].into()).await })
    });
    let mut winners = 0;
    for creator in creators.collect::<Vec<_>>() {
        match creator.await.expect("no panic") {
            Ok(_) => winners += 1,
            result => assert_conflict(result),
        }
    }
    assert_eq!(winners, 1);
}

/// Update is atomic.
pub async fn of_concurrent_updates_none_is_lost(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    bucket.create("count", Bytes::from_static(&[0])).await.expect("created");
    let workers = (0..4).map(|_| {
        let bucket = bucket.clone();
        tokio::spawn(async move {
            for _ in 0..10 {
                loop {
                    let (value, revision) = value(&*bucket, "count").await.expect("a value");
                    match bucket.update("count", vec![value[0] + 1].into(), revision).await {
                        Ok(_) => break,
                        result => assert_conflict(result),
                    }
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("no panic");
    }
    assert_eq!(value(&*bucket, "count").await.expect("a value").0[0], 40);
}

/// Old values first, then the mark, then news.
pub async fn a_watch_tells_what_is_there_then_what_changes_in_order(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    bucket.put("a", "old".into()).await.expect("put");
    let deleted = bucket.put("b", "old".into()).await.expect("put");
    let a = bucket.put("a", "1".into()).await.expect("put");
    bucket.delete("b", deleted).await.expect("deleted");

    let mut watch = bucket.watch().await.expect("a watch");
    match next(&mut watch).await {
        WatchEvent::Put(entry) => {
            assert_eq!((&*entry.key, entry.revision, &entry.value[..]), ("a", a, b"1".as_slice()));
            assert_eq!(bucket.stored_at("a", a).await, Ok(Some(entry.stored_at)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(next(&mut watch).await, WatchEvent::Current);

    let mut last = a;
    for n in 0..20_u8 {
        let revision = bucket.put(&format!("key-{n}"), vec![n].into()).await.expect("put");
        match next(&mut watch).await {
            WatchEvent::Put(entry) => assert_eq!((entry.revision, entry.value[0]), (revision, n)),
            other => panic!("{other:?}"),
        }
        last = revision;
    }
    bucket.delete("key-19", last).await.expect("deleted");
    match next(&mut watch).await {
        WatchEvent::Delete { key, revision } => assert!(key == "key-19" && revision > last),
        other => panic!("{other:?}"),
    }
}

/// Nothing to tell is told too.
pub async fn a_watch_of_an_empty_bucket_is_current_at_once(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    let mut watch = bucket.watch().await.expect("a watch");
    assert_eq!(next(&mut watch).await, WatchEvent::Current);
}

/// Whoever is slow is told all the same, and holds nobody up.
pub async fn a_watch_that_is_read_late_misses_nothing(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    let mut watch = bucket.watch().await.expect("a watch");
    assert_eq!(next(&mut watch).await, WatchEvent::Current);
    let mut written = Vec::new();
    for n in 0..300 {
        written.push(bucket.put(&format!("key-{n}"), vec![7; 4096].into()).await.expect("put"));
    }
    for revision in written {
        let event = next(&mut watch).await;
        assert!(matches!(&event, WatchEvent::Put(entry) if entry.revision == revision), "{event:?}");
    }
}

/// The commits of a cursor can be read from its bucket afterwards.
pub async fn a_bucket_keeps_as_many_values_of_a_key_as_it_was_told(fixture: &dyn Fixture) {
    let config = BucketConfig { history: 3, ..BucketConfig::new(unique("bucket")) };
    let bucket = fixture.backend().bucket(&config).await.expect("a bucket");
    let mut revisions = Vec::new();
    for n in 0..5_u8 {
        revisions.push(bucket.put("key", vec![n].into()).await.expect("put"));
    }
    let mut watch = bucket.watch_after(revisions[0]).await.expect("a watch");
    for revision in &revisions[2..] {
        let event = next(&mut watch).await;
        assert!(matches!(&event, WatchEvent::Put(entry) if entry.revision == *revision), "{event:?}");
    }
    assert_eq!(next(&mut watch).await, WatchEvent::Current);
}

/// Silence is not counted by the broker.
pub async fn a_watch_does_not_tell_of_expiry(fixture: &dyn Fixture) {
    let bucket = bucket_with_ttl(fixture, TTL).await;
    let mut watch = bucket.watch().await.expect("a watch");
    assert_eq!(next(&mut watch).await, WatchEvent::Current);
    bucket.put("short", "1".into()).await.expect("put");
    assert!(matches!(next(&mut watch).await, WatchEvent::Put(entry) if entry.key == "short"));
    gone(&*bucket, "short").await;
    bucket.put("next", "1".into()).await.expect("put");
    let event = next(&mut watch).await;
    assert!(matches!(&event, WatchEvent::Put(entry) if entry.key == "next"), "{event:?}");
}

/// What happens while the watch is cut off is told when it is back, once.
pub async fn a_watch_resumes_without_loss_or_repeat(fixture: &dyn Fixture) {
    let config = BucketConfig::new(unique("bucket"));
    let bucket = fixture.backend().bucket(&config).await.expect("a bucket");
    let before = bucket.create("before", "1".into()).await.expect("created");
    let mut watch = bucket.watch().await.expect("a watch");
    assert!(matches!(next(&mut watch).await, WatchEvent::Put(entry) if entry.revision == before));
    assert_eq!(next(&mut watch).await, WatchEvent::Current);

    let was_cut = fixture.disconnect().await;
    let mut expected: Vec<String> = Vec::new();
    if let Some(beside) = fixture.second_connection() {
        let bucket = beside.bucket(&config).await.expect("a bucket");
        for n in 0..10 {
            bucket.create(&format!("meanwhile-{n}"), "1".into()).await.expect("created");
            expected.push(format!("meanwhile-{n}"));
        }
        bucket.delete("before", before).await.expect("deleted");
        expected.push("before".to_owned());
    }
    fixture.reconnect().await;
    for n in 0..10 {
        create_with_retries(&*bucket, &format!("after-{n}")).await;
        expected.push(format!("after-{n}"));
    }

    let (mut told, mut last, mut resumed) = (Vec::new(), before, 0);
    soon("all changes are told", async {
        while told.len() < expected.len() || (was_cut && resumed == 0) {
            let (key, revision) = match next(&mut watch).await {
                WatchEvent::Put(entry) => (entry.key, entry.revision),
                WatchEvent::Delete { key, revision } => (key, revision),
                WatchEvent::Resumed { replaced } => {
                    assert!(!replaced);
                    resumed += 1;
                    continue;
                }
                WatchEvent::Current => continue,
            };
            assert!(revision > last, "{key} at {revision:?} after {last:?}");
            last = revision;
            told.push(key);
        }
    })
    .await;
    assert_eq!(told, expected);
    assert_eq!(resumed > 0, was_cut);
}

/// One limit for all backends.
pub async fn a_value_that_is_too_large_is_refused(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    let revision = bucket.put("key", vec![7; VALUE_BYTES_MAX].into()).await.expect("the largest value");
    assert_eq!(value(&*bucket, "key").await.expect("a value").0.len(), VALUE_BYTES_MAX);
    for result in [
        bucket.put("key", vec![7; VALUE_BYTES_MAX + 1].into()).await,
        bucket.create("new", vec![7; VALUE_BYTES_MAX + 1].into()).await,
        bucket.update("key", vec![7; 2 * VALUE_BYTES_MAX].into(), revision).await,
    ] {
        assert!(matches!(result, Err(Error::TooLarge { limit: VALUE_BYTES_MAX, .. })), "{result:?}");
    }
}

/// What one backend cannot name, none takes.
pub async fn a_bad_key_is_refused(fixture: &dyn Fixture) {
    let bucket = bucket(fixture).await;
    for key in ["", "a:b", "a b", ".a", "a..b", "*", ">"] {
        let result = bucket.put(key, "1".into()).await;
        assert!(matches!(result, Err(Error::Invalid { .. })), "{key:?}: {result:?}");
        assert!(bucket.get(key).await.is_err(), "{key:?}");
    }
}

/// Opening a bucket never changes its description; describing it changes nothing else.
pub async fn the_description_of_a_bucket_is_set_once_and_changed_alone(fixture: &dyn Fixture) {
    let backend = fixture.backend();
    let name = unique("bucket");
    let described = |description: Option<&str>| BucketConfig {
        description: description.map(str::to_owned),
        ..BucketConfig::new(&name)
    };
    let bucket = backend.bucket(&described(Some("first"))).await.expect("a bucket");
    let revision = bucket.create("key", "value".into()).await.expect("a value");
    backend.bucket(&described(Some("second"))).await.expect("the same bucket");
    let description = async || backend.description(StoreKind::Bucket, &name).await.expect("a description");
    assert_eq!(description().await, "first");
    backend.describe(StoreKind::Bucket, &name, "third").await.expect("a description");
    assert_eq!(description().await, "third");
    let kept = bucket.get("key").await.expect("a value").expect("a value");
    assert_eq!((kept.revision, &kept.value[..]), (revision, &b"value"[..]));
    let plain = unique("bucket");
    backend.bucket(&BucketConfig::new(&plain)).await.expect("a bucket");
    assert_eq!(backend.description(StoreKind::Bucket, &plain).await.expect("none"), "");
}
