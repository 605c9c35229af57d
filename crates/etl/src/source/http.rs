//! One request at a time over HTTP, and what its failures mean.

use std::io::{self, Read};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use ureq::Agent;
use ureq::http::{HeaderMap, StatusCode, Uri};
use ureq::tls::TlsConfig;

use super::limit::{Bounded, Limits, is_too_large};
use super::{Failure, redact};
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

/// An observer of requests: the provider, the status (`None` without an answer) and the duration.
pub type OnFetch = Arc<dyn Fn(&str, Option<u16>, Duration) + Send + Sync>;

/// How many redirects in a row are followed.
const REDIRECTS_MAX: usize = 5;

/// Asks sources.
#[derive(Clone)]
pub struct Http {
    agent: Agent,
    download: u64,
    /// Who is told of every request, and in whose name.
    watch: Option<(String, OnFetch)>,
}

/// An answer whose body is still to be read.
pub struct Page {
    /// The body.
    pub body: Box<dyn Read + Send>,
}

impl Http {
    /// With these limits of patience and size.
    pub fn new(timeouts: Timeouts, limits: Limits) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = Agent::config_builder()
            .tls_config(TlsConfig::builder().unversioned_rustls_crypto_provider(provider).build())
            .http_status_as_error(false)
            // Where a redirect may lead is decided here.
            .max_redirects(0)
            .timeout_connect(Some(timeouts.answer))
            .timeout_recv_response(Some(timeouts.answer))
            .timeout_recv_body(Some(timeouts.body))
            .user_agent(concat!("phalanx/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: config.into(), download: limits.download, watch: None }
    }

    /// The same, telling `watch` of every request in the name of `provider`.
    pub(crate) fn watched(&self, provider: &str, watch: &OnFetch) -> Self {
        Self { watch: Some((provider.to_owned(), Arc::clone(watch))), ..self.clone() }
    }

    /// Asks for `url`; `now` tells how far away a date in `Retry-After` is.
    ///
    /// Only http and https are read. A redirect is followed within its scheme, and from elsewhere never to this very
    /// machine; another host is not told the `headers`, which may hold a key.
    pub fn get(&self, url: &str, headers: &[(&str, &str)], now: Duration) -> Result<Page, Failure> {
        let mut uri = parse(url)?;
        let mut headers = headers;
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self.agent.get(uri.clone());
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let asked = Instant::now();
            let answer = request.call();
            if let Some((provider, watch)) = &self.watch {
                let status = answer.as_ref().ok().map(|answer| answer.status().as_u16());
                watch(provider, status, asked.elapsed());
            }
            let answer = answer.map_err(|error| failure(url, error))?;
            if answer.status().is_redirection() && answer.status() != StatusCode::NOT_MODIFIED {
                let to = answer.headers().get("location").and_then(|to| to.to_str().ok()).unwrap_or_default();
                let next = redirect(&uri, to, &is_loopback)?;
                if next.authority() != uri.authority() {
                    headers = &[];
                }
                uri = next;
                continue;
            }
            return self.page(url, answer, now);
        }
        Err(Failure::Broken(format!("{}: more than {REDIRECTS_MAX} redirects in a row", redact(url))))
    }

    fn page(
        &self,
        url: &str,
        answer: ureq::http::Response<ureq::Body>,
        now: Duration,
    ) -> Result<Page, Failure> {
        match answer.status() {
            StatusCode::OK => {
                let body = answer.into_body().into_reader();
                Ok(Page { body: Box::new(Bounded::new(body, self.download, "the answer has")) })
            }
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
            status => Err(Failure::Broken(format!("{} answered {status}", redact(url)))),
        }
    }
}

/// The address, unless it is one we do not read.
fn parse(url: &str) -> Result<Uri, Failure> {
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err(Failure::Broken(format!("{}: only http and https URLs are read", redact(url))));
    }
    url.parse().map_err(|error| Failure::Broken(format!("{} is no URL: {error}", redact(url))))
}

/// Where a redirect leads, unless it may not.
fn redirect(from: &Uri, to: &str, is_loopback: &dyn Fn(&Uri) -> bool) -> Result<Uri, Failure> {
    let scheme = from.scheme_str().unwrap_or_default();
    let authority = from.authority().map(ureq::http::uri::Authority::as_str).unwrap_or_default();
    let whole = if to.starts_with("//") {
        format!("{scheme}:{to}")
    } else if to.starts_with('/') {
        format!("{scheme}://{authority}{to}")
    } else if has_scheme(to) {
        to.to_owned()
    } else {
        let folder = from.path().rfind('/').map_or("/", |at| &from.path()[..=at]);
        format!("{scheme}://{authority}{folder}{to}")
    };
    let refused = |why: &str| {
        let (from, to) = (redact(&from.to_string()), redact(&whole));
        Failure::Broken(format!("{from} redirects to {to}, {why}: refused"))
    };
    if to.is_empty() {
        return Err(refused("which is nowhere"));
    }
    let next = parse(&whole).map_err(|_| refused("which is neither http nor https"))?;
    if next.scheme() != from.scheme() {
        return Err(refused("which has another scheme"));
    }
    if is_loopback(&next) && !is_loopback(from) {
        return Err(refused("which is this machine itself"));
    }
    Ok(next)
}

fn has_scheme(url: &str) -> bool {
    url.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|one: char| one.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

/// Whether the host is, or its name stands for, this very machine.
fn is_loopback(uri: &Uri) -> bool {
    // A name nobody knows leads nowhere, and asking it fails with a better message.
    let named = |host: &str| (host, 0).to_socket_addrs().is_ok_and(|mut all| all.any(|one| is_own(one.ip())));
    is_loopback_address(uri) || uri.host().is_some_and(named)
}

fn is_loopback_address(uri: &Uri) -> bool {
    uri.host().and_then(|host| host.trim_matches(['[', ']']).parse().ok()).is_some_and(is_own)
}

fn is_own(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    address.is_loopback() || address.is_unspecified()
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
        ureq::Error::BadUri(_) | ureq::Error::Tls(_) => Failure::Broken(format!("{}: {error}", redact(url))),
        ureq::Error::Io(error) => body_failure(url, &error),
        error => Failure::retry(Fault::Broken(format!("{}: {error}", redact(url)))),
    }
}

/// What it means that a body cannot be read to its end.
pub(crate) fn body_failure(url: &str, error: &io::Error) -> Failure {
    if is_too_large(error) {
        return Failure::Broken(format!("{}: {error}", redact(url)));
    }
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    if error.kind() == io::ErrorKind::TimedOut || matches!(inner, Some(ureq::Error::Timeout(_))) {
        Failure::retry(Fault::TimedOut)
    } else {
        Failure::retry(Fault::Broken(format!("{}: the answer is cut: {error}", redact(url))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_from_elsewhere_to_this_machine_is_refused() {
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let from = uri("http://feeds.example/a/b.json");
        let local = |uri: &Uri| uri.host() == Some("localhost") || is_loopback_address(uri);
        for to in [
            "http://127.0.0.1/x",
            "http://localhost:8080/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "//0.0.0.0/",
        ] {
            let Err(Failure::Broken(why)) = redirect(&from, to, &local) else { panic!("{to} is followed") };
            assert!(why.contains("this machine itself"), "{why}");
        }
        let own = uri("http://127.0.0.1:1/a");
        assert_eq!(redirect(&own, "http://localhost:2/b", &local).unwrap(), uri("http://localhost:2/b"));
        assert_eq!(redirect(&from, "c.json", &local).unwrap(), uri("http://feeds.example/a/c.json"));
        assert_eq!(redirect(&from, "/c.json", &local).unwrap(), uri("http://feeds.example/c.json"));
        assert_eq!(redirect(&from, "//other.example/c", &local).unwrap(), uri("http://other.example/c"));
    }

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
