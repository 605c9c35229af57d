//! Real workers as processes of their own, and what they left behind.
#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use phalanx_cluster::backend::{AppendCondition, Backend, Entry, Kv, Log, Watch, WatchEvent};
use phalanx_cluster::core::types::Revision;
use phalanx_cluster_nats::{Config, Nats};
use phalanx_ledger::{now_ns, settings};
use phalanx_testkit::process::{Lifetime, Process, bound_to_parent};

pub(crate) const SECOND: u128 = 1_000_000_000;

/// Held exclusively by tests that need the whole machine: they measure promises, or run very many partitions.
pub(crate) static MACHINE: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());

/// How workers are started.
#[derive(Clone)]
pub(crate) struct Fleet {
    pub(crate) binary: &'static str,
    pub(crate) url: String,
    pub(crate) dir: PathBuf,
    pub(crate) parts: usize,
    pub(crate) size: usize,
    pub(crate) replicas: usize,
    pub(crate) history: u8,
    pub(crate) env: Vec<(String, String)>,
}

impl Fleet {
    pub(crate) fn start(&self, name: &str) -> Member {
        let mut command = bound_to_parent(Path::new(self.binary));
        command
            .args(["--url", &self.url, "--name", name, "--parts", &self.parts.to_string()])
            .args(["--replicas", &self.replicas.to_string(), "--history", &self.history.to_string()])
            .arg("--dir")
            .arg(&self.dir)
            .env("FLEET_SIZE", self.size.to_string())
            .envs(self.env.iter().cloned());
        let log = self.dir.join(format!("stderr-{name}.log"));
        let process = Process::start(command, Lifetime::WithUs, &log).unwrap();
        Member { name: name.to_owned(), process, dir: self.dir.clone() }
    }
}

/// A worker.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) process: Process,
    dir: PathBuf,
}

impl Member {
    fn events(&self) -> Vec<(u128, String)> {
        let text =
            std::fs::read_to_string(self.dir.join(format!("event-{}.log", self.name))).unwrap_or_default();
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(ns, what)| (ns.parse().unwrap(), what.to_owned()))
            .collect()
    }

    /// The id it holds, as far as it has said.
    pub(crate) fn id(&self) -> Option<u32> {
        let events = self.events();
        events.iter().rev().find_map(|(_, what)| what.strip_prefix("ready ")?.parse().ok())
    }

    pub(crate) fn leads(&self) -> bool {
        let events = self.events();
        events
            .iter()
            .rev()
            .find_map(|(_, what)| what.strip_prefix("leader "))
            .is_some_and(|leads| leads == "true")
    }
}

pub(crate) async fn connect(url: &str, replicas: usize) -> Nats {
    Nats::connect(&Config { replicas, ..Config::new(url) }).await.unwrap()
}

/// Messages by id: part, seq, and when they were published.
type Messages = BTreeMap<String, (usize, u64, u128)>;

/// What was published.
#[derive(Clone, Default)]
pub(crate) struct Published(pub(crate) Arc<Mutex<Messages>>);

impl Published {
    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Publishes one message; one that had no answer is tried again under the same id, which stores it once.
    pub(crate) async fn publish(&self, log: &Arc<dyn Log>, part: usize, seq: u64) {
        let (id, ns) = (format!("{part}-{seq}"), now_ns());
        let payload = format!("{id} {part} {seq} {ns}");
        while log
            .append(&format!("work.{part}"), payload.clone().into(), AppendCondition::NewId(&id))
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.0.lock().unwrap().insert(id, (part, seq, ns));
    }
}

/// A value of a cursor, in the order it was written.
#[derive(Clone, Debug)]
pub(crate) struct CursorValue {
    pub(crate) generation: u64,
    pub(crate) sequence: u64,
    pub(crate) context: String,
    pub(crate) holder: String,
    pub(crate) take: u64,
    /// The broker's time, in microseconds.
    pub(crate) stored_at: u64,
}

/// Returns every value of every cursor that the bucket holds, in the order of revisions.
pub(crate) async fn cursor_history(nats: &Nats, size: u8) -> BTreeMap<usize, Vec<CursorValue>> {
    let bucket = nats.bucket(&settings(size).cursors).await.unwrap();
    let mut found: BTreeMap<usize, Vec<CursorValue>> = BTreeMap::new();
    for entry in history(&*bucket).await {
        let values = found.entry(entry.key.parse().unwrap()).or_default();
        values.push(cursor(&entry.value, entry.stored_at));
    }
    found
}

/// Returns every value that the bucket holds, in the order of revisions.
pub(crate) async fn history(bucket: &dyn Kv) -> Vec<Entry> {
    // A watch after revision 0 starts with the newest value of each key, so revision 1 is read separately.
    let newest = values(bucket.watch().await.unwrap()).await;
    let later = values(bucket.watch_after(Revision(1)).await.unwrap()).await;
    newest.into_iter().filter(|entry| entry.revision == Revision(1)).chain(later).collect()
}

async fn values(mut watch: Watch) -> Vec<Entry> {
    let mut values = Vec::new();
    while let Some(event) = watch.next().await {
        match event {
            WatchEvent::Put(entry) => values.push(entry),
            WatchEvent::Current => break,
            _ => {}
        }
    }
    values
}

pub(crate) fn cursor(value: &[u8], stored_at: u64) -> CursorValue {
    let json: serde_json::Value = serde_json::from_slice(value).unwrap();
    let number = |name: &str| json[name].as_u64().unwrap();
    CursorValue {
        generation: number("generation"),
        sequence: number("sequence"),
        context: json["messageId"].as_str().unwrap().to_owned(),
        holder: format!("{}/{}", json["holder"]["id"].as_str().unwrap(), json["holder"]["incarnation"]),
        take: number("take"),
        stored_at,
    }
}

/// The commits of a partition: values whose position is not that of the value before.
pub(crate) fn commits(values: &[CursorValue]) -> Vec<&CursorValue> {
    let mut before = None;
    values
        .iter()
        .filter(|value| {
            let position = (value.generation, value.sequence);
            let is_commit = before != Some(position) && value.sequence > 0 && !value.context.is_empty();
            before = Some(position);
            is_commit
        })
        .collect()
}

/// A run of the handler.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) worker: String,
    pub(crate) id: String,
    pub(crate) part: usize,
    pub(crate) seq: u64,
    pub(crate) start: u128,
    pub(crate) end: Option<u128>,
}

/// Every run, from the files that the handlers wrote.
pub(crate) fn runs(dir: &Path) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for file in std::fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(worker) = name.strip_prefix("handle-").and_then(|name| name.strip_suffix(".log")) else {
            continue;
        };
        let mut open: BTreeMap<(String, String), usize> = BTreeMap::new();
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            let [what, id, part, seq, ns, attempt] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{worker} wrote {line:?}")
            };
            let key = (id.to_owned(), attempt.to_owned());
            let ns = ns.parse().unwrap();
            if what == "S" {
                open.insert(key, runs.len());
                runs.push(Run {
                    worker: worker.to_owned(),
                    id: id.to_owned(),
                    part: part.parse().unwrap(),
                    seq: seq.parse().unwrap(),
                    start: ns,
                    end: None,
                });
            } else {
                let index =
                    open.remove(&key).unwrap_or_else(|| panic!("{worker}: an end without a start: {line}"));
                runs[index].end = Some(ns);
            }
        }
    }
    runs.sort_by_key(|run| run.start);
    runs
}

/// The current map: version and owners.
pub(crate) async fn map(nats: &Nats) -> Option<(u64, BTreeMap<usize, u32>)> {
    let bucket = nats.bucket(&settings(1).assignments).await.ok()?;
    let entry = bucket.get("current").await.ok()??;
    let json: serde_json::Value = serde_json::from_slice(&entry.value).unwrap();
    let owners = json["assignments"].as_object()?.iter().map(|(part, owner)| {
        let id = owner.as_str().unwrap().strip_prefix("ledger-").unwrap();
        (part.parse().unwrap(), id.parse().unwrap())
    });
    Some((json["version"].as_u64().unwrap(), owners.collect()))
}

/// The ids that a map is for.
pub(crate) fn owners(map: &BTreeMap<usize, u32>) -> BTreeSet<u32> {
    map.values().copied().collect()
}
