//! A provider that makes records up for as long as it is asked to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use phalanx_etl::engine::ProviderConfig;
use phalanx_etl::providers::Provider;
use phalanx_etl::source::{Context, Extract, Failure, Source, Step};
use phalanx_etl::{Item, Record, Reject, SourceRef, Urn, Verdict};

/// Gives records until there were `len`, which a test may change under way.
pub(crate) struct Stream {
    id: &'static str,
    len: Arc<AtomicU64>,
}

impl Stream {
    pub(crate) fn config(id: &'static str, len: &Arc<AtomicU64>, batch_size: usize) -> ProviderConfig {
        let stream = Self { id, len: Arc::clone(len) };
        ProviderConfig { batch_size, ..ProviderConfig::of(Arc::new(stream)) }
    }
}

impl Provider for Stream {
    fn id(&self) -> &'static str {
        self.id
    }

    fn upstream(&self) -> &'static str {
        "made up"
    }

    fn open(&self, _: &Source, resume: Option<&str>, _: &Context) -> Result<Box<dyn Extract>, Failure> {
        let next = resume.and_then(|cursor| cursor.parse().ok()).unwrap_or_default();
        Ok(Box::new(Counting { next, len: Arc::clone(&self.len) }))
    }

    fn understand(&self, item: &Item) -> Result<Verdict, Reject> {
        let id = format!("{}-{}", self.id, item.position);
        Ok(Verdict::Record(Box::new(Record {
            subtype: "vulnerability",
            urn: Urn::new("ssg", &id).map_err(Reject::new)?,
            title: id,
            text: "one of many".to_owned(),
            published: None,
            modified: None,
            status: None,
            severity: None,
            details: "{}".to_owned(),
            links: vec![],
        })))
    }
}

struct Counting {
    next: u64,
    len: Arc<AtomicU64>,
}

impl Extract for Counting {
    fn next(&mut self, max: usize, now: Duration) -> Result<Step, Failure> {
        let end = self.len.load(Ordering::SeqCst).min(self.next + max as u64);
        let items: Vec<_> =
            (self.next..end).map(|n| Item { position: n, raw: n.to_string().into_bytes() }).collect();
        self.next = self.next.max(end);
        let cursor = self.next.to_string();
        if items.is_empty() {
            return Ok(Step::Done { gaps: None, cursor });
        }
        let source = SourceRef { location: "made up".to_owned(), checksum: None, fetched: now };
        Ok(Step::Items { items, source, cursor, page_done: true })
    }
}
