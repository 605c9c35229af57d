//! Test equipment: a ledger that stops itself with SIGSTOP where that hurts most. `HALT_ON` names a message: it stops
//! after the end of that message and before its commit. `HALT_BEFORE_MAP` is a version: it stops when the map of that version
//! or a later one is computed and before it is written. Each happens once; the file `HALT_MARK` says that it did.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use async_trait::async_trait;
use bytes::Bytes;
use clap::Parser as _;
use phalanx_cluster::backend::{Backend, BucketConfig, Entry, Error, Kv, Log, LogConfig, StoreKind, Watch};
use phalanx_cluster::core::Condition;
use phalanx_cluster::core::types::Revision;
use phalanx_ledger::{Args, run};
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};

#[tokio::main]
async fn main() -> Result<()> {
    run(
        Args::parse(),
        |inner| Arc::new(Halting { inner }),
        |id| {
            if std::env::var("HALT_ON").is_ok_and(|halt| halt == id) {
                halt();
            }
        },
    )
    .await
}

/// Stands still until SIGCONT, once.
fn halt() {
    let Ok(mark) = std::env::var("HALT_MARK") else { return };
    if std::fs::File::create_new(mark).is_ok() {
        let mut looked = Instant::now();
        let _ = kill_process(getpid(), Signal::STOP);
        // The kernel stops one thread after the other, and this one perhaps last: it goes on only after it has stood still.
        // Every moment lies between two looks, so wherever it stood still is seen.
        loop {
            let now = Instant::now();
            if now.duration_since(looked) >= Duration::from_millis(500) {
                return;
            }
            looked = now;
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

struct Halting {
    inner: Arc<dyn Backend>,
}

#[async_trait]
impl Backend for Halting {
    async fn bucket(&self, config: &BucketConfig) -> Result<Arc<dyn Kv>, Error> {
        Ok(Arc::new(HaltingKv { inner: self.inner.bucket(config).await? }))
    }

    async fn log(&self, config: &LogConfig) -> Result<Arc<dyn Log>, Error> {
        self.inner.log(config).await
    }

    async fn description(&self, kind: StoreKind, name: &str) -> Result<String, Error> {
        self.inner.description(kind, name).await
    }

    async fn describe(&self, kind: StoreKind, name: &str, description: &str) -> Result<(), Error> {
        self.inner.describe(kind, name, description).await
    }
}

struct HaltingKv {
    inner: Arc<dyn Kv>,
}

#[async_trait]
impl Kv for HaltingKv {
    async fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        self.inner.get(key).await
    }

    async fn write(&self, key: &str, value: Bytes, condition: Condition) -> Result<Revision, Error> {
        let halts_at = std::env::var("HALT_BEFORE_MAP").ok().and_then(|version| version.parse::<u64>().ok());
        if let Some(halts_at) = halts_at
            && key == "current"
            && version_of(&value).is_some_and(|version| version >= halts_at)
        {
            halt();
        }
        self.inner.write(key, value, condition).await
    }

    async fn delete(&self, key: &str, revision: Revision) -> Result<(), Error> {
        self.inner.delete(key, revision).await
    }

    async fn stored_at(&self, key: &str, revision: Revision) -> Result<Option<u64>, Error> {
        self.inner.stored_at(key, revision).await
    }

    async fn keys(&self) -> Result<BTreeSet<String>, Error> {
        self.inner.keys().await
    }

    async fn watch_after(&self, revision: Revision) -> Result<Watch, Error> {
        self.inner.watch_after(revision).await
    }
}

/// The version of a map, by its text.
fn version_of(map: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(map).ok()?;
    let (_, after) = text.split_once("\"version\":")?;
    after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
