//! The NVD's CVEs: pages of the API 2.0, and the yearly feeds of the same shape.

mod api;
mod entry;

use std::io::Read;
use std::time::Duration;

use super::{Freshness, PathLink, Provider};
use crate::record::{Item, Reject, Verdict};
use crate::source::{
    Context, Cut, Extract, Failure, Files, JsonArray, OpenRows, Place, Rows, RowsError, Source,
};

/// The provider `cve`.
pub struct Cve;

/// The list in every page and feed.
const LIST: &str = "vulnerabilities";

impl Provider for Cve {
    fn id(&self) -> &'static str {
        "cve"
    }

    fn dependencies(&self) -> &'static [&'static str] {
        &["cwe"]
    }

    fn upstream(&self) -> &'static str {
        "https://services.nvd.nist.gov/rest/json/cves/2.0"
    }

    fn mirror_folder(&self) -> &'static str {
        "nvd"
    }

    /// The NVD changes all day.
    fn freshness(&self) -> Freshness {
        Freshness { schedule: "2h", stale_after: Duration::from_secs(12 * 3600) }
    }

    fn credential_variable(&self) -> Option<&'static str> {
        Some("NVD_API_KEY")
    }

    fn path_link(&self) -> Option<PathLink> {
        Some(PathLink { to: "cwe", names: "weakness", named_by: None })
    }

    fn open(
        &self,
        source: &Source,
        resume: Option<&str>,
        context: &Context,
    ) -> Result<Box<dyn Extract>, Failure> {
        let open_rows: OpenRows = Box::new(|input, _| Ok(Box::new(Feed::open(input)?)));
        Ok(match &source.place {
            Place::Url(url) if !is_feed(url) => Box::new(api::Api::new(url, resume, context)),
            _ => Box::new(Files::open(source, is_feed, open_rows, resume, context)?),
        })
    }

    fn understand(&self, item: &Item) -> Result<Verdict, Reject> {
        entry::understand(&item.raw)
    }
}

fn is_feed(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".json") || name.ends_with(".json.gz")
}

/// A feed or a saved page.
struct Feed<R> {
    array: JsonArray<R>,
    first: Option<Option<Vec<u8>>>,
}

impl<R: Read> Feed<R> {
    /// Reads up to the first record, to see whether this is what we know.
    fn open(input: R) -> Result<Self, RowsError> {
        let mut array = JsonArray::new(input, LIST);
        let first = match array.next_element() {
            Ok(first) => first,
            Err(Cut::Syntax { what: "no JSON object", .. }) => {
                return Err(unknown("it holds no JSON object"));
            }
            Err(cut) => return Err(cut.into()),
        };
        check_format(&array)?;
        Ok(Self { array, first: Some(first) })
    }
}

fn check_format<R: Read>(array: &JsonArray<R>) -> Result<(), RowsError> {
    if !array.has_array() {
        let names: Vec<_> = array.field_names().take(8).collect();
        return Err(unknown(&format!("it has no `{LIST}`, only: {}", names.join(", "))));
    }
    match (array.field("format"), array.field("version")) {
        (Some(format), _) if format != "NVD_CVE" => Err(unknown(&format!("its format is `{format}`"))),
        (_, Some(version)) if version != "2.0" => Err(unknown(&format!("its version is `{version}`"))),
        _ => Ok(()),
    }
}

fn unknown(why: &str) -> RowsError {
    RowsError::Format(format!("not an NVD feed: cve reads the JSON of the NVD API 2.0; {why}"))
}

impl<R: Read + Send> Rows for Feed<R> {
    fn next_row(&mut self) -> Result<Option<Vec<u8>>, RowsError> {
        match self.first.take() {
            Some(first) => Ok(first),
            None => Ok(self.array.next_element()?),
        }
    }

    /// A whole feed declares its total; a saved page declares what is left of the total, up to a page.
    fn declared(&self) -> Option<u64> {
        let total = self.array.number("totalResults")?;
        let left = total.saturating_sub(self.array.number("startIndex").unwrap_or_default());
        Some(self.array.number("resultsPerPage").map_or(left, |page| left.min(page)))
    }
}

#[cfg(test)]
#[path = "cve_test.rs"]
mod tests;
