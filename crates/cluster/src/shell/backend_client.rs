//! Requests to the backend: each with a time-out, each answered by an event.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::clock;
use super::hooks::HookQueue;
use super::leases::LeaseAdapter;
use super::problem::Problem;
use crate::backend::{
    self, Backend, Election, Error, Kv, KvElection, Log, StoreConfig, StoreKind, open_bucket, open_log,
};
use crate::codec::{self, Codec, Decoded, PartManifest};
use crate::core::types::{Entry, Key, PartitionList, Revision, Value};
use crate::core::{Condition, Event, Purpose, ReadError, RequestId, WriteError, Written};
use crate::names::{Bucket, BucketKey};

/// An answer that has not come by then does not count any more.
pub(super) const TIMEOUT: Duration = Duration::from_secs(2);
/// The same for taking the lease, which may have to find out first who keeps the leases now.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// An error is answered no sooner than this, so that whoever tries again at once does not spin.
const ERROR_DELAY: Duration = Duration::from_millis(100);
/// How many requests of one batch are under way at once.
pub(super) const MAX_PARALLEL_REQUESTS: usize = 64;
/// More cursors than this are not read one after the other.
const CURSOR_WATCH_THRESHOLD: usize = 1000;
/// Whatever fails again and again is told once in this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// A bucket that was removed is made again at most this often.
const RECREATE_INTERVAL: Duration = Duration::from_secs(1);

/// Everything that requests need.
pub(super) struct BackendClient {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) config: StoreConfig,
    stable_ids: Arc<dyn Kv>,
    heartbeats: Arc<dyn Kv>,
    assignments: Arc<dyn Kv>,
    election_bucket: Arc<dyn Kv>,
    pub(super) election: LeaseAdapter,
    cursors: Arc<dyn Kv>,
    /// The log and the dead letters, where there are some.
    pub(super) logs: Option<(Arc<dyn Log>, Arc<dyn Log>)>,
    pub(super) codec: Codec,
    pub(super) hooks: HookQueue,
    /// The newest time of the broker that was seen, in microseconds.
    broker_time: AtomicU64,
    last_report: Mutex<Option<Instant>>,
    last_recreation: Mutex<Option<Instant>>,
}

impl BackendClient {
    /// Opens what a worker uses: the buckets, and the logs if it reads one.
    pub(super) async fn open(
        backend: Arc<dyn Backend>,
        config: StoreConfig,
        with_log: bool,
        election: Option<Arc<dyn Election>>,
        hooks: HookQueue,
    ) -> Result<Self, Error> {
        let names = &config.names;
        let open = async |bucket: Bucket| open_bucket(&*backend, config.bucket(bucket), names).await;
        let election_bucket = open(Bucket::Election).await?;
        let election = election.unwrap_or_else(|| {
            Arc::new(KvElection::new(election_bucket.clone(), names.bucket_key(&Key::Lease).key))
        });
        let logs = match with_log {
            true => Some((
                open_log(&*backend, &config.log, names).await?,
                open_log(&*backend, &config.dead_letters, names).await?,
            )),
            false => None,
        };
        let client = Self {
            stable_ids: open(Bucket::StableIds).await?,
            heartbeats: open(Bucket::Heartbeats).await?,
            assignments: open(Bucket::Assignments).await?,
            election_bucket,
            election: LeaseAdapter::new(election, names.clone()),
            cursors: open(Bucket::Cursors).await?,
            logs,
            codec: Codec::new(names.clone()),
            hooks,
            broker_time: AtomicU64::new(0),
            last_report: Mutex::new(None),
            last_recreation: Mutex::new(None),
            backend,
            config,
        };
        client.check_map_group().await?;
        client.adopt_stores().await;
        Ok(client)
    }

    /// Refuses to start if the map names another group.
    async fn check_map_group(&self) -> Result<(), Error> {
        let Some(entry) = self.assignments.get(&self.bucket_key(&Key::Map).key).await? else { return Ok(()) };
        let group = self.config.names.group();
        match codec::group_of(&entry.value) {
            Some(owner) if owner != group => Err(Error::OtherGroup {
                name: format!("the map in bucket {}", self.config.assignments.name),
                owner,
                group: group.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Names this group in buckets and logs that name none: those of a version that knew no groups.
    async fn adopt_stores(&self) {
        let buckets = self.config.buckets().map(|bucket| (StoreKind::Bucket, &bucket.name));
        let logs = self.config.logs().map(|log| (StoreKind::Log, &log.name));
        let logs = logs.into_iter().filter(|_| self.logs.is_some());
        let mut adopted = Vec::new();
        for (kind, name) in buckets.into_iter().chain(logs) {
            match backend::adopt(&*self.backend, kind, name, &self.config.names).await {
                Ok(true) => adopted.push(format!("{kind} {name}")),
                Ok(false) => {}
                // The worker can do its work without a description.
                Err(error) => self.hooks.report(Problem::Backend(error)),
            }
        }
        if !adopted.is_empty() {
            let group = self.config.names.group().to_owned();
            self.hooks.report(Problem::StoresAdopted { group, stores: adopted });
        }
    }

    /// Returns the bucket and key of a value.
    pub(super) fn bucket_key(&self, key: &Key) -> BucketKey {
        self.config.names.bucket_key(key)
    }

    pub(super) fn bucket(&self, bucket: Bucket) -> &Arc<dyn Kv> {
        match bucket {
            Bucket::StableIds => &self.stable_ids,
            Bucket::Heartbeats => &self.heartbeats,
            Bucket::Assignments => &self.assignments,
            Bucket::Election => &self.election_bucket,
            Bucket::Cursors => &self.cursors,
        }
    }

    /// Notes a time of the broker, and says the newest.
    pub(super) fn observe_time(&self, stored_at: u64) -> u64 {
        self.broker_time.fetch_max(stored_at, Ordering::Relaxed).max(stored_at)
    }

    /// Asks within the time that an answer may take. What went wrong is told, and whoever asked is held for a moment.
    pub(super) async fn request<T>(
        &self,
        what: &str,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.request_within(TIMEOUT, what, request).await
    }

    async fn request_within<T>(
        &self,
        patience: Duration,
        what: &str,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let result = match tokio::time::timeout(patience, request).await {
            Ok(result) => result,
            Err(_) => Err(Error::unknown(what, format!("no answer within {patience:?}"))),
        };
        if let Err(error) = &result
            && !error.is_conflict()
        {
            self.report(error).await;
            tokio::time::sleep(ERROR_DELAY).await;
        }
        result
    }

    async fn report(&self, error: &Error) {
        if let Error::Missing { .. } = error {
            if is_due(&self.last_recreation, RECREATE_INTERVAL).await {
                self.hooks.report(Problem::Removed(error.clone()));
                self.recreate_missing().await;
            }
        } else if is_due(&self.last_report, REPORT_INTERVAL).await {
            self.hooks.report(Problem::Backend(error.clone()));
        }
    }

    /// Makes whatever is not there. Those that are there are only looked at.
    async fn recreate_missing(&self) {
        let names = &self.config.names;
        for bucket in self.config.buckets() {
            if let Err(error) = open_bucket(&*self.backend, bucket, names).await {
                self.hooks.report(Problem::Backend(error));
            }
        }
        if self.logs.is_some() {
            for log in self.config.logs() {
                if let Err(error) = open_log(&*self.backend, log, names).await {
                    self.hooks.report(Problem::Backend(error));
                }
            }
        }
    }

    /// Carries out [`crate::core::Effect::Write`]. `took` is how long the deciding took, for the map.
    pub(super) async fn write(
        &self,
        request_id: RequestId,
        key: Key,
        value: Value,
        condition: Condition,
        took: Duration,
    ) -> Event {
        let result = self.write_value(&request_id, &key, &value, condition, took).await;
        Event::Written { request_id, result: result.map_err(|error| WriteError::from(&error)) }
    }

    async fn write_value(
        &self,
        request_id: &RequestId,
        key: &Key,
        value: &Value,
        condition: Condition,
        took: Duration,
    ) -> Result<Written, Error> {
        let place = self.bucket_key(key);
        if let Value::Lease(lease) = value {
            // Whoever wants to lead has time; whoever leads must know soon.
            let patience = if lease.renewals == 0 { ACQUIRE_TIMEOUT } else { TIMEOUT };
            return self.request_within(patience, &place.key, self.election.write(lease, condition)).await;
        }
        let kv = self.bucket(place.bucket);
        let now = clock::wall();
        let bytes = match value {
            Value::Map(map) if request_id.purpose == Purpose::PublishMap => {
                self.codec.encode_map(map, &now, took)
            }
            value => self.codec.encode(key, value, &now),
        };
        let written = match value {
            Value::Map(map) => self.write_map(map.version.0, &place.key, bytes, condition).await,
            _ => self.request(&place.key, kv.write(&place.key, bytes, condition)).await,
        };
        let revision = written?;
        let stored_at = match request_id.purpose {
            // Which life of the id begins is the time of this very write.
            Purpose::Claim => {
                let found = self.request(&place.key, kv.stored_at(&place.key, revision)).await;
                let unknown = |reason: String| Error::unknown(format!("claim of {}", place.key), reason);
                match found {
                    Ok(Some(stored_at)) => stored_at,
                    Ok(None) => return Err(unknown("it has changed again".to_owned())),
                    Err(error) => return Err(unknown(error.to_string())),
                }
            }
            _ => 0,
        };
        Ok(Written { revision, stored_at: self.observe_time(stored_at) })
    }

    /// Writes a map: its parts first, if it is too large for one value.
    async fn write_map(
        &self,
        version: u64,
        key: &str,
        bytes: Bytes,
        condition: Condition,
    ) -> Result<Revision, Error> {
        let kv = &self.assignments;
        let unique = format!("{version}-{:016x}", RandomState::new().hash_one(key));
        let Some(split) = codec::split(&bytes, &unique) else {
            return self.request(key, kv.write(key, bytes, condition)).await;
        };
        for (part, value) in split.parts {
            // Nothing names the parts yet: that they are not all there did not happen.
            let created = self.request(&part, kv.create(&part, value)).await;
            created.map_err(|error| Error::failed(format!("part {part} of the map"), error))?;
        }
        self.request(key, kv.write(key, split.current, condition)).await
    }

    /// Removes the parts of maps that are neither the current one nor the one before: somebody may still be reading that.
    pub(super) async fn delete_old_parts(&self) -> Result<(), Error> {
        let kv = &self.assignments;
        let keys = kv.keys().await?;
        let mut versions: BTreeSet<(u64, &str)> = BTreeSet::new();
        let map_of = |key: &str| -> Option<(u64, String)> {
            let unique = key.split('.').nth(1)?;
            Some((unique.split('-').next()?.parse().ok()?, unique.to_owned()))
        };
        let parts: Vec<(String, u64, String)> = keys
            .iter()
            .filter(|key| codec::is_part(key))
            .filter_map(|key| map_of(key).map(|(version, unique)| (key.clone(), version, unique)))
            .collect();
        versions.extend(parts.iter().map(|(_, version, unique)| (*version, unique.as_str())));
        let current = match kv.get(&self.bucket_key(&Key::Map).key).await? {
            Some(entry) => match self.codec.decode(&Key::Map, &entry.value) {
                Ok(Decoded::Parts(wanted)) => wanted.parts,
                _ => Vec::new(),
            },
            None => Vec::new(),
        };
        let kept: BTreeSet<&str> = versions.iter().rev().take(2).map(|(_, unique)| *unique).collect();
        for (key, _, unique) in &parts {
            if kept.contains(unique.as_str()) || current.contains(key) {
                continue;
            }
            if let Some(entry) = kv.get(key).await? {
                match kv.delete(key, entry.revision).await {
                    Err(error) if !error.is_conflict() => return Err(error),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Carries out [`crate::core::Effect::Delete`].
    pub(super) async fn delete(&self, request_id: RequestId, key: Key, revision: Revision) -> Event {
        let place = self.bucket_key(&key);
        let kv = self.bucket(place.bucket);
        let result = match key {
            Key::Lease => self.request(&place.key, self.election.resign(revision)).await,
            _ => self.request(&place.key, kv.delete(&place.key, revision)).await,
        };
        let written = Written { revision, stored_at: self.observe_time(0) };
        Event::Written {
            request_id,
            result: result.map(|()| written).map_err(|error| WriteError::from(&error)),
        }
    }

    /// Carries out [`crate::core::Effect::Read`].
    pub(super) async fn read(&self, request_id: RequestId, key: Key) -> Event {
        Event::Fetched { request_id, result: self.fetch(&key).await }
    }

    /// One value from the one place that knows. A value that cannot be read is an error, never an absence.
    async fn fetch(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        let place = self.bucket_key(key);
        if *key == Key::Lease {
            return self.request(&place.key, self.election.read()).await.map_err(|_| ReadError);
        }
        let found = self.request(&place.key, self.bucket(place.bucket).get(&place.key)).await;
        let Some(entry) = found.map_err(|_| ReadError)? else { return Ok(None) };
        match self.codec.decode(key, &entry.value) {
            Ok(Decoded::Value(value)) => Ok(Some(self.entry(value, &entry))),
            Ok(Decoded::Parts(wanted)) => match self.read_parts(&wanted).await {
                Ok(value) => Ok(Some(self.entry(value, &entry))),
                Err(reason) => {
                    let revision = entry.revision.0;
                    self.hooks.report(Problem::MapIncomplete { revision, reason });
                    Err(ReadError)
                }
            },
            Err(bad) => {
                self.hooks.report(bad.into());
                tokio::time::sleep(ERROR_DELAY).await;
                Err(ReadError)
            }
        }
    }

    pub(super) fn entry(&self, value: Value, stored: &backend::Entry) -> Entry {
        self.observe_time(stored.stored_at);
        Entry { value, revision: stored.revision, stored_at: stored.stored_at }
    }

    /// Reads the parts of a map and puts them together.
    pub(super) async fn read_parts(&self, wanted: &PartManifest) -> Result<Value, String> {
        let mut parts = Vec::with_capacity(wanted.parts.len());
        for key in &wanted.parts {
            let found = self.request(key, self.assignments.get(key)).await.map_err(|e| e.to_string())?;
            parts.push(found.ok_or_else(|| format!("its part {key} is missing"))?.value);
        }
        Ok(Value::Map(self.codec.assemble_map(wanted, &parts)?))
    }

    /// Carries out [`crate::core::Effect::ReadCursors`].
    pub(super) async fn read_cursors(&self, request_id: RequestId, partitions: Vec<Arc<str>>) -> Event {
        let all = match partitions.len() > CURSOR_WATCH_THRESHOLD {
            true => match self.cursors.entries().await {
                Ok(all) => Some(all),
                Err(error) => {
                    self.hooks.report(Problem::Backend(error));
                    return Event::Cursors { request_id, result: Err(ReadError) };
                }
            },
            false => None,
        };
        let read = |partition: Arc<str>| {
            let all = all.as_ref();
            async move {
                let key = Key::Cursor(partition);
                let place = self.bucket_key(&key);
                let found = match all {
                    Some(all) => all.get(&place.key).cloned(),
                    None => {
                        let found = self.request(&place.key, self.cursors.get(&place.key)).await;
                        found.map_err(|_| ReadError)?
                    }
                };
                Ok(self.read_cursor(&key, found).await)
            }
        };
        let result = stream::iter(partitions.into_iter().map(read))
            .buffered(MAX_PARALLEL_REQUESTS)
            .try_collect()
            .await;
        Event::Cursors { request_id, result }
    }

    /// A cursor that cannot be read stays as it is: writing one is only ever tried where there is none, and is refused.
    async fn read_cursor(&self, key: &Key, found: Option<backend::Entry>) -> Option<Entry> {
        let entry = found?;
        match self.codec.decode(key, &entry.value) {
            Ok(Decoded::Value(value)) => Some(self.entry(value, &entry)),
            Ok(Decoded::Parts(_)) => None,
            Err(bad) => {
                self.hooks.report(bad.into());
                tokio::time::sleep(REPORT_INTERVAL).await;
                None
            }
        }
    }

    /// Says how many workers there should be; none takes that back.
    pub(super) async fn scale(&self, size: Option<u32>) -> Result<(), Error> {
        let key = Key::FleetSize;
        let place = self.bucket_key(&key);
        let kv = &self.assignments;
        match size {
            Some(size) => {
                let bytes = self.codec.encode(&key, &Value::FleetSize(size), &clock::wall());
                self.request(&place.key, kv.put(&place.key, bytes)).await.map(drop)
            }
            None => match self.request(&place.key, kv.get(&place.key)).await? {
                Some(entry) => self.request(&place.key, kv.delete(&place.key, entry.revision)).await,
                None => Ok(()),
            },
        }
    }
}

/// The partitions of a list by name.
pub(super) fn names(partitions: &PartitionList) -> BTreeSet<&str> {
    partitions.iter().map(|(name, _)| &**name).collect()
}

/// Whether it is time again, and notes that it was.
async fn is_due(last: &Mutex<Option<Instant>>, every: Duration) -> bool {
    let mut last = last.lock().await;
    let now = Instant::now();
    let due = last.is_none_or(|last| now.duration_since(last) >= every);
    if due {
        *last = Some(now);
    }
    due
}
