//! The names of subjects.

use std::sync::Arc;

use crate::codec::check_partition;

/// How the messages of a partition are named in the log: `{prefix}.{partition}` with `:` as `.`, and perhaps a suffix.
///
/// ```
/// use phalanx_cluster::SubjectScheme;
///
/// let subjects = SubjectScheme::new("run", "done");
/// assert_eq!(subjects.subject("acme:eu"), "run.acme.eu.done");
/// assert_eq!(subjects.partition("run.acme.eu.done").as_deref(), Some("acme:eu"));
/// assert_eq!(SubjectScheme::new("work", "").subject("17"), "work.17");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubjectScheme {
    prefix: String,
    suffix: String,
}

impl SubjectScheme {
    /// Subjects with that first token and that last one, or none.
    pub fn new(prefix: &str, suffix: &str) -> Self {
        let suffix = if suffix.is_empty() { String::new() } else { format!(".{suffix}") };
        Self { prefix: format!("{prefix}."), suffix }
    }

    /// The subject of a partition.
    pub fn subject(&self, partition: &str) -> String {
        format!("{}{}{}", self.prefix, partition.replace(':', "."), self.suffix)
    }

    /// The partition of a subject, if it is one of ours.
    pub fn partition(&self, subject: &str) -> Option<Arc<str>> {
        let name = subject.strip_prefix(&self.prefix)?.strip_suffix(&self.suffix)?.replace('.', ":");
        check_partition(&name).is_ok().then(|| name.into())
    }
}
