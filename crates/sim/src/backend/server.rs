//! The state of a simulated server: buckets and logs by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use phalanx_cluster::backend::{Entry, Error, StoreKind, WatchEvent};
use phalanx_cluster_core::types::{Revision, Time};

use crate::backend::request::{Request, Response};
use crate::backend::store_bucket::StoreBucket;
use crate::backend::store_log::StoreLog;
use crate::broker::START;

/// A change for watches or wake-up subscriptions.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A change of a bucket.
    Bucket(Arc<str>, WatchEvent),
    /// A message was appended to a subject of a log.
    Log(Arc<str>, String),
}

/// Buckets and logs. Time is an argument.
#[derive(Debug, Default)]
pub(crate) struct Server {
    buckets: BTreeMap<String, StoreBucket>,
    logs: BTreeMap<String, StoreLog>,
    changes: Vec<Change>,
    last_created: u64,
    /// The offset of its clock, in microseconds.
    clock_offset: i64,
}

impl Server {
    /// Removes and returns the changes so far, in order.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Returns the server's time, in microseconds since 1970.
    pub(crate) fn micros(&self, now: Time) -> u64 {
        (START + now.since_origin().as_micros() as u64).saturating_add_signed(self.clock_offset)
    }

    /// Sets the clock forward or back.
    pub(crate) fn step_clock(&mut self, by_micros: i64) {
        self.clock_offset += by_micros;
    }

    /// Returns a log.
    pub(crate) fn log_mut(&mut self, name: &str) -> Result<&mut StoreLog, Error> {
        self.logs.get_mut(name).ok_or_else(|| Error::missing("log", name))
    }

    /// Removes a log.
    pub(crate) fn remove_log(&mut self, name: &str) {
        self.logs.remove(name);
    }

    /// Returns the first events of a watch.
    pub(crate) fn watch_after(
        &mut self,
        now: Time,
        bucket: &str,
        after: Revision,
    ) -> Result<Vec<WatchEvent>, Error> {
        let micros = self.micros(now);
        let bucket = self.bucket_mut(bucket)?;
        bucket.expire(micros);
        Ok(bucket.watch_after(after))
    }

    /// Returns the value of a key.
    pub(crate) fn get(&self, bucket: &str, key: &str) -> Option<Entry> {
        self.buckets.get(bucket)?.get(key)
    }

    /// Returns the value that a key had before its last change, as a replica that is behind has it.
    pub(crate) fn before(&self, bucket: &str, key: &str) -> Option<Entry> {
        self.buckets.get(bucket)?.before(key)
    }

    /// Executes a request. A read of messages does not see what was stored after `until`.
    pub(crate) fn execute(&mut self, now: Time, request: Request, until: u64) -> Result<Response, Error> {
        let micros = self.micros(now);
        match request {
            Request::OpenBucket(config) => {
                let make = || StoreBucket::new(&config);
                self.buckets.entry(config.name.clone()).or_insert_with(make);
                Ok(Response::Done)
            }
            Request::OpenLog(config) => {
                if !self.logs.contains_key(&config.name) {
                    self.last_created = micros.max(self.last_created + 1);
                    let log = StoreLog::new(&config, self.last_created);
                    self.logs.insert(config.name, log);
                }
                Ok(Response::Done)
            }
            Request::Description(kind, name) => {
                self.description_mut(kind, &name).map(|text| Response::Text(text.clone()))
            }
            Request::Describe(kind, name, description) => {
                *self.description_mut(kind, &name)? = description;
                Ok(Response::Done)
            }
            Request::Get(..) | Request::Write(..) | Request::Delete(..) | Request::Keys(_) => {
                self.execute_on_bucket(micros, request)
            }
            request => self.execute_on_log((now, micros), request, until),
        }
    }

    fn execute_on_bucket(&mut self, micros: u64, request: Request) -> Result<Response, Error> {
        let (name, event) = match request {
            Request::Get(bucket, key) => {
                return Ok(Response::Entry(self.fresh_bucket(&bucket, micros)?.get(&key)));
            }
            Request::Keys(bucket) => return Ok(Response::Keys(self.fresh_bucket(&bucket, micros)?.keys())),
            Request::Write(bucket, key, value, condition) => {
                let event = self.fresh_bucket(&bucket, micros)?.write(micros, &key, value, condition)?;
                (bucket, event)
            }
            Request::Delete(bucket, key, revision) => {
                let event = self.fresh_bucket(&bucket, micros)?.delete(micros, &key, revision)?;
                (bucket, event)
            }
            other => unreachable!("{other:?} is not for a bucket"),
        };
        let response = match &event {
            WatchEvent::Put(entry) => Response::Revision(entry.revision),
            _ => Response::Done,
        };
        self.changes.push(Change::Bucket(name, event));
        Ok(response)
    }

    fn execute_on_log(
        &mut self,
        (now, micros): (Time, u64),
        request: Request,
        until: u64,
    ) -> Result<Response, Error> {
        Ok(match request {
            Request::Append(log, subject, payload, expect) => {
                let appended =
                    self.fresh_log(&log, now)?.append((now, micros), &subject, &payload, expect)?;
                if !appended.duplicate {
                    self.changes.push(Change::Log(log, subject));
                }
                Response::Appended(appended)
            }
            Request::Read { log, subject, from, limit } => {
                Response::Messages(self.fresh_log(&log, now)?.read(&subject, from, limit, until))
            }
            Request::Next(log, subject, from) => {
                Response::Messages(self.fresh_log(&log, now)?.read(&subject, from, 1, u64::MAX))
            }
            Request::Last(log, subject) => {
                Response::Messages(self.fresh_log(&log, now)?.last(&subject).into_iter().collect())
            }
            Request::Remove(log, sequence) => Response::Removed(
                self.fresh_log(&log, now)?.log.remove(phalanx_cluster_core::types::Sequence(sequence)),
            ),
            Request::Info(log) => Response::Info(self.fresh_log(&log, now)?.info()),
            Request::Subjects(log) => Response::Subjects(self.fresh_log(&log, now)?.subjects()),
            other => unreachable!("{other:?} is not for a log"),
        })
    }

    fn fresh_log(&mut self, name: &str, now: Time) -> Result<&mut StoreLog, Error> {
        let log = self.log_mut(name)?;
        log.log.expire(now);
        Ok(log)
    }

    fn fresh_bucket(&mut self, name: &str, micros: u64) -> Result<&mut StoreBucket, Error> {
        let bucket = self.bucket_mut(name)?;
        bucket.expire(micros);
        Ok(bucket)
    }

    fn bucket_mut(&mut self, name: &str) -> Result<&mut StoreBucket, Error> {
        self.buckets.get_mut(name).ok_or_else(|| Error::missing("bucket", name))
    }

    fn description_mut(&mut self, kind: StoreKind, name: &str) -> Result<&mut String, Error> {
        match kind {
            StoreKind::Bucket => self.bucket_mut(name).map(|bucket| &mut bucket.description),
            StoreKind::Log => self.log_mut(name).map(|log| &mut log.description),
        }
    }
}
