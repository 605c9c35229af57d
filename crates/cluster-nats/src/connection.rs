//! One connection, and requests over it whose failures say what may have happened.

use std::sync::Arc;
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::jetstream;
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, HeaderMap, Request, ServerAddr};
use bytes::Bytes;
use phalanx_cluster::backend::Error;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::{Config, redact};

/// A hung server is noticed only by pings it does not answer.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// The client's own back-off turns a short outage into a long one.
const RECONNECT_DELAY_MAX: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Nobody answers: asked again so soon.
const NO_RESPONDERS_DELAY: Duration = Duration::from_millis(50);
const VERSION_MIN: (i64, i64) = (2, 11);
/// The largest value and its headers.
const PAYLOAD_BYTES_MIN: usize = 1024 * 1024;

const STREAM_NOT_FOUND: u64 = 10059;

#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) js: jetstream::Context,
    pub(crate) timeout: Duration,
    /// Grows whenever the connection is made anew.
    pub(crate) connection_count: Arc<watch::Sender<u64>>,
}

impl Connection {
    pub(crate) async fn open(config: &Config) -> Result<Self, Error> {
        let shown: Vec<_> = config.servers.split(',').map(redact).collect();
        let what = format!("connecting to {}", shown.join(", "));
        if ![1, 3].contains(&config.replicas) {
            return Err(Error::invalid(what, format!("replicas are {}, must be 1 or 3", config.replicas)));
        }
        let addresses = config
            .servers
            .split(',')
            .map(|address| address.trim().parse::<ServerAddr>())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| Error::invalid(&what, format!("that is no address: {e}")))?;
        let made = Arc::new(watch::Sender::new(0));
        let client = options(config, &what, made.clone()).await?.connect(addresses).await.map_err(|e| {
            let reason = with_sources(&e);
            match e.kind() {
                ConnectErrorKind::Io | ConnectErrorKind::TimedOut | ConnectErrorKind::Dns => {
                    Error::failed(&what, reason)
                }
                _ => Error::invalid(&what, reason),
            }
        })?;
        // The first connection is told late, and must not look like a second one.
        let _ = tokio::time::timeout(CONNECT_TIMEOUT, made.subscribe().wait_for(|made| *made > 0)).await;
        let info = client.server_info();
        let (major, minor) = VERSION_MIN;
        if !client.is_server_compatible(major, minor, 0) {
            let reason =
                format!("the server has version {}, at least {major}.{minor} is needed", info.version);
            return Err(Error::invalid(what, reason));
        }
        if !info.jetstream {
            return Err(Error::invalid(what, "the server has no JetStream; start it with -js"));
        }
        if info.max_payload < PAYLOAD_BYTES_MIN {
            let reason =
                format!("its max_payload is {}, must be {PAYLOAD_BYTES_MIN} or more", info.max_payload);
            return Err(Error::invalid(what, reason));
        }
        let js = jetstream::ContextBuilder::new().timeout(config.timeout).build(client.clone());
        Ok(Self { client, js, timeout: config.timeout, connection_count: made })
    }

    /// Asks JetStream. `Null` is an empty body: some requests are refused with any other.
    pub(crate) async fn api<T: DeserializeOwned>(
        &self,
        subject: &str,
        body: &Value,
    ) -> Result<T, RequestError> {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        self.api_within(self.timeout, subject, body).await
    }

    pub(crate) async fn api_within<T: DeserializeOwned>(
        &self,
        timeout: Duration,
        subject: &str,
        body: Bytes,
    ) -> Result<T, RequestError> {
        let request = Request::new().payload(body).timeout(Some(timeout));
        let answer = self.request(format!("$JS.API.{subject}"), request, timeout).await?;
        parse(&answer)
    }

    /// Stores a message in a stream; the answer is its sequence.
    pub(crate) async fn publish(
        &self,
        stream: &str,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<Stored, RequestError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            let request =
                Request::new().payload(payload.clone()).headers(headers.clone()).timeout(Some(self.timeout));
            match self.request(subject.clone(), request, self.timeout).await {
                Err(RequestError::NoResponders) => self.wait_for_responders(stream, deadline).await?,
                answer => return parse(&answer?),
            }
        }
    }

    /// Nobody answers for a stream that has no leader just now, or whose leader this server has not heard of yet: that
    /// passes, and what was asked for did not happen. Nor does anybody for a stream that is gone, which is an error, as is
    /// a deadline that has passed.
    pub(crate) async fn wait_for_responders(
        &self,
        stream: &str,
        deadline: Instant,
    ) -> Result<(), RequestError> {
        match self.api::<Value>(&format!("STREAM.INFO.{stream}"), &Value::Null).await {
            Err(gone) if gone.is_missing() => return Err(gone),
            _ if Instant::now() >= deadline => return Err(RequestError::NoResponders),
            _ => {}
        }
        tokio::time::sleep(NO_RESPONDERS_DELAY).await;
        Ok(())
    }

    async fn request(
        &self,
        subject: String,
        request: Request,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        self.ensure_connected()?;
        match self.client.send_request(subject, request).await {
            Ok(message) => Ok(message.payload),
            Err(error) => Err(match error.kind() {
                RequestErrorKind::TimedOut => {
                    RequestError::NoResponse(format!("no answer within {timeout:?}"))
                }
                RequestErrorKind::NoResponders => RequestError::NoResponders,
                RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                    RequestError::InvalidRequest(with_sources(&error))
                }
                RequestErrorKind::Other => RequestError::NoResponse(with_sources(&error)),
            }),
        }
    }

    /// What is sent while there is no connection is sent after the next one is made, when nobody waits for it any more.
    pub(crate) fn ensure_connected(&self) -> Result<(), RequestError> {
        match self.client.connection_state() {
            State::Connected => Ok(()),
            _ => Err(RequestError::NotSent),
        }
    }
}

async fn options(
    config: &Config,
    what: &str,
    made: Arc<watch::Sender<u64>>,
) -> Result<ConnectOptions, Error> {
    let mut options = ConnectOptions::new()
        .name(&config.name)
        .ping_interval(PING_INTERVAL)
        .connection_timeout(CONNECT_TIMEOUT)
        .reconnect_delay_callback(|attempts| {
            let step = Duration::from_millis(50);
            step.saturating_mul(u32::try_from(attempts).unwrap_or(u32::MAX)).min(RECONNECT_DELAY_MAX)
        })
        .event_callback(move |event| {
            if matches!(event, Event::Connected) {
                made.send_modify(|count| *count += 1);
            }
            async {}
        });
    if let Some((user, password)) = &config.user {
        options = options.user_and_password(user.clone(), password.clone());
    }
    if let Some(token) = &config.token {
        options = options.token(token.clone());
    }
    if let Some(path) = &config.creds {
        let reason = |e| Error::invalid(what, format!("credentials file {}: {e}", path.display()));
        options = options.credentials_file(path).await.map_err(reason)?;
    }
    if let Some(nkey) = &config.nkey {
        options = options.nkey(seed(nkey).map_err(|reason| Error::invalid(what, reason))?);
    }
    if let Some(ca) = &config.tls.ca {
        options = options.add_root_certificates(readable(what, ca)?);
    }
    if let Some((certificate, key)) = &config.tls.certificate {
        options = options.add_client_certificate(readable(what, certificate)?, readable(what, key)?);
    }
    // A server may require TLS although we did not ask for it, and the client panics without a provider. This fails only
    // if the program has installed one already, and that one is as good.
    let _ = async_nats::rustls::crypto::aws_lc_rs::default_provider().install_default();
    if config.tls.ca.is_some() || config.tls.certificate.is_some() {
        options = options.require_tls(true);
    }
    Ok(options)
}

/// A seed as it is, or from a file. A wrong one is never repeated in an error.
fn seed(nkey: &str) -> Result<String, String> {
    if nkey.starts_with("SU") && nkey.len() == 58 {
        return Ok(nkey.to_owned());
    }
    let text = std::fs::read_to_string(nkey).map_err(|e| {
        format!("the nkey is neither a user's seed (SU…, 58 characters) nor a readable file: {e}")
    })?;
    let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU"));
    seed.map(str::to_owned).ok_or_else(|| format!("the nkey file {nkey} has no line that begins with SU"))
}

fn readable(what: &str, path: &std::path::Path) -> Result<std::path::PathBuf, Error> {
    std::fs::File::open(path)
        .map(|_| path.to_owned())
        .map_err(|e| Error::invalid(what, format!("{}: {e}", path.display())))
}

/// Why a request did not bring what was asked for.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// There is no connection: it was not sent.
    NotSent,
    /// It was sent, or was about to be.
    NoResponse(String),
    /// Nobody takes such requests just now: it did not happen.
    NoResponders,
    /// The server says no: it did not happen.
    Refused(ApiError),
    /// It cannot be sent at all.
    InvalidRequest(String),
}

impl RequestError {
    pub(crate) fn is_missing(&self) -> bool {
        self.code() == Some(STREAM_NOT_FOUND)
    }

    pub(crate) fn code(&self) -> Option<u64> {
        match self {
            Self::Refused(error) => Some(error.err_code),
            _ => None,
        }
    }

    /// The error of a read that met this trouble: whatever happened, it may be tried again.
    pub(crate) fn into_read_error(self, what: String, stream: &str) -> Error {
        match self {
            Self::NoResponse(reason) => Error::failed(what, reason),
            trouble => trouble.into_write_error(what, stream),
        }
    }

    /// The error of a write that met this trouble.
    pub(crate) fn into_write_error(self, what: String, stream: &str) -> Error {
        match self {
            Self::NotSent => Error::failed(what, "there is no connection to a NATS server"),
            Self::NoResponse(reason) => Error::unknown(what, reason),
            Self::NoResponders => Error::failed(what, format!("the stream {stream} has no leader just now")),
            Self::Refused(error) if error.err_code == STREAM_NOT_FOUND => {
                Error::missing(what, format!("stream {stream}"))
            }
            Self::Refused(error) => Error::failed(what, error.text()),
            Self::InvalidRequest(reason) => Error::invalid(what, reason),
        }
    }
}

/// What JetStream says when it says no.
#[derive(Debug, Deserialize)]
pub(crate) struct ApiError {
    #[serde(default)]
    pub(crate) err_code: u64,
    #[serde(default)]
    pub(crate) description: String,
}

impl ApiError {
    fn text(&self) -> String {
        format!("the server says: {} ({})", self.description, self.err_code)
    }
}

/// Where a message was stored.
#[derive(Debug, Deserialize)]
pub(crate) struct Stored {
    pub(crate) seq: u64,
    #[serde(default)]
    pub(crate) duplicate: bool,
}

fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<T, RequestError> {
    #[derive(Deserialize)]
    struct Refusal {
        error: Option<ApiError>,
    }

    let unreadable =
        |e: serde_json::Error| RequestError::NoResponse(format!("an answer that makes no sense: {e}"));
    let Refusal { error } = serde_json::from_slice(answer).map_err(unreadable)?;
    match error {
        Some(error) => Err(RequestError::Refused(error)),
        None => serde_json::from_slice(answer).map_err(unreadable),
    }
}

/// An error with everything that led to it.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}
