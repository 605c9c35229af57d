//! Facts about logs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Fixture, log_config, open_log, soon, until};
use crate::backend::validate::VALUE_BYTES_MAX;
use crate::backend::{AppendCondition, BucketConfig, Error, Log, LogConfig, Message, StoreKind};

fn subject(config: &LogConfig, token: &str) -> String {
    format!("{}.{token}", config.name)
}

async fn append(log: &dyn Log, subject: &str, payload: &'static str) -> u64 {
    log.append(subject, payload.into(), AppendCondition::None).await.expect("appended").sequence
}

fn payloads(messages: &[Message]) -> Vec<(u64, &[u8])> {
    messages.iter().map(|message| (message.sequence, &message.payload[..])).collect()
}

/// Reads a subject until it has so many messages: an answer may come from a replica that is behind.
async fn read(log: &dyn Log, subject: &str, from: u64, limit: usize, count: usize) -> Vec<Message> {
    until("the messages are read", async || {
        let messages = log.read(subject, from, limit).await.expect("messages");
        (messages.len() >= count).then_some(messages)
    })
    .await
}

/// The start is inclusive: the first must be the one that the cursor names.
pub async fn messages_are_read_from_a_sequence_on_it_included(fixture: &dyn Fixture) {
    let config = log_config();
    let log = open_log(fixture, &config).await;
    let (a, b) = (subject(&config, "a"), subject(&config, "b"));
    for payload in ["1", "2", "3"] {
        append(&*log, &a, payload).await;
        append(&*log, &b, "other").await;
    }
    let all = read(&*log, &a, 1, 10, 3).await;
    assert_eq!(payloads(&all), [(1, b"1".as_slice()), (3, b"2"), (5, b"3")]);
    assert!(all.iter().all(|message| message.subject == a));
    assert!(all.is_sorted_by_key(|message| message.stored_at));
    assert_eq!(payloads(&read(&*log, &a, 3, 2, 2).await), [(3, b"2".as_slice()), (5, b"3")]);
    assert_eq!(payloads(&read(&*log, &a, 3, 1, 1).await), [(3, b"2".as_slice())]);
    assert_eq!(log.read(&a, 6, 2).await, Ok(vec![]));
    assert_eq!(log.read(&subject(&config, "none"), 1, 2).await, Ok(vec![]));
    let last = log.last(&a).await.expect("an answer").expect("a message");
    assert_eq!((last.sequence, &last), (5, &all[2]));
    assert_eq!(log.last(&subject(&config, "none")).await, Ok(None));
}

/// Sequences count over all subjects, so those of one have gaps.
pub async fn the_next_message_is_found_over_gaps(fixture: &dyn Fixture) {
    let config = log_config();
    let log = open_log(fixture, &config).await;
    let (a, b) = (subject(&config, "a"), subject(&config, "b"));
    append(&*log, &a, "1").await;
    for _ in 0..50 {
        append(&*log, &b, "other").await;
    }
    let far = append(&*log, &a, "2").await;
    assert_eq!(far, 52);
    for from in [2, 30, 52] {
        let found = log.next(&a, from).await.expect("an answer").expect("a message");
        assert_eq!((found.sequence, &found.payload[..]), (far, b"2".as_slice()));
        assert_eq!(read(&*log, &a, from, 2, 1).await, [found]);
    }
    assert_eq!(log.next(&a, far + 1).await, Ok(None));
}

/// De-duplication is by log.
pub async fn a_message_id_is_taken_once_whatever_the_subject(fixture: &dyn Fixture) {
    let config = log_config();
    let log = open_log(fixture, &config).await;
    let (a, b) = (subject(&config, "a"), subject(&config, "b"));
    let first = log.append(&a, "1".into(), AppendCondition::NewId("t:c:1")).await.expect("appended");
    assert!(!first.duplicate);
    for subject in [&a, &b] {
        let again = log.append(subject, "2".into(), AppendCondition::NewId("t:c:1")).await.expect("answered");
        assert_eq!((again.sequence, again.duplicate), (first.sequence, true));
    }
    let other = log.append(&b, "3".into(), AppendCondition::NewId("t:c:2")).await.expect("appended");
    assert_eq!((other.sequence, other.duplicate), (2, false));
    assert_eq!(log.info().await.expect("info").messages, 2);
    let result = log.append(&a, "1".into(), AppendCondition::NewId("")).await;
    assert!(matches!(result, Err(Error::Invalid { .. })), "{result:?}");
}

/// A dead letter is written once.
pub async fn an_append_that_wants_an_empty_subject_is_refused_on_another(fixture: &dyn Fixture) {
    let config = log_config();
    let log = open_log(fixture, &config).await;
    let (a, b) = (subject(&config, "a"), subject(&config, "b"));
    log.append(&a, "1".into(), AppendCondition::EmptySubject).await.expect("appended");
    let again = log.append(&a, "1".into(), AppendCondition::EmptySubject).await;
    assert!(matches!(again, Err(Error::Conflict { .. })), "{again:?}");
    log.append(&b, "1".into(), AppendCondition::EmptySubject).await.expect("appended");
    assert_eq!(log.info().await.expect("info").messages, 2);
}

/// One limit for all backends.
pub async fn a_message_that_is_too_large_is_refused(fixture: &dyn Fixture) {
    let config = log_config();
    let log = open_log(fixture, &config).await;
    let a = subject(&config, "a");
    log.append(&a, vec![7; VALUE_BYTES_MAX].into(), AppendCondition::NewId("largest"))
        .await
        .expect("the largest message");
    let result = log.append(&a, vec![7; VALUE_BYTES_MAX + 1].into(), AppendCondition::None).await;
    assert!(matches!(result, Err(Error::TooLarge { limit: VALUE_BYTES_MAX, .. })), "{result:?}");
    assert_eq!(read(&*log, &a, 1, 2, 1).await[0].payload.len(), VALUE_BYTES_MAX);
}

/// What no log of this name takes must not end in another.
pub async fn a_subject_of_another_log_is_refused(fixture: &dyn Fixture) {
    let (config, other) = (log_config(), log_config());
    let (log, beside) = (open_log(fixture, &config).await, open_log(fixture, &other).await);
    let result = log.append(&subject(&other, "a"), "1".into(), AppendCondition::None).await;
    assert!(matches!(result, Err(Error::Invalid { .. })), "{result:?}");
    assert_eq!(beside.info().await.expect("info").last, 0);
}

/// The publisher hears of it; nothing old is thrown away.
pub async fn a_full_log_refuses_what_is_new(fixture: &dyn Fixture) {
    let config = LogConfig { max_messages: Some(2), ..log_config() };
    let log = open_log(fixture, &config).await;
    let a = subject(&config, "a");
    append(&*log, &a, "1").await;
    append(&*log, &a, "2").await;
    let result = log.append(&a, "3".into(), AppendCondition::None).await;
    assert!(matches!(result, Err(Error::Failed { .. })), "{result:?}");
    assert_eq!(payloads(&read(&*log, &a, 1, 9, 2).await), [(1, b"1".as_slice()), (2, b"2")]);
}

/// Loss by age can be told from silence.
pub async fn messages_expire_and_the_first_sequence_says_so(fixture: &dyn Fixture) {
    let config = LogConfig {
        max_age: Some(Duration::from_secs(1)),
        duplicate_window: Duration::from_millis(500),
        ..log_config()
    };
    let log = open_log(fixture, &config).await;
    let a = subject(&config, "a");
    let empty = log.info().await.expect("info");
    assert_eq!((empty.last, empty.messages), (0, 0));
    append(&*log, &a, "1").await;
    append(&*log, &a, "2").await;
    let info = log.info().await.expect("info");
    assert_eq!((info.first, info.last, info.messages), (1, 2, 2));
    let info = until("the messages expire", async || {
        Some(log.info().await.expect("info")).filter(|info| info.messages == 0)
    })
    .await;
    assert_eq!((info.first, info.last), (3, 2));
    assert_eq!(log.next(&a, 1).await, Ok(None));
    assert_eq!(append(&*log, &a, "3").await, 3);
}

/// Subjects with messages are found without a list.
pub async fn subjects_are_listed_with_their_counts(fixture: &dyn Fixture) {
    let config = log_config();
    let log = open_log(fixture, &config).await;
    assert_eq!(log.subjects().await, Ok(BTreeMap::new()));
    let (a, b) = (subject(&config, "a"), subject(&config, "b"));
    for subject in [&a, &b, &a] {
        append(&*log, subject, "1").await;
    }
    assert_eq!(log.subjects().await, Ok(BTreeMap::from([(a, 2), (b, 1)])));
}

/// Dead letters can be put away.
pub async fn a_message_that_is_removed_is_gone_alone(fixture: &dyn Fixture) {
    let config = log_config();
    let log = open_log(fixture, &config).await;
    let a = subject(&config, "a");
    for payload in ["1", "2", "3"] {
        append(&*log, &a, payload).await;
    }
    assert_eq!(log.remove(2).await, Ok(true));
    assert_eq!(log.remove(2).await, Ok(false), "it is gone already");
    assert_eq!(log.remove(9).await, Ok(false), "it never was");
    assert_eq!(log.next(&a, 2).await.expect("an answer").map(|found| found.sequence), Some(3));
    assert_eq!(log.subjects().await, Ok(BTreeMap::from([(a.clone(), 2)])));
    let info = log.info().await.expect("info");
    assert_eq!((info.last, info.messages), (3, 2));
    assert_eq!(append(&*log, &a, "4").await, 4);
}

/// A ring says that there is something to read.
pub async fn a_wake_up_arrives_for_its_subject(fixture: &dyn Fixture) {
    let config = log_config();
    let log = open_log(fixture, &config).await;
    let (a, b) = (subject(&config, "a"), subject(&config, "b"));
    let mut bell = log.subscribe_wake_ups(&a).await.expect("a bell");
    let mut other = log.subscribe_wake_ups(&b).await.expect("a bell");
    for _ in 0..3 {
        append(&*log, &a, "1").await;
        assert!(soon("a ring", bell.recv()).await);
    }
    let more = tokio::time::timeout(Duration::from_millis(50), other.recv()).await;
    assert!(more.is_err(), "it rang for another subject");
    append(&*log, &b, "1").await;
    assert!(soon("a ring", other.recv()).await);
}

/// Positions of another log mean nothing.
pub async fn a_log_made_anew_has_another_identity(fixture: &dyn Fixture) {
    let config = log_config();
    let log = open_log(fixture, &config).await;
    let a = subject(&config, "a");
    append(&*log, &a, "1").await;
    append(&*log, &a, "2").await;
    let before = log.info().await.expect("info");
    fixture.remove_log(&config.name).await;
    until("the log is made anew", async || fixture.backend().log(&config).await.ok()).await;
    let after = log.info().await.expect("info");
    assert_ne!(before.created, after.created);
    assert_eq!((after.last, after.messages), (0, 0));
    assert_eq!(append(&*log, &a, "3").await, 1);
}

/// Nobody waits for ever for a log that is gone.
pub async fn a_removed_log_is_named(fixture: &dyn Fixture) {
    let config = log_config();
    let log = open_log(fixture, &config).await;
    let a = subject(&config, "a");
    append(&*log, &a, "1").await;
    fixture.remove_log(&config.name).await;
    let error = until("its absence is noticed", async || log.info().await.err()).await;
    assert!(matches!(&error, Error::Missing { .. }) && error.to_string().contains(&config.name), "{error:?}");
    let error = log.append(&a, "2".into(), AppendCondition::None).await.expect_err("nowhere to append");
    assert!(matches!(&error, Error::Missing { .. }), "{error:?}");
}

/// A log has a description of its own, also if a bucket has the same name; a log that is recreated has a new one.
pub async fn the_description_of_a_log_is_its_own(fixture: &dyn Fixture) {
    let backend = fixture.backend();
    let config = LogConfig { description: Some("a log".to_owned()), ..log_config() };
    let bucket = BucketConfig { description: Some("a bucket".to_owned()), ..BucketConfig::new(&config.name) };
    backend.bucket(&bucket).await.expect("a bucket");
    let log = open_log(fixture, &config).await;
    let description =
        async || backend.description(StoreKind::Log, &config.name).await.expect("a description");
    assert_eq!(description().await, "a log");
    backend.describe(StoreKind::Log, &config.name, "another").await.expect("a description");
    assert_eq!(description().await, "another");
    assert_eq!(log.info().await.expect("the log").last, 0);
    fixture.remove_log(&config.name).await;
    until("the log is created again", async || backend.log(&config).await.ok()).await;
    assert_eq!(description().await, "a log");
}
