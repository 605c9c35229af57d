//! Where data comes from: a URL, a file, or a folder of files.

mod files;
mod http;
mod json;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use files::hex;
pub use files::{Files, OpenRows, Rows, RowsError};
pub(crate) use http::body_failure;
pub use http::{Http, Page, Timeouts};
pub use json::{Cut, JsonArray};

use crate::core::backoff::Fault;
use crate::record::Item;
use crate::store::SourceRef;

/// A place to read from.
///
/// ```
/// use phalanx_etl::source::{Place, Source};
///
/// let source = Source::parse("feeds/asvs-5.0.0-en.csv", None);
/// assert!(matches!(source.place, Place::Path(_)));
/// assert!(matches!(Source::parse("http://mirror/cve", None).place, Place::Url(_)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where.
    pub place: Place,
    /// The version of what is there, where somebody said it outright.
    pub version: Option<String>,
}

/// Where to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Over HTTP.
    Url(String),
    /// A local file or folder.
    Path(PathBuf),
}

impl Source {
    /// A URL where it looks like one, otherwise a path.
    pub fn parse(text: &str, version: Option<String>) -> Self {
        let is_url = text.starts_with("http://") || text.starts_with("https://");
        let place = if is_url { Place::Url(text.to_owned()) } else { Place::Path(text.into()) };
        Self { place, version }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Url(url) => f.write_str(url),
            Place::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// What one look at a source came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Items, and where to go on after them.
    Items {
        /// What was read; at most as many as were wanted.
        items: Vec<Item>,
        /// Where.
        source: SourceRef,
        /// Where to go on once these are stored.
        cursor: String,
        /// Whether a page or file ends with these.
        page_done: bool,
    },
    /// The pace does not allow another request before then.
    Wait(Duration),
    /// There is nothing more.
    Done {
        /// What is missing, in words.
        gaps: Option<String>,
        /// Where the next run begins.
        cursor: String,
    },
}

/// A part of a whole, in whatever the source counts: bytes of files, records of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// So much is read.
    pub done: u64,
    /// Of so much.
    pub total: u64,
}

/// Why there is no step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may go better later.
    Retry {
        /// Why.
        fault: Fault,
        /// What the source asked for.
        retry_after: Option<Duration>,
        /// Where to go on, if not where it was.
        cursor: Option<String>,
    },
    /// It will not.
    Broken(String),
}

impl Failure {
    pub(crate) fn retry(fault: Fault) -> Self {
        Self::Retry { fault, retry_after: None, cursor: None }
    }
}

/// Reads a source piece by piece. It is dropped and opened anew, at the last cursor, after every interruption.
pub trait Extract: Send {
    /// The next items, at most `max` of them.
    fn next(&mut self, max: usize, now: Duration) -> Result<Step, Failure>;

    /// How much of the source was read, where that can be said.
    fn done(&self) -> Option<Done> {
        None
    }
}
