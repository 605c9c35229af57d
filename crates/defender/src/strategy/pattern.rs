//! Patterns of names.

use phalanx_cluster::names;

/// A name in which `*` stands for any characters and `?` for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern(String);

impl Pattern {
    /// Takes a pattern that a name could match.
    pub(crate) fn parse(text: &str) -> Result<Self, names::NameError> {
        // A pattern is a name but for its two signs, and may be longer by its stars.
        match text.replace(['*', '?'], "").as_str() {
            "" if !text.is_empty() && text.len() <= names::MAX_NAME_LEN => {}
            plain => names::check(plain)?,
        }
        Ok(Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the whole name fits. The time grows with the product of the lengths, both of which are bounded.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let (pattern, name) = (self.0.as_bytes(), name.as_bytes());
        let (mut p, mut n) = (0, 0);
        // Where the last star was, and how much of the name it has taken so far.
        let mut star: Option<(usize, usize)> = None;
        while n < name.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p, n));
                    p += 1;
                }
                Some(&sign) if sign == b'?' || sign == name[n] => {
                    p += 1;
                    n += 1;
                }
                _ => {
                    let Some((at, taken)) = star else { return false };
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
            }
        }
        pattern[p..].iter().all(|sign| *sign == b'*')
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, as slow as it is plain.
    fn plainly(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.first(), name.first()) {
            (None, None) => true,
            (Some(b'*'), _) => {
                plainly(&pattern[1..], name) || !name.is_empty() && plainly(pattern, &name[1..])
            }
            (Some(sign), Some(letter)) => {
                (*sign == b'?' || sign == letter) && plainly(&pattern[1..], &name[1..])
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_what_its_definition_says(pattern in "[ab*?]{1,8}", name in "[ab]{1,8}") {
            let matches = Pattern::parse(&pattern).unwrap().matches(&name);
            prop_assert_eq!(matches, plainly(pattern.as_bytes(), name.as_bytes()));
        }
    }

    #[test]
    fn what_no_name_could_match_is_refused() {
        assert!(Pattern::parse("").is_err());
        assert!(Pattern::parse("etch.*").is_err());
        assert!(Pattern::parse("etch 1").is_err());
        assert!(Pattern::parse(&"*".repeat(65)).is_err());
        assert!(Pattern::parse("etch-*").unwrap().matches("etch-"));
        assert!(!Pattern::parse("etch-?").unwrap().matches("etch-"));
    }

    #[test]
    fn a_pattern_of_many_stars_takes_no_time() {
        let pattern = Pattern::parse(&format!("{}b", "*a".repeat(30))).unwrap();
        assert!(!pattern.matches(&"a".repeat(64)));
    }
}
