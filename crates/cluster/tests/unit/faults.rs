//! Each kind of fault, and what it does to somebody who does not expect it.

use std::sync::Arc;

use phalanx_cluster::backend::faults::{self, Fault, Faults, Op};
use phalanx_cluster::backend::{
    AppendCondition, BucketConfig, Embedded, Error, Kv, Log, LogConfig, Watch, WatchEvent,
};
use phalanx_testkit::wait::{end_of, until_async};

async fn bucket() -> (Arc<dyn Kv>, Faults) {
    let (backend, faults) = faults::wrap(Arc::new(Embedded::in_memory().unwrap()));
    (backend.bucket(&BucketConfig::new("b")).await.unwrap(), faults)
}

async fn log() -> (Arc<dyn Log>, Faults) {
    let (backend, faults) = faults::wrap(Arc::new(Embedded::in_memory().unwrap()));
    (backend.log(&LogConfig::new("l", ["l.*"])).await.unwrap(), faults)
}

async fn next(watch: &mut Watch) -> WatchEvent {
    end_of("an event", watch.next()).await.expect("the watch has not ended")
}

async fn value(bucket: &dyn Kv) -> Option<bytes::Bytes> {
    bucket.get("key").await.unwrap().map(|entry| entry.value)
}

fn assert_unknown<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Unknown { .. })), "{result:?}");
}

#[tokio::test]
async fn a_dropped_write_does_not_happen_and_nobody_says_so() {
    let (bucket, faults) = bucket().await;
    faults.inject(Op::Write, "key", Fault::Drop);
    assert_unknown(bucket.put("key", "1".into()).await);
    assert_eq!(value(&*bucket).await, None);
    bucket.put("key", "2".into()).await.unwrap();
    assert_eq!(faults.occurred(), [(Op::Write, "key".to_owned(), Fault::Drop)]);
}

#[tokio::test]
async fn a_lost_answer_hides_a_write_that_happened() {
    let (bucket, faults) = bucket().await;
    faults.inject(Op::Write, "key", Fault::LoseAnswer);
    assert_unknown(bucket.put("key", "1".into()).await);
    assert_eq!(value(&*bucket).await, Some("1".into()));
}

#[tokio::test]
async fn a_write_that_timed_out_lands_later_and_only_a_swap_keeps_it_out() {
    let (bucket, faults) = bucket().await;
    let first = bucket.create("key", "1".into()).await.unwrap();
    faults.inject(Op::Write, "key", Fault::Late);
    faults.inject(Op::Write, "key", Fault::Late);
    assert_unknown(bucket.update("key", "swapped late".into(), first).await);
    assert_unknown(bucket.put("key", "put late".into()).await);
    bucket.update("key", "2".into(), first).await.unwrap();
    let landed = faults.apply_late_writes().await;
    // The guard is the comparison: without it the late value wins.
    assert!(matches!(landed[..], [Err(Error::Conflict { .. }), Ok(())]), "{landed:?}");
    assert_eq!(value(&*bucket).await, Some("put late".into()));
    assert_eq!(faults.apply_late_writes().await.len(), 0);
}

#[tokio::test]
async fn a_delayed_write_waits_for_its_release() {
    let (bucket, faults) = bucket().await;
    faults.inject(Op::Write, "key", Fault::Delay);
    let write = tokio::spawn({
        let bucket = bucket.clone();
        async move { bucket.put("key", "1".into()).await }
    });
    faults.wait_for_delayed(1).await;
    assert_eq!(value(&*bucket).await, None);
    faults.release();
    write.await.unwrap().unwrap();
    assert_eq!(value(&*bucket).await, Some("1".into()));
}

#[tokio::test]
async fn a_duplicated_append_is_stored_twice_unless_it_has_an_id() {
    let (log, faults) = log().await;
    faults.inject(Op::Write, "l.a", Fault::Duplicate);
    let first = log.append("l.a", "1".into(), AppendCondition::NewId("m")).await.unwrap();
    assert!(!first.duplicate);
    assert_eq!(log.info().await.unwrap().messages, 1);
    faults.inject(Op::Write, "l.a", Fault::Duplicate);
    log.append("l.a", "2".into(), AppendCondition::None).await.unwrap();
    assert_eq!(log.info().await.unwrap().messages, 3);
}

#[tokio::test]
async fn a_stale_read_shows_the_value_before_the_last_write() {
    let (bucket, faults) = bucket().await;
    let first = bucket.create("key", "1".into()).await.unwrap();
    bucket.update("key", "2".into(), first).await.unwrap();
    faults.inject(Op::Read, "key", Fault::Stale);
    let stale = bucket.get("key").await.unwrap().unwrap();
    assert_eq!((stale.value, stale.revision), ("1".into(), first));
    // The guard is the comparison: what was decided on the old value is refused.
    assert!(bucket.update("key", "3".into(), stale.revision).await.unwrap_err().is_conflict());
    assert_eq!(value(&*bucket).await, Some("2".into()));
}

#[tokio::test]
async fn a_stale_log_ends_too_early_and_the_leader_knows_better() {
    let (log, faults) = log().await;
    for payload in ["1", "2"] {
        log.append("l.a", payload.into(), AppendCondition::None).await.unwrap();
    }
    faults.inject(Op::Read, "l.a", Fault::Stale);
    assert_eq!(log.read("l.a", 1, 2).await.unwrap().len(), 1);
    assert_eq!(log.next("l.a", 2).await.unwrap().map(|message| message.sequence), Some(2));
}

#[tokio::test]
async fn a_cut_connection_refuses_everything_and_changes_nothing() {
    let (bucket, faults) = bucket().await;
    faults.disconnect();
    assert!(matches!(bucket.put("key", "1".into()).await, Err(Error::Failed { .. })));
    assert!(matches!(bucket.get("key").await, Err(Error::Failed { .. })));
    faults.reconnect();
    assert_eq!(value(&*bucket).await, None);
}

#[tokio::test]
async fn events_of_a_watch_can_be_lost_doubled_and_delayed() {
    let (bucket, faults) = bucket().await;
    let mut watch = bucket.watch().await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::Current);
    faults.inject(Op::Event, "lost", Fault::Drop);
    faults.inject(Op::Event, "double", Fault::Duplicate);
    faults.inject(Op::Event, "late", Fault::Delay);
    for key in ["lost", "double", "late"] {
        bucket.put(key, "1".into()).await.unwrap();
    }
    for _ in 0..2 {
        assert!(matches!(next(&mut watch).await, WatchEvent::Put(entry) if entry.key == "double"));
    }
    faults.wait_for_delayed(1).await;
    faults.release();
    assert!(matches!(next(&mut watch).await, WatchEvent::Put(entry) if entry.key == "late"));
}

#[tokio::test]
async fn a_poll_finds_the_message_of_a_lost_wake_up() {
    let (log, faults) = log().await;
    let mut wake_ups = log.subscribe_wake_ups("l.a").await.unwrap();
    faults.inject(Op::WakeUp, "l.a", Fault::Drop);
    log.append("l.a", "1".into(), AppendCondition::None).await.unwrap();
    until_async("the wake-up is lost", async || (!faults.occurred().is_empty()).then_some(())).await;
    assert_eq!(log.read("l.a", 1, 1).await.unwrap().len(), 1);
    log.append("l.a", "2".into(), AppendCondition::None).await.unwrap();
    assert!(end_of("a wake-up", wake_ups.recv()).await);
}
