//! The chambers and their weights, for the leader.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use phalanx_cluster::backend::{Error, Kv, WatchEvent};
use phalanx_cluster::core::types::Revision;
use phalanx_cluster::{HookError, PartitionSource};

use crate::store::ChartStore;

/// How long the leader keeps weights (`WEIGHT_CACHE_TTL_SECONDS`).
pub const CACHE_TTL: Duration = Duration::from_secs(60 * 60);

/// The key that every import of chambers writes, in the bucket of the assignments.
pub const IMPORT_KEY: &str = "chambers-imported";

/// What the leader remembers of the weights: for an hour, and not over an import.
#[derive(Debug)]
pub struct WeightCache {
    ttl: Duration,
    known: Option<Known>,
}

#[derive(Debug)]
struct Known {
    at: Instant,
    import: Revision,
    weights: Vec<(String, u64)>,
}

impl WeightCache {
    /// Nothing known yet.
    pub fn new(ttl: Duration) -> Self {
        Self { ttl, known: None }
    }

    /// The weights, if they are not too old and there was no import since; `import` is the revision of
    /// [`IMPORT_KEY`], 0 where there is none.
    pub fn get(&self, now: Instant, import: Revision) -> Option<&[(String, u64)]> {
        let fresh =
            |known: &&Known| known.import == import && now.saturating_duration_since(known.at) < self.ttl;
        self.known.as_ref().filter(fresh).map(|known| &*known.weights)
    }

    /// Notes what the store said, asked after that import.
    pub fn put(&mut self, now: Instant, import: Revision, weights: Vec<(String, u64)>) {
        self.known = Some(Known { at: now, import, weights });
    }
}

/// The chambers that the store knows, as partitions.
pub struct ChamberSource {
    store: Arc<dyn ChartStore>,
    assignments: Arc<dyn Kv>,
    cache: Mutex<WeightCache>,
}

impl ChamberSource {
    /// The chambers of that store; imports are told in the bucket of the assignments.
    pub fn new(store: Arc<dyn ChartStore>, assignments: Arc<dyn Kv>, ttl: Duration) -> Self {
        Self { store, assignments, cache: Mutex::new(WeightCache::new(ttl)) }
    }
}

#[async_trait]
impl PartitionSource for ChamberSource {
    async fn partitions(&self) -> Result<Vec<(String, u64)>, HookError> {
        // Before the store: an import that comes in between makes what was read old at once.
        let import = self.assignments.get(IMPORT_KEY).await?.map_or(Revision(0), |entry| entry.revision);
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cache().get(Instant::now(), import) {
            return Ok(known.to_vec());
        }
        let metadata = self.store.metadata().await?;
        let weights: Vec<_> = metadata.into_iter().map(|m| (m.chamber.to_string(), m.weight)).collect();
        cache().put(Instant::now(), import, weights.clone());
        Ok(weights)
    }
}

/// Tells the leader that chambers were imported: to be called after they are stored.
pub async fn announce_import(assignments: &dyn Kv, what: &str) -> Result<(), Error> {
    assignments.put(IMPORT_KEY, what.to_owned().into()).await.map(|_| ())
}

/// Calls back at every import, until the bucket is closed.
///
/// ```no_run
/// # async fn run(bucket: &dyn phalanx_cluster::backend::Kv, handle: phalanx_cluster::WorkerHandle) {
/// use phalanx_defender::weights::follow_imports;
///
/// // Asks the source of partitions anew; an error is told to the hooks.
/// let _ = follow_imports(bucket, || async { drop(handle.refresh_partitions().await) }).await;
/// # }
/// ```
pub async fn follow_imports<F: Future<Output = ()> + Send>(
    assignments: &dyn Kv,
    mut on_import: impl FnMut() -> F + Send,
) -> Result<(), Error> {
    let mut watch = assignments.watch().await?;
    // What was there when the watch began is no news.
    let mut current = false;
    while let Some(event) = watch.next().await {
        match event {
            WatchEvent::Current => current = true,
            WatchEvent::Put(entry) if current && entry.key == IMPORT_KEY => on_import().await,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_kept_for_an_hour_and_not_over_an_import() {
        let (start, minute) = (Instant::now(), Duration::from_secs(60));
        let mut cache = WeightCache::new(CACHE_TTL);
        assert_eq!(cache.get(start, Revision(0)), None);
        let weights = vec![("etch-01:A".to_owned(), 5)];
        cache.put(start, Revision(0), weights.clone());
        assert_eq!(cache.get(start + 59 * minute, Revision(0)), Some(&*weights));
        assert_eq!(cache.get(start + 60 * minute, Revision(0)), None);
        assert_eq!(cache.get(start + minute, Revision(7)), None);
        cache.put(start + minute, Revision(7), vec![]);
        assert_eq!(cache.get(start + 2 * minute, Revision(7)), Some(&[][..]));
    }
}
