//! What elections and candidates may be called, and how long a term may be.

use std::time::Duration;

use thiserror::Error;

/// The shortest term: below it a change of the Raft leader ends every leadership.
pub const TERM_MIN: Duration = Duration::from_secs(1);
/// The longest term: so long an election stays without a leader when one dies.
pub const TERM_MAX: Duration = Duration::from_secs(60 * 60);
/// The kind of elections that name none.
pub const DEFAULT_KIND: &str = "default";
const NAME_MAX: usize = 128;
const CANDIDATE_MAX: usize = 256;

/// A name or a term that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// Nothing was given.
    #[error("the {what} is empty")]
    Empty {
        /// Which field.
        what: &'static str,
    },
    /// Too long.
    #[error("the {what} has {length} bytes, more than {max}")]
    Long {
        /// Which field.
        what: &'static str,
        /// How long it is.
        length: usize,
        /// How long it may be.
        max: usize,
    },
    /// A character that is not allowed.
    #[error("the {what} {name:?} contains {bad:?}; {allowed}")]
    Character {
        /// Which field.
        what: &'static str,
        /// The name.
        name: String,
        /// The first bad character.
        bad: char,
        /// What it may consist of.
        allowed: &'static str,
    },
    /// A term out of its range.
    #[error("a term of {} ms is not between {} ms and {} ms", .0.as_millis(), TERM_MIN.as_millis(), TERM_MAX.as_millis())]
    Term(Duration),
}

/// The name of an election, as it is kept: `election`, or `kind/election` for a kind other than `default`.
pub fn election(name: &str) -> Result<String, Invalid> {
    match name.split_once('/') {
        Some((kind, name)) => of_kind(kind, name),
        None => of_kind(DEFAULT_KIND, name),
    }
}

/// The name of an election of a kind; no kind means `default`.
pub fn of_kind(kind: &str, election: &str) -> Result<String, Invalid> {
    plain("election", election)?;
    if kind.is_empty() || kind == DEFAULT_KIND {
        return Ok(election.to_owned());
    }
    plain("kind", kind)?;
    Ok(format!("{kind}/{election}"))
}

/// The kind of an election and its name within it.
pub fn split(name: &str) -> (&str, &str) {
    name.split_once('/').unwrap_or((DEFAULT_KIND, name))
}

/// The name of a candidate.
pub fn candidate(name: &str) -> Result<String, Invalid> {
    sized("candidate", name, CANDIDATE_MAX)?;
    match name.chars().find(|c| c.is_control()) {
        None => Ok(name.to_owned()),
        Some(bad) => Err(Invalid::Character {
            what: "candidate",
            name: name.to_owned(),
            bad,
            allowed: "control characters are not allowed",
        }),
    }
}

/// A term in whole milliseconds.
pub fn term(term: Duration) -> Result<u64, Invalid> {
    match u64::try_from(term.as_millis()) {
        Ok(ms) if (TERM_MIN..=TERM_MAX).contains(&term) => Ok(ms),
        _ => Err(Invalid::Term(term)),
    }
}

fn plain(what: &'static str, name: &str) -> Result<(), Invalid> {
    sized(what, name, NAME_MAX)?;
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.:=@".contains(c);
    match name.chars().find(|c| !is_good(*c)) {
        None => Ok(()),
        Some(bad) => Err(Invalid::Character {
            what,
            name: name.to_owned(),
            bad,
            allowed: "allowed are A–Z a–z 0–9 - _ . : = @",
        }),
    }
}

fn sized(what: &'static str, name: &str, max: usize) -> Result<(), Invalid> {
    match name.len() {
        0 => Err(Invalid::Empty { what }),
        length if length > max => Err(Invalid::Long { what, length, max }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_of_the_service_mean_the_same_election_by_the_same_name() {
        assert_eq!(election("fab-1"), of_kind("", "fab-1"));
        assert_eq!(election("fab-1"), of_kind("default", "fab-1"));
        assert_eq!(election("default/fab-1"), of_kind("default", "fab-1"));
        assert_eq!(election("line/fab-1"), of_kind("line", "fab-1"));
        assert_eq!(split("line/fab-1"), ("line", "fab-1"));
        assert_eq!(split("fab-1"), ("default", "fab-1"));
    }

    #[test]
    fn a_bad_name_is_shown_with_its_first_bad_character() {
        let text = |name: &str| election(name).unwrap_err().to_string();
        assert_eq!(text(""), "the election is empty");
        assert_eq!(text("a/"), "the election is empty");
        assert_eq!(text("a b#"), "the election \"a b#\" contains ' '; allowed are A–Z a–z 0–9 - _ . : = @");
        assert!(text("a/b/c").contains("'/'"));
        assert_eq!(text(&"x".repeat(129)), "the election has 129 bytes, more than 128");
        assert!(candidate("a\nb").unwrap_err().to_string().contains("control characters"));
        assert_eq!(candidate("worker-5 @ pod 7"), Ok("worker-5 @ pod 7".to_owned()));
    }

    #[test]
    fn a_term_out_of_range_is_told_with_both_limits() {
        let error = term(Duration::from_millis(999)).unwrap_err();
        assert_eq!(error.to_string(), "a term of 999 ms is not between 1000 ms and 3600000 ms");
        assert_eq!(term(TERM_MIN), Ok(1000));
        assert!(term(TERM_MAX + Duration::from_nanos(1)).is_err());
    }
}
