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
use crate::source::{Extract, Failure, Http, Limits, Source};

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
/// use phalanx_etl::providers::{Context, Provider};
/// use phalanx_etl::source::{Extract, Failure, Source, Step};
/// use phalanx_etl::store::SourceRef;
/// use phalanx_etl::{Item, Record, Reject, Urn, Verdict};
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

    /// What else of its records is worth counting: a name, and the list in `details` whose entries count.
    fn tallies(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Makes a record of an item, or says why not.
    fn understand(&self, item: &Item) -> Result<Verdict, Reject>;
}

/// What a provider may use.
#[derive(Clone)]
pub struct Context {
    /// For requests.
    pub http: Http,
    /// How much a source may be.
    pub limits: Limits,
    /// When the provider is opened.
    pub now: Duration,
    /// The key of the NVD, if there is one.
    pub nvd_api_key: Option<String>,
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
