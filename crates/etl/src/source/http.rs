//! One request at a time over HTTP, and what its failures mean.

use std::io::{self, Read};
use std::time::Duration;

use jiff::Timestamp;
use ureq::Agent;
use ureq::http::{HeaderMap, StatusCode};

use super::Failure;
use crate::core::backoff::Fault;

/// How long a source may take to answer, and then for the whole body.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Until the first byte.
    pub answer: Duration,
    /// Until the last one.
    pub body: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { answer: Duration::from_secs(30), body: Duration::from_secs(600) }
    }
}

/// Asks sources.
#[derive(Clone, Debug)]
pub struct Http {
    agent: Agent,
}

/// An answer whose body is still to be read.
pub struct Page {
    /// The body.
    pub body: Box<dyn Read + Send>,
}

impl Http {
    /// With these limits of patience.
    pub fn new(timeouts: Timeouts) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(timeouts.answer))
            .timeout_recv_response(Some(timeouts.answer))
            .timeout_recv_body(Some(timeouts.body))
            .user_agent(concat!("phalanx/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: config.into() }
    }

    /// Asks for `url`; `now` tells how far away a date in `Retry-After` is.
    pub fn get(&self, url: &str, headers: &[(&str, &str)], now: Duration) -> Result<Page, Failure> {
        let mut request = self.agent.get(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.call().map_err(|error| failure(url, error))?;
        match answer.status() {
            StatusCode::OK => Ok(Page { body: Box::new(answer.into_body().into_reader()) }),
            StatusCode::FORBIDDEN
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS
            | StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Err(Failure::Retry {
                fault: Fault::Status(answer.status().as_u16()),
                retry_after: retry_after(answer.headers(), now),
                cursor: None,
            }),
            status => Err(Failure::Broken(format!("{url} answered {status}"))),
        }
    }
}

/// `Retry-After` is a number of seconds or a date.
fn retry_after(headers: &HeaderMap, now: Duration) -> Option<Duration> {
    let value = headers.get("retry-after")?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    let now = Timestamp::from_millisecond(i64::try_from(now.as_millis()).ok()?).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

fn failure(url: &str, error: ureq::Error) -> Failure {
    match error {
        ureq::Error::Timeout(_) => Failure::retry(Fault::TimedOut),
        ureq::Error::BadUri(_) | ureq::Error::Tls(_) => Failure::Broken(format!("{url}: {error}")),
        ureq::Error::Io(error) => body_failure(url, &error),
        error => Failure::retry(Fault::Broken(format!("{url}: {error}"))),
    }
}

/// What it means that a body cannot be read to its end.
pub(crate) fn body_failure(url: &str, error: &io::Error) -> Failure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    if error.kind() == io::ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_))) {
        Failure::retry(Fault::TimedOut)
    } else {
        Failure::retry(Fault::Broken(format!("{url}: the answer is cut: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = Duration::from_secs(1_445_412_480 - 90);
        let wait = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", value.parse().unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::from_secs(90)));
        assert_eq!(wait("Fri, 21 Oct 2005 07:28:00 GMT"), Some(Duration::ZERO));
        assert_eq!(wait("soon"), None);
    }
}
