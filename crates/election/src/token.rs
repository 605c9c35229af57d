//! Tokens: which leadership is meant, and the proof that the bearer has it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::leases::Nonce;

/// What a leader shows to keep or to give back its leadership: the election, and 128 bits that nobody can guess.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Of what.
    pub election: String,
    /// The secret of the lease.
    pub nonce: Nonce,
}

/// The text is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this is no token: send the one that AcquireLeadership answered with, unchanged")]
pub struct NoToken;

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { election, nonce: Nonce(high, low) } = self;
        write!(f, "{election}#{high:016x}{low:016x}")
    }
}

/// The secret is never shown by accident.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.election)
    }
}

impl FromStr for Token {
    type Err = NoToken;

    fn from_str(text: &str) -> Result<Self, NoToken> {
        let (election, secret) = text.rsplit_once('#').ok_or(NoToken)?;
        let number = |range| {
            let digits: &str = secret.get(range).ok_or(NoToken)?;
            u64::from_str_radix(digits, 16).map_err(|_| NoToken)
        };
        if secret.len() != 32 || !secret.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(NoToken);
        }
        Ok(Self { election: election.to_owned(), nonce: Nonce(number(0..16)?, number(16..32)?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_from_its_text_and_hides_its_secret() {
        let token = Token { election: "line/fab-1".to_owned(), nonce: Nonce(0xab, u64::MAX) };
        let text = token.to_string();
        assert_eq!(text, "line/fab-1#00000000000000abffffffffffffffff");
        assert_eq!(text.parse(), Ok(token.clone()));
        assert_eq!(format!("{token:?}"), "Token(line/fab-1)");
    }

    #[test]
    fn other_texts_are_no_tokens() {
        for text in [
            "",
            "e",
            "e#",
            "e#12",
            "e#+0000000000000abffffffffffffffff",
            "e#0000000000000é00ffffffffffffffff",
        ] {
            assert_eq!(text.parse::<Token>(), Err(NoToken), "{text}");
        }
    }
}
