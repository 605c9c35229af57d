//! Look-ups in the store that follow rules of the providers.

use crate::Urn;
use crate::providers::{self, PathLink};
use crate::store::{Error, PathStep, Reader, RecordView};

/// Returns the record of a URN. A short form without a version is the newest loaded version.
pub fn record(reader: &Reader, urn: &Urn) -> Result<Option<RecordView>, Error> {
    if let Some(found) = reader.record(urn.as_str())? {
        return Ok(Some(found));
    }
    let provider = providers::all().into_iter().find(|provider| provider.id() == urn.kind());
    let Some(separator) = provider.and_then(|provider| provider.version_separator()) else { return Ok(None) };
    let prefix = urn.as_str().strip_suffix(urn.id()).unwrap_or_default();
    // The last character of the separator may begin the short id, too.
    let short_id = urn.id().trim_start_matches(separator.trim_start_matches('-'));
    match reader.newest_version(prefix, separator, short_id)? {
        Some(newest) => reader.record(&newest),
        None => Ok(None),
    }
}

/// Returns the path through all kinds of records that the links of the providers form, in order.
///
/// ```
/// let kinds: Vec<_> = phalanx_etl::lookup::path().iter().map(|step| step.kind).collect();
/// assert_eq!(kinds.join(" → "), "cve → cwe → capec → attack");
/// ```
pub fn path() -> Vec<PathStep> {
    let all = providers::all();
    let link_of = |id: &str| all.iter().find(|provider| provider.id() == id).and_then(|one| one.path_link());
    let is_target = |id: &str| all.iter().any(|one| one.path_link().is_some_and(|link| link.to == id));
    let first = all.iter().map(|one| one.id()).find(|id| link_of(id).is_some() && !is_target(id));
    let mut path: Vec<PathStep> = Vec::new();
    let mut next = first;
    while let Some(kind) = next.filter(|kind| path.iter().all(|step| step.kind != *kind)) {
        let link: Option<PathLink> = link_of(kind);
        let names = link.map(|link| link.names);
        path.push(PathStep { kind, names, named_by: link.and_then(|link| link.named_by) });
        next = link.map(|link| link.to);
    }
    path
}
