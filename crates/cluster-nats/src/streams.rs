//! Streams and buckets as they must be: made if absent, refused if they differ.

use std::fmt::Debug;
use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use phalanx_cluster::backend::{BucketConfig, Error, LogConfig, StoreKind};
use serde_json::Value;

use crate::connection::{Connection, RequestError};

/// A cluster that has just started needs a while before it makes its first stream.
const CREATE_TIMEOUT: Duration = Duration::from_secs(30);
const TRY_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_DELAY: Duration = Duration::from_millis(200);
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

const NAME_IN_USE: u64 = 10058;
/// Not enough servers of the cluster have been heard yet.
const NO_SUITABLE_PEERS: u64 = 10005;

pub(crate) fn bucket_stream(bucket: &str) -> String {
    format!("KV_{bucket}")
}

pub(crate) fn stream_of(kind: StoreKind, name: &str) -> String {
    match kind {
        StoreKind::Bucket => bucket_stream(name),
        StoreKind::Log => name.to_owned(),
    }
}

/// Returns the configuration of a stream as the server has it, with fields that this version does not know.
pub(crate) async fn config(connection: &Connection, stream: &str) -> Result<Value, Error> {
    let info: Result<Value, _> = connection.api(&format!("STREAM.INFO.{stream}"), &Value::Null).await;
    match info {
        Ok(mut info) => Ok(info["config"].take()),
        Err(trouble) => Err(trouble.into_read_error(format!("configuration of {stream}"), stream)),
    }
}

/// Replaces the description of a stream, and changes nothing else of it.
pub(crate) async fn describe(connection: &Connection, stream: &str, description: &str) -> Result<(), Error> {
    let mut config = config(connection, stream).await?;
    config["description"] = description.into();
    let updated: Result<Value, _> = connection.api(&format!("STREAM.UPDATE.{stream}"), &config).await;
    updated.map(drop).map_err(|trouble| trouble.into_write_error(format!("description of {stream}"), stream))
}

pub(crate) fn bucket_config(config: &BucketConfig, replicas: usize) -> Config {
    let max_age = config.ttl.unwrap_or_default();
    Config {
        name: bucket_stream(&config.name),
        description: config.description.clone(),
        subjects: vec![format!("$KV.{}.>", config.name)],
        max_messages_per_subject: config.history.into(),
        max_age,
        duplicate_window: if max_age.is_zero() { DUPLICATE_WINDOW } else { DUPLICATE_WINDOW.min(max_age) },
        allow_rollup: true,
        deny_delete: true,
        ..common(replicas)
    }
}

pub(crate) fn log_config(config: &LogConfig, replicas: usize) -> Config {
    let limit = |limit: Option<u64>| limit.and_then(|limit| i64::try_from(limit).ok()).unwrap_or(-1);
    Config {
        name: config.name.clone(),
        description: config.description.clone(),
        subjects: config.subjects.clone(),
        max_messages_per_subject: -1,
        max_age: config.max_age.unwrap_or_default(),
        max_messages: limit(config.max_messages),
        max_bytes: limit(config.max_bytes),
        duplicate_window: config.duplicate_window,
        ..common(replicas)
    }
}

fn common(replicas: usize) -> Config {
    Config {
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        storage: StorageType::File,
        num_replicas: replicas,
        allow_direct: true,
        max_messages: -1,
        max_bytes: -1,
        max_consumers: -1,
        max_message_size: -1,
        ..Config::default()
    }
}

/// Makes the stream if it is absent, and refuses one that differs where it matters.
pub(crate) async fn ensure(connection: &Connection, wanted: &Config) -> Result<(), Error> {
    let name = &wanted.name;
    let what = format!("opening the stream {name}");
    let deadline = tokio::time::Instant::now() + CREATE_TIMEOUT;
    loop {
        let trouble = match get_or_create(connection, wanted).await {
            Ok(found) if has_leader(&found) => return compare(&what, wanted, &found.config),
            Ok(_) => RequestError::NoResponders,
            Err(trouble) => trouble,
        };
        let passes = matches!(
            trouble,
            RequestError::NoResponse(_) | RequestError::NoResponders | RequestError::NotSent
        ) || trouble.code() == Some(NO_SUITABLE_PEERS);
        if !passes || tokio::time::Instant::now() > deadline {
            return Err(trouble.into_read_error(what, name));
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

async fn get_or_create(connection: &Connection, wanted: &Config) -> Result<Info, RequestError> {
    let name = &wanted.name;
    let info = async || connection.api::<Info>(&format!("STREAM.INFO.{name}"), &Value::Null).await;
    match info().await {
        Err(trouble) if trouble.is_missing() => {}
        found => return found,
    }
    let body = serde_json::to_vec(wanted).map_err(|e| RequestError::InvalidRequest(e.to_string()))?;
    let made = connection.api_within(TRY_TIMEOUT, &format!("STREAM.CREATE.{name}"), body.into()).await;
    match made {
        // Somebody else was faster, and perhaps of another opinion.
        Err(trouble) if trouble.code() == Some(NAME_IN_USE) => info().await,
        made => made,
    }
}

/// Whether it can be used: of one server, at once; of a cluster, when the servers that keep it have chosen.
fn has_leader(info: &Info) -> bool {
    info.cluster.as_ref().is_none_or(|cluster| cluster.leader.is_some())
}

fn compare(what: &str, wanted: &Config, found: &Config) -> Result<(), Error> {
    let mut differences = Vec::new();
    fn note<T: PartialEq + Debug>(differences: &mut Vec<String>, name: &str, found: &T, wanted: &T) {
        if found != wanted {
            differences.push(format!("{name} is {found:?}, must be {wanted:?}"));
        }
    }
    let notes = &mut differences;
    note(notes, "subjects", &sorted(&found.subjects), &sorted(&wanted.subjects));
    note(notes, "retention", &found.retention, &wanted.retention);
    note(notes, "discard", &found.discard, &wanted.discard);
    note(notes, "storage", &found.storage, &wanted.storage);
    note(notes, "replicas", &found.num_replicas, &wanted.num_replicas);
    note(notes, "max age", &found.max_age, &wanted.max_age);
    note(notes, "duplicate window", &found.duplicate_window, &wanted.duplicate_window);
    note(notes, "history", &found.max_messages_per_subject, &wanted.max_messages_per_subject);
    note(notes, "direct get", &found.allow_direct, &wanted.allow_direct);
    // Limits that were not asked for are the operator's own.
    if wanted.max_messages >= 0 {
        note(notes, "max messages", &found.max_messages, &wanted.max_messages);
    }
    if wanted.max_bytes >= 0 {
        note(notes, "max bytes", &found.max_bytes, &wanted.max_bytes);
    }
    if differences.is_empty() {
        return Ok(());
    }
    let reason = format!(
        "it exists with other settings: {}; change them, remove it, or choose another name",
        differences.join("; ")
    );
    Err(Error::invalid(what, reason))
}

fn sorted(subjects: &[String]) -> Vec<&String> {
    let mut subjects: Vec<_> = subjects.iter().collect();
    subjects.sort();
    subjects
}
