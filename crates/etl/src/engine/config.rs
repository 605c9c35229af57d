use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::core::backoff::Policy;
use crate::core::broker;
use crate::providers::{self, Provider};
use crate::source::{Limits, OnFetch, Place, Source, Timeouts};

/// What a provider is told.
///
/// ```
/// use phalanx_etl::engine::ProviderConfig;
///
/// let config = ProviderConfig::new("cve", "cve");
/// assert_eq!((config.batch_size, config.max_retries, config.retry_delay.as_secs()), (100, 3, 5));
/// ```
#[derive(Clone)]
pub struct ProviderConfig {
    /// Its id, unique in the set.
    pub id: String,
    /// What it is: `cve`, `asvs`, …
    pub provider_type: String,
    /// File of its state; `None` is the engine's store, and any other file is rejected, because state and records are
    /// written in one transaction.
    pub storage: Option<PathBuf>,
    /// What reads and understands; `None` is the built-in provider of that type.
    pub executor: Option<Arc<dyn Provider>>,
    /// The providers that must have completed before.
    pub dependencies: Vec<String>,
    /// Items per batch.
    pub batch_size: usize,
    /// Retries in a row for one page before the run fails.
    pub max_retries: u32,
    /// The wait before the first retry.
    pub retry_delay: Duration,
}

impl ProviderConfig {
    /// With the defaults.
    pub fn new(id: &str, provider_type: &str) -> Self {
        Self {
            id: id.to_owned(),
            provider_type: provider_type.to_owned(),
            storage: None,
            executor: None,
            dependencies: Vec::new(),
            batch_size: 100,
            max_retries: 3,
            retry_delay: Duration::from_secs(5),
        }
    }

    /// Of a provider, under its own id and with its own dependencies.
    pub fn of(provider: Arc<dyn Provider>) -> Self {
        let dependencies = provider.dependencies().iter().map(|&id| id.to_owned()).collect();
        Self {
            dependencies,
            executor: Some(Arc::clone(&provider)),
            ..Self::new(provider.id(), provider.id())
        }
    }

    pub(super) fn policy(&self) -> Policy {
        Policy { max_retries: self.max_retries, retry_delay: self.retry_delay }
    }

    /// Returns the provider: the executor, or the built-in one of its type.
    pub fn provider(&self) -> Option<Arc<dyn Provider>> {
        let built_in = || providers::all().into_iter().find(|one| one.id() == self.provider_type);
        self.executor.clone().or_else(built_in)
    }
}

/// Called by the writer inside its transaction before each record that it writes.
pub type Brake = Arc<dyn Fn() + Send + Sync>;

/// What an engine is told.
#[derive(Clone)]
pub struct Options {
    /// The store.
    pub db: PathBuf,
    /// The providers there are.
    pub providers: Vec<ProviderConfig>,
    /// Where providers read, where somebody said so.
    pub sources: BTreeMap<String, Source>,
    /// A folder or URL that holds what the others read.
    pub mirror: Option<Source>,
    /// Credentials by the name of the environment variable that [`Provider::credential_variable`] returns.
    pub credentials: BTreeMap<String, String>,
    /// Patience over HTTP.
    pub timeouts: Timeouts,
    /// How much a source may be.
    pub limits: Limits,
    /// The broker's rules.
    pub permits: broker::Config,
    /// How many batches may wait for the store. More than there are permits, so that a full house is no jam.
    pub queue_len: usize,
    /// Slows the store down, in tests.
    pub brake: Option<Brake>,
    /// Whether paused providers go on.
    pub resume: bool,
    /// Who watches requests.
    pub on_fetch: Option<OnFetch>,
}

impl Options {
    /// Every built-in provider, with the defaults.
    pub fn new(db: PathBuf) -> Self {
        Self {
            db,
            providers: providers::all().into_iter().map(ProviderConfig::of).collect(),
            sources: BTreeMap::new(),
            mirror: None,
            credentials: BTreeMap::new(),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            permits: broker::Config::default(),
            queue_len: 16,
            brake: None,
            resume: false,
            on_fetch: None,
        }
    }

    /// Where a provider reads: as said, from the mirror, or upstream.
    pub fn source_of(&self, id: &str, provider: &dyn Provider) -> Source {
        if let Some(source) = self.sources.get(id) {
            return source.clone();
        }
        match self.mirror.as_ref().map(|mirror| &mirror.place) {
            Some(Place::Url(url)) => Source::parse(&format!("{}/{id}", url.trim_end_matches('/')), None),
            Some(Place::Path(folder)) => {
                let folders = [folder.join(id), folder.join(provider.mirror_folder())];
                let found = folders.iter().find(|folder| folder.exists()).unwrap_or(&folders[0]);
                Source { place: Place::Path(found.clone()), version: None }
            }
            None => Source::parse(provider.upstream(), None),
        }
    }
}
