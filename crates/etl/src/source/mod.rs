//! Where data comes from: a URL, a file, or a folder of files.

mod collected;
mod files;
mod http;
mod json;
mod limit;
mod workbook;
mod xml;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use collected::{Collected, Found, Gathered, Piece};
pub(crate) use files::Part;
pub use files::{Files, OpenRows, Rows, RowsError};
pub(crate) use http::body_failure;
pub use http::{Http, OnFetch, Page, Timeouts};
pub use json::{Cut, JsonArray};
pub use limit::Limits;
pub(crate) use workbook::sheets;
pub(crate) use xml::{DEPTH_MAX, Layout, XmlItems};

use crate::core::backoff::Fault;
use crate::record::{Item, SourceRef};

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
    /// A URL where it looks like one, otherwise a path. Schemes other than http and https are refused when it is read.
    pub fn parse(text: &str, version: Option<String>) -> Self {
        let is_url = text.split_once("://").is_some_and(|(scheme, _)| {
            scheme.len() > 1
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        });
        let place = if is_url { Place::Url(text.to_owned()) } else { Place::Path(text.into()) };
        Self { place, version }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Url(url) => f.write_str(&redact(url)),
            Place::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The address without what may be secret in it: user and password, and values of parameters that sound like keys.
pub(crate) fn redact(url: &str) -> String {
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let address = match address.split_once("://") {
        Some((scheme, rest)) => {
            let host_len = rest.find('/').unwrap_or(rest.len());
            let start = rest[..host_len].rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}://{}", &rest[start..])
        }
        None => address.to_owned(),
    };
    let Some(query) = query else { return address };
    let secret = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["key", "token", "secret", "password", "signature", "sig", "auth"]
            .iter()
            .any(|word| name.contains(word))
    };
    let parameters = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) if secret(name) => format!("{name}=***"),
        _ => pair.to_owned(),
    });
    format!("{address}?{}", parameters.collect::<Vec<_>>().join("&"))
}

/// The resources of a provider that reads a source.
#[derive(Clone)]
pub struct Context {
    /// The client for requests.
    pub http: Http,
    /// The largest source that is read.
    pub limits: Limits,
    /// The time at which the provider is opened.
    pub now: Duration,
    /// The credential that the provider asks for, if the operator supplied one.
    pub credential: Option<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_an_address_are_not_shown() {
        assert_eq!(redact("https://me:pw@host/a@b?x=1&apiKey=s3cret#"), "https://host/a@b?x=1&apiKey=***");
        assert_eq!(redact("http://host"), "http://host");
        assert_eq!(
            Source::parse("http://u:p@host/x?access_token=t", None).to_string(),
            "http://host/x?access_token=***"
        );
    }

    #[test]
    fn whatever_has_a_scheme_is_a_url_and_everything_else_a_path() {
        for url in ["http://a", "ftp://a/b", "file:///etc/passwd", "gopher://x"] {
            assert!(matches!(Source::parse(url, None).place, Place::Url(_)), "{url}");
        }
        for path in ["feeds/x.csv", "/a/b", "a:b", "C://x"] {
            assert!(matches!(Source::parse(path, None).place, Place::Path(_)), "{path}");
        }
    }
}
