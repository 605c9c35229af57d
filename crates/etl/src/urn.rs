//! Names of records: `v2e::nvd::cve::CVE-2024-12233`.

use std::fmt;
use std::str::FromStr;

/// What kinds of records there are, each with who publishes it.
const KINDS: [(&str, &str); 7] = [
    ("nvd", "cve"),
    ("mitre", "cwe"),
    ("mitre", "capec"),
    ("mitre", "attack"),
    ("nist", "ssg"),
    ("owasp", "asvs"),
    ("nist", "cce"),
];

/// No upstream id comes near this; longer ones are a mistake or an attack.
const ID_LEN_MAX: usize = 256;

/// The name of a record, checked.
///
/// ```
/// use phalanx_etl::Urn;
///
/// let urn: Urn = "v2e::nvd::cve::CVE-2024-12233".parse()?;
/// assert_eq!((urn.kind(), urn.id()), ("cve", "CVE-2024-12233"));
/// assert!("v2e::nvd::cve::2024".parse::<Urn>().is_err());
/// # Ok::<(), phalanx_etl::UrnError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Urn {
    text: String,
    publisher: &'static str,
    kind: &'static str,
}

/// Why a text is not the name of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrnError {
    /// It does not have the four parts.
    #[error("`{0}` is not a URN: it should read v2e::publisher::kind::id")]
    Shape(String),
    /// Nobody publishes that.
    #[error(
        "`{0}`: there is no `{1}::{2}`; there are nvd::cve, mitre::cwe, mitre::capec, mitre::attack, nist::ssg, owasp::asvs, nist::cce"
    )]
    Kind(String, String, String),
    /// The id is not one of that kind.
    #[error("`{id}` is not the id of a {kind}: {rule}")]
    Id {
        /// What was given.
        id: String,
        /// Of what.
        kind: &'static str,
        /// What it should be.
        rule: &'static str,
    },
}

impl Urn {
    /// The URN of the record `id` of that kind.
    pub fn new(kind: &str, id: &str) -> Result<Self, UrnError> {
        let Some(&(publisher, kind)) = KINDS.iter().find(|(_, known)| *known == kind) else {
            return Err(UrnError::Kind(id.to_owned(), "…".to_owned(), kind.to_owned()));
        };
        check_id(kind, id)?;
        Ok(Self { text: format!("v2e::{publisher}::{kind}::{id}"), publisher, kind })
    }

    /// What people write: a whole URN, or an id whose kind shows, such as `CWE-79` or `T1078`.
    ///
    /// ```
    /// assert_eq!(phalanx_etl::Urn::guess("T1574.010")?.as_str(), "v2e::mitre::attack::T1574.010");
    /// # Ok::<(), phalanx_etl::UrnError>(())
    /// ```
    pub fn guess(text: &str) -> Result<Self, UrnError> {
        let kind = match text.split_once('-').map_or(text, |(prefix, _)| prefix) {
            "CVE" => "cve",
            "CWE" => "cwe",
            "CAPEC" => "capec",
            "CCE" => "cce",
            prefix if is_attack_id(prefix) => "attack",
            _ => return text.parse(),
        };
        Self::new(kind, text)
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The kind, such as `cve`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The id, such as `CVE-2024-12233`.
    pub fn id(&self) -> &str {
        &self.text["v2e::".len() + self.publisher.len() + 2 + self.kind.len() + 2..]
    }
}

impl FromStr for Urn {
    type Err = UrnError;

    fn from_str(text: &str) -> Result<Self, UrnError> {
        let mut parts = text.splitn(4, "::");
        let (Some("v2e"), Some(publisher), Some(kind), Some(id)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(UrnError::Shape(text.to_owned()));
        };
        if !KINDS.contains(&(publisher, kind)) {
            return Err(UrnError::Kind(text.to_owned(), publisher.to_owned(), kind.to_owned()));
        }
        Self::new(kind, id)
    }
}

impl fmt::Display for Urn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// `T1078`, `T1574.010`, `TA0107`, `G0034`, …: letters, then digits.
fn is_attack_id(text: &str) -> bool {
    let digits = text.trim_start_matches(|one: char| one.is_ascii_uppercase());
    let letters = text.len() - digits.len();
    (1..=3).contains(&letters)
        && digits.len() >= 4
        && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn check_id(kind: &'static str, id: &str) -> Result<(), UrnError> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let numbered = |prefix: &str| id.strip_prefix(prefix).is_some_and(digits);
    let (fits, rule) = match kind {
        "cve" => (
            id.strip_prefix("CVE-").and_then(|rest| rest.split_once('-')).is_some_and(|(year, number)| {
                year.len() == 4 && digits(year) && number.len() >= 4 && digits(number)
            }),
            "it should read CVE-YYYY-NNNN",
        ),
        // The catalogues number what they refer to as well.
        "cwe" => (numbered("CWE-") || numbered("REF-"), "it should read CWE-N"),
        "capec" => (numbered("CAPEC-") || numbered("REF-"), "it should read CAPEC-N"),
        _ => (
            !id.is_empty()
                && !id.contains("::")
                && !id.chars().any(|one| one.is_whitespace() || one.is_control()),
            "it should be neither empty nor hold blanks or `::`",
        ),
    };
    if fits && id.len() <= ID_LEN_MAX {
        Ok(())
    } else {
        let id = id.chars().take(ID_LEN_MAX).collect();
        Err(UrnError::Id { id, kind, rule })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_of_the_design_is_read_and_written_back() {
        for text in [
            "v2e::nvd::cve::CVE-2024-12233",
            "v2e::mitre::cwe::CWE-79",
            "v2e::mitre::capec::CAPEC-66",
            "v2e::mitre::attack::T1078",
            "v2e::nist::ssg::guide-rhel8",
            "v2e::nist::ssg::rhel8/accounts_tmout",
            "v2e::owasp::asvs::14.1",
            "v2e::owasp::asvs::5.0.0-V1.1.1",
            "v2e::nist::cce::CCE-12345",
        ] {
            let urn: Urn = text.parse().unwrap();
            assert_eq!(urn.to_string(), text);
            assert!(text.ends_with(&format!("{}::{}", urn.kind(), urn.id())));
        }
    }

    #[test]
    fn what_is_no_urn_is_refused() {
        for text in [
            "",
            "v2e",
            "v2e::nvd::cve",
            "v1e::nvd::cve::CVE-2024-1234",
            "v2e::mitre::cve::CVE-2024-1234",
            "v2e::nvd::cve::CVE-2024-123",
            "v2e::nvd::cve::CVE-24-1234",
            "v2e::nvd::cve::CVE-2024-1234x",
            "v2e::mitre::cwe::79",
            "v2e::owasp::asvs::",
            "v2e::owasp::asvs::a b",
            "v2e::owasp::asvs::a::b",
        ] {
            assert!(text.parse::<Urn>().is_err(), "{text}");
        }
    }
}
