//! The providers there are, and what a provider is.

mod asvs;
mod attack;
mod capec;
mod catalog;
mod cce;
mod cve;
mod cwe;
mod element;
mod ssg;

use std::sync::Arc;
use std::time::Duration;

use crate::record::{Item, Reject, Verdict};
use crate::source::{Context, Extract, Failure, Source};

pub use asvs::Asvs;
pub use attack::Attack;
pub use capec::Capec;
pub use cce::Cce;
pub use cve::Cve;
pub use cwe::Cwe;
pub use ssg::Ssg;

/// A source of records. Writing another one takes one file like those beside this one, and a line in [`all`].
///
/// ```
/// use std::time::Duration;
/// use phalanx_etl::core::backoff::Fault;
/// use phalanx_etl::providers::Provider;
/// use phalanx_etl::source::{Context, Extract, Failure, Source, Step};
/// use phalanx_etl::{Item, Record, Reject, SourceRef, Urn, Verdict};
///
/// /// One weakness, from nowhere.
/// struct Cwe;
///
/// impl Provider for Cwe {
///     fn id(&self) -> &'static str { "cwe" }
///     fn upstream(&self) -> &'static str { "https://cwe.example" }
///
///     fn open(&self, _: &Source, resume: Option<&str>, _: &Context) -> Result<Box<dyn Extract>, Failure> {
///         Ok(Box::new(Once { done: resume == Some("done") }))
///     }
///
///     fn understand(&self, item: &Item) -> Result<Verdict, Reject> {
///         let id = std::str::from_utf8(&item.raw).map_err(Reject::new)?;
///         Ok(Verdict::Record(Box::new(Record {
///             urn: Urn::new("cwe", id).map_err(Reject::new)?,
///             subtype: "weakness", title: id.to_owned(), text: String::new(), published: None, modified: None,
///             status: None, severity: None, details: "{}".to_owned(), links: vec![],
///         })))
///     }
/// }
///
/// struct Once { done: bool }
///
/// impl Extract for Once {
///     fn next(&mut self, _max: usize, now: Duration) -> Result<Step, Failure> {
///         if std::mem::replace(&mut self.done, true) {
///             return Ok(Step::Done { gaps: None, cursor: String::new() });
///         }
///         let source = SourceRef { location: "nowhere".to_owned(), checksum: None, fetched: now };
///         let items = vec![Item { position: 0, raw: b"CWE-79".to_vec() }];
///         Ok(Step::Items { items, source, cursor: "done".to_owned(), page_done: true })
///     }
/// }
/// assert!(Cwe.understand(&Item { position: 0, raw: b"79".to_vec() }).is_err());
/// ```
pub trait Provider: Send + Sync {
    /// Its id, such as `cve`.
    fn id(&self) -> &'static str;

    /// The providers that must have completed before.
    fn dependencies(&self) -> &'static [&'static str] {
        &[]
    }

    /// Where it reads when nobody says otherwise.
    fn upstream(&self) -> &'static str;

    /// What its folder in a mirror may be called, besides its id.
    fn mirror_folder(&self) -> &'static str {
        self.id()
    }

    /// Begins to read `source`, at the cursor `resume` where there is one.
    fn open(
        &self,
        source: &Source,
        resume: Option<&str>,
        context: &Context,
    ) -> Result<Box<dyn Extract>, Failure>;

    /// The default schedule of its runs, and the age from which its data counts as stale.
    fn freshness(&self) -> Freshness {
        Freshness::default()
    }

    /// The environment variable of its credential, if its upstream knows one.
    fn credential_variable(&self) -> Option<&'static str> {
        None
    }

    /// The step of the path through all kinds that leads from its records to those of another provider.
    fn path_link(&self) -> Option<PathLink> {
        None
    }

    /// The text between version and short id in the ids of its records, if several versions can be loaded.
    fn version_separator(&self) -> Option<&'static str> {
        None
    }

    /// What else of its records is worth counting: a name, and the list in `details` whose entries count.
    fn tallies(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Makes a record of an item, or says why not.
    fn understand(&self, item: &Item) -> Result<Verdict, Reject>;
}

/// The default schedule of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// Interval or cron expression of its runs.
    pub schedule: &'static str,
    /// Age of the last complete run from which the data counts as stale.
    pub stale_after: Duration,
}

/// Once a day, and stale after three days.
impl Default for Freshness {
    fn default() -> Self {
        Self { schedule: "1d", stale_after: Duration::from_secs(72 * 3600) }
    }
}

/// Links from the records of one provider to those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathLink {
    /// The other provider.
    pub to: &'static str,
    /// The kind of the links.
    pub names: &'static str,
    /// The kind of links in the other direction that mean the same.
    pub named_by: Option<&'static str>,
}

/// Every provider.
pub fn all() -> Vec<Arc<dyn Provider>> {
    vec![
        Arc::new(Asvs),
        Arc::new(Attack),
        Arc::new(Capec),
        Arc::new(Cce),
        Arc::new(Cve),
        Arc::new(Cwe),
        Arc::new(Ssg),
    ]
}
