//! Reading is open; whatever changes something needs the bearer token, and is off where there is none.

use std::fmt;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use sha2::{Digest as _, Sha256};

use crate::ApiError;

/// The token that requests must bear. It is never shown.
#[derive(Clone)]
pub struct Token(Option<[u8; 32]>);

impl Token {
    /// Everything that needs a token is off.
    pub fn none() -> Self {
        Self(None)
    }

    /// That token. An empty one is none: nobody means that everybody may do everything.
    pub fn new(token: &str) -> Self {
        Self((!token.is_empty()).then(|| digest(token)))
    }

    /// Whether a request with this `Authorization` header may change something.
    pub(crate) fn check(&self, authorization: Option<&str>) -> Result<(), ApiError> {
        let Some(expected) = &self.0 else {
            return Err(ApiError::new(
                StatusCode::FORBIDDEN,
                "no_token_configured",
                "this changes something, which is off because no API_TOKEN is set here; set one and restart",
            ));
        };
        let refuse = |message: &str| Err(ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message));
        let Some(given) = authorization else {
            return refuse("this changes something: send the header `Authorization: Bearer <API_TOKEN>`");
        };
        match token_in(given) {
            Some(token) if digest(token) == *expected => Ok(()),
            Some(_) => refuse("the token in the header Authorization is not the API_TOKEN of this service"),
            None => refuse("the header Authorization is not of the form `Bearer <API_TOKEN>`"),
        }
    }

    /// Returns whether this `Authorization` header contains the token.
    pub fn is_in_header(&self, authorization: &str) -> bool {
        self.0.is_some_and(|expected| token_in(authorization).is_some_and(|token| digest(token) == expected))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Token(set)" } else { "Token(none)" })
    }
}

/// The token of a header of the form `Bearer TOKEN`.
fn token_in(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Digests are compared, so the time it takes says nothing about the token.
fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Lets reading through, and everything else only with the token.
pub(crate) async fn guard(State(token): State<Token>, request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if !reads && let Err(error) = token.check(bearer(&request)) {
        return error.into_response();
    }
    next.run(request).await
}

pub(crate) fn bearer(request: &Request) -> Option<&str> {
    request.headers().get(header::AUTHORIZATION)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lets_only_itself_through_and_is_never_shown() {
        let token = Token::new("secret");
        assert_eq!(token.check(Some("Bearer secret")), Ok(()));
        assert_eq!(token.check(Some("bearer secret")), Ok(()));
        assert!(token.is_in_header("Bearer secret") && !token.is_in_header("Bearer Secret"));
        assert!(!Token::none().is_in_header("Bearer "), "without a token, no header is right");
        for wrong in ["Bearer Secret", "Bearer ", "secret", "Basic secret", "Bearer secret2", ""] {
            assert_eq!(token.check(Some(wrong)).unwrap_err().status(), StatusCode::UNAUTHORIZED, "{wrong}");
        }
        assert_eq!(token.check(None).unwrap_err().status(), StatusCode::UNAUTHORIZED);
        assert_eq!(Token::none().check(Some("Bearer secret")).unwrap_err().status(), StatusCode::FORBIDDEN);
        assert_eq!(Token::new("").check(Some("Bearer ")).unwrap_err().status(), StatusCode::FORBIDDEN);
        assert_eq!(format!("{token:?}"), "Token(set)");
    }
}
