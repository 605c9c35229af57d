//! Names: the parts of a partition's name, and the stored names of a group.

mod group;

use thiserror::Error;

pub use self::group::{Bucket, BucketKey, Names};

/// The maximum length of a name, in characters.
pub const MAX_NAME_LEN: usize = 64;

/// Error of a name that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// It has no character.
    #[error("a name is empty; it needs 1 to {MAX_NAME_LEN} of A–Z a–z 0–9 - _ =")]
    Empty,
    /// It has too many characters.
    #[error("the name {name:?} has {len} characters; at most {MAX_NAME_LEN} are allowed")]
    TooLong {
        /// The name, cut short.
        name: String,
        /// Its length.
        len: usize,
    },
    /// It has a character that means something else in a subject or a key.
    #[error("the name {name:?} has {character:?} at position {position}; allowed are A–Z a–z 0–9 - _ =")]
    BadCharacter {
        /// The name.
        name: String,
        /// The first character that is not allowed.
        character: char,
        /// Its place, from 1.
        position: usize,
    },
}

/// Checks one name: it becomes part of subjects and keys, so it is 1–64 of `A–Z a–z 0–9 - _ =`.
///
/// ```
/// use phalanx_cluster::names::check;
/// assert!(check("orders-01").is_ok());
/// assert_eq!(
///     check("orders.01").unwrap_err().to_string(),
///     "the name \"orders.01\" has '.' at position 7; allowed are A–Z a–z 0–9 - _ ="
/// );
/// ```
pub fn check(name: &str) -> Result<(), NameError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '=');
    let len = name.chars().count();
    if len == 0 {
        return Err(NameError::Empty);
    }
    if len > MAX_NAME_LEN {
        let name = name.chars().take(MAX_NAME_LEN).chain(['…']).collect();
        return Err(NameError::TooLong { name, len });
    }
    match name.chars().enumerate().find(|(_, c)| !allowed(*c)) {
        Some((at, character)) => {
            Err(NameError::BadCharacter { name: name.to_owned(), character, position: at + 1 })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_name_is_taken_and_one_more_is_not() {
        assert_eq!(check(&"x".repeat(64)), Ok(()));
        assert!(matches!(check(&"x".repeat(65)), Err(NameError::TooLong { len: 65, .. })));
        assert_eq!(check(""), Err(NameError::Empty));
    }

    #[test]
    fn what_would_break_a_subject_or_a_key_is_refused() {
        for bad in ["a.b", "a b", "a:b", "a*", ">", "ä", "a/b", "a\0"] {
            assert!(matches!(check(bad), Err(NameError::BadCharacter { .. })), "{bad}");
        }
    }
}
