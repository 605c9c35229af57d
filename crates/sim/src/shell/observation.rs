//! Requests in the terms of the oracle. Values are decoded from the stored bytes.

use phalanx_cluster::backend::Error;
use phalanx_cluster::codec::Decoded;
use phalanx_cluster::names::Bucket;
use phalanx_cluster_core::types::{Key, Sequence, Time, Value, WorkerId};
use phalanx_cluster_core::{Purpose, WorkerState};

use crate::backend::{Request, Response};
use crate::broker::number_of;
use crate::fleet::ProcessId;
use crate::network::WatchedBucket;
use crate::oracle::invariant_10_unique_id::IdHolders;
use crate::shell::port::Reply;
use crate::shell::{PendingReply, ShellWorld};

/// The ids and the fences of the processes that run, as they are now.
struct Holders(Vec<(ProcessId, Option<WorkerId>, bool)>);

impl Holders {
    fn find(&self, process: ProcessId) -> Option<&(ProcessId, Option<WorkerId>, bool)> {
        self.0.iter().find(|(known, ..)| *known == process)
    }
}

impl IdHolders for Holders {
    fn held_id(&self, process: ProcessId) -> Option<WorkerId> {
        self.find(process)?.1
    }

    fn is_unfenced(&self, process: ProcessId, _now: Time) -> bool {
        self.find(process).is_some_and(|(_, _, is_unfenced)| *is_unfenced)
    }

    fn running(&self) -> impl Iterator<Item = ProcessId> {
        self.0.iter().map(|(process, ..)| *process)
    }
}

impl ShellWorld {
    fn bucket_of(&self, name: &str) -> Option<Bucket> {
        let stores = &self.stores;
        let buckets = [
            (&stores.stable_ids, Bucket::StableIds),
            (&stores.heartbeats, Bucket::Heartbeats),
            (&stores.assignments, Bucket::Assignments),
            (&stores.election, Bucket::Election),
            (&stores.cursors, Bucket::Cursors),
        ];
        buckets.into_iter().find(|(config, _)| config.name == name).map(|(_, bucket)| bucket)
    }

    /// Returns the bucket whose watch order a bucket belongs to.
    pub(super) fn watched_bucket(&self, name: &str) -> WatchedBucket {
        match self.bucket_of(name) {
            Some(Bucket::StableIds) => WatchedBucket::Ids,
            Some(Bucket::Heartbeats) => WatchedBucket::Heartbeats,
            Some(Bucket::Election) => WatchedBucket::Election,
            Some(Bucket::Assignments | Bucket::Cursors) | None => WatchedBucket::Assignments,
        }
    }

    /// Returns the key that a request is about.
    pub(super) fn key_of(&self, request: &Request) -> Option<Key> {
        let (Request::Get(bucket, key) | Request::Write(bucket, key, ..) | Request::Delete(bucket, key, _)) =
            request
        else {
            return None;
        };
        self.stores.names.parse_key(self.bucket_of(bucket)?, key)
    }

    /// Returns the partition whose cursor a request is about.
    pub(super) fn partition_of_cursor(&self, request: &Request) -> Option<u32> {
        match self.key_of(request)? {
            Key::Cursor(name) => self.traffic.find(&name),
            _ => None,
        }
    }

    fn decode(&self, key: &Key, bytes: &[u8]) -> Option<Value> {
        match self.codec.decode(key, bytes) {
            Ok(Decoded::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of a key that a request is about to write.
    pub(super) fn value_before(&self, request: &Request) -> Option<Value> {
        let Request::Write(bucket, key, ..) = request else { return None };
        let parsed = self.key_of(request)?;
        self.decode(&parsed, &self.server.get(bucket, key)?.value)
    }

    /// Returns the stored value of a key.
    pub(super) fn stored_value(&self, key: &Key) -> Option<Value> {
        let place = self.stores.names.bucket_key(key);
        let bucket = match place.bucket {
            Bucket::StableIds => &self.stores.stable_ids,
            Bucket::Heartbeats => &self.stores.heartbeats,
            Bucket::Assignments => &self.stores.assignments,
            Bucket::Election => &self.stores.election,
            Bucket::Cursors => &self.stores.cursors,
        };
        self.decode(key, &self.server.get(&bucket.name, &place.key)?.value)
    }

    /// Tells the oracle what a process asks for. Returns the reply with the id of the request.
    pub(super) fn observe_request(
        &mut self,
        at: Time,
        process: ProcessId,
        request: &Request,
        reply: Reply<Result<Response, Error>>,
    ) -> PendingReply {
        let (purpose, what) = match (request, self.key_of(request)) {
            (Request::Write(..), Some(Key::Heartbeat(_) | Key::StandbyHeartbeat(_))) => {
                (Purpose::Heartbeat, None)
            }
            (Request::Write(..), Some(Key::Map | Key::ClusterState)) => (Purpose::PublishMap, Some("leads")),
            (Request::Write(..), Some(Key::Cursor(_))) => (Purpose::Cursor, Some("writes a cursor")),
            // A leader also deletes the claims of others, to free their ids.
            (Request::Delete(..), Some(Key::Claim(id))) if self.holds(process, id) => {
                (Purpose::Release, None)
            }
            (Request::Append(log, ..), _) if **log == *self.stores.dead_letters.name => {
                (Purpose::Cursor, Some("dead-letters a message"))
            }
            _ => (Purpose::ReadMap, None),
        };
        let request_id = self.request_id(purpose);
        match purpose {
            Purpose::Heartbeat => {
                self.oracle.heartbeat_sent(at, process, request_id);
                if self.is_leave_record(request) {
                    let is_fenced = !self.processes[process.index()].is_unfenced();
                    self.oracle.leave_record_sent(process, is_fenced);
                }
            }
            Purpose::Release => {
                let is_fenced = !self.processes[process.index()].is_unfenced();
                self.oracle.left(process, is_fenced);
            }
            _ => {}
        }
        if let (Request::Write(..), Some(partition)) = (request, self.partition_of_cursor(request)) {
            self.oracle.cursor_write_sent(process, request_id, partition);
        }
        if let Some(what) = what {
            self.check_fence(at, process, what);
        }
        PendingReply { reply, request_id }
    }

    /// Checks the fence of a process. A machine whose clock was suspended cannot know when its fence closes.
    pub(super) fn check_fence(&mut self, at: Time, process: ProcessId, what: &'static str) {
        if !self.processes[process.index()].lost_time {
            self.oracle.check_fence(at, process, what);
        }
    }

    fn is_leave_record(&self, request: &Request) -> bool {
        let (Request::Write(_, _, bytes, _), Some(key)) = (request, self.key_of(request)) else {
            return false;
        };
        matches!(self.decode(&key, bytes), Some(Value::Heartbeat(beat)) if beat.left)
    }

    fn holds(&self, process: ProcessId, id: WorkerId) -> bool {
        let holder = self.processes[process.index()].status().and_then(|status| status.holder);
        holder.is_some_and(|holder| holder.id == id)
    }

    /// Tells the oracle what a request has changed.
    pub(super) fn observe_applied(
        &mut self,
        process: ProcessId,
        request: &Request,
        response: &Response,
        before: Option<Value>,
    ) {
        match (request, response) {
            (Request::Write(_, _, bytes, _), _) => {
                let Some(key) = self.key_of(request) else { return };
                if let Some(value) = self.decode(&key, bytes) {
                    self.observe_value(process, &key, &value, before);
                }
            }
            (Request::Append(log, _, letter, _), Response::Appended(_))
                if **log == *self.stores.dead_letters.name =>
            {
                self.observe_dead_letter(letter);
            }
            _ => {}
        }
    }

    fn observe_value(&mut self, process: ProcessId, key: &Key, value: &Value, before: Option<Value>) {
        let now = self.now;
        self.oracle.stored(now, value);
        match (key, value, before) {
            (Key::Cursor(name), Value::Cursor(is), before) => {
                let was = match &before {
                    Some(Value::Cursor(cursor)) => Some(&**cursor),
                    _ => None,
                };
                if let Some(partition) = self.traffic.find(name) {
                    self.oracle.cursor(now, process, partition, (was, is), &self.store.rows);
                }
            }
            (_, Value::Map(is), Some(Value::Map(was))) if is.version > was.version => {
                self.publications += 1;
                let state = self.processes[process.index()].status().map(|status| status.state);
                if state == Some(WorkerState::Emergency) {
                    self.oracle.emergency(now, &was, is);
                }
            }
            (_, Value::Map(_), None) => self.publications += 1,
            _ => {}
        }
    }

    /// Tells the oracle about a dead letter, by what the letter itself says.
    fn observe_dead_letter(&mut self, letter: &[u8]) {
        let Ok(letter) = serde_json::from_slice::<serde_json::Value>(letter) else { return };
        let number = letter["messageId"].as_str().and_then(number_of);
        let partition = letter["partition"].as_str().and_then(|name| self.traffic.find(name));
        let sequence = letter["sequence"].as_u64().map(Sequence);
        if let (Some(number), Some(partition), Some(sequence)) = (number, partition, sequence) {
            self.oracle.on_dead_letter(self.now, partition, sequence, number);
        }
    }

    /// Checks the ids of all processes, and notes which have ended.
    pub(super) fn check_processes(&mut self) {
        let processes = &self.processes;
        let ended: Vec<ProcessId> =
            self.running.iter().copied().filter(|process| !processes[process.index()].is_alive()).collect();
        for process in ended {
            self.end(process);
        }
        let awake =
            self.running.iter().copied().filter(|&process| !self.processes[process.index()].is_stopped);
        let statuses: Vec<_> = awake
            .filter_map(|process| {
                let target = &self.processes[process.index()];
                let is_unfenced = target.is_unfenced() && !target.lost_time;
                Some((process, target.status()?.holder, is_unfenced))
            })
            .collect();
        let holders = Holders(
            statuses
                .iter()
                .map(|(process, holder, is_unfenced)| {
                    (*process, holder.map(|holder| holder.id), *is_unfenced)
                })
                .collect(),
        );
        for (process, holder, _) in statuses {
            let was_taken = std::mem::take(&mut self.processes[process.index()].has_lost_id);
            self.oracle.check_identity(self.now, process, (holder, || was_taken), &holders);
        }
    }
}
