//! Certificates and the shared token: both optional, the same for clients and for nodes among each other.

use std::fmt;
use std::time::Duration;

use phalanx_service::Token;
use thiserror::Error;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity, Server, ServerTlsConfig};
use tonic::{Request, Status};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(1);
/// How soon a connection that says nothing any more is given up: a machine that is gone answers no ping.
const PING: Duration = Duration::from_secs(1);
const PONG: Duration = Duration::from_secs(2);

/// What protects a connection.
#[derive(Clone, Default)]
pub struct Security {
    /// What every request must bear.
    pub token: Option<String>,
    /// Certificates.
    pub tls: Option<Tls>,
}

/// Certificates, each as PEM.
#[derive(Clone, Default)]
pub struct Tls {
    /// Whom to believe.
    pub ca: Option<Vec<u8>>,
    /// Who we are, and the key to it. A server must have one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// A server believes only clients that `ca` vouches for.
    pub mutual: bool,
}

/// A setting that cannot be used.
#[derive(Debug, Error)]
pub enum Error {
    /// No address.
    #[error("{address:?} is no address like 127.0.0.1:9090: {reason}")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// A certificate or a key that cannot be used.
    #[error("the certificates cannot be used: {0}")]
    Tls(String),
    /// A token that cannot stand in a header.
    #[error("the token has characters that cannot be sent; use letters, digits and signs of ASCII")]
    Token,
}

impl Security {
    /// How that address is reached. Nothing is connected yet.
    pub(crate) fn endpoint(&self, address: &str) -> Result<Endpoint, Error> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let bad = |reason: String| Error::Address { address: address.to_owned(), reason };
        let host = address.strip_prefix("http://").or(address.strip_prefix("https://")).unwrap_or(address);
        if !host.contains(':') {
            return Err(bad("the port is missing".to_owned()));
        }
        let endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))
            .map_err(|error| bad(chain(&error)))?
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .keep_alive_while_idle(true);
        let Some(tls) = &self.tls else { return Ok(endpoint) };
        choose_provider();
        let mut config = ClientTlsConfig::new();
        if let Some(ca) = &tls.ca {
            config = config.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some((certificate, key)) = &tls.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        endpoint.tls_config(config).map_err(|error| Error::Tls(chain(&error)))
    }

    /// A server with these certificates.
    pub(crate) fn server(&self) -> Result<Server, Error> {
        let server =
            Server::builder().tcp_nodelay(true).http2_keepalive_interval(Some(Duration::from_secs(10)));
        let Some(tls) = &self.tls else { return Ok(server) };
        choose_provider();
        let Some((certificate, key)) = &tls.identity else {
            return Err(Error::Tls("a server needs a certificate and its key".to_owned()));
        };
        let mut config = ServerTlsConfig::new().identity(Identity::from_pem(certificate, key));
        if tls.mutual {
            let ca = tls.ca.as_ref();
            let ca =
                ca.ok_or_else(|| Error::Tls("mutual TLS needs to know whom to believe (the CA)".to_owned()))?;
            config = config.client_ca_root(Certificate::from_pem(ca));
        }
        server.tls_config(config).map_err(|error| Error::Tls(chain(&error)))
    }

    /// What puts the token into requests.
    pub(crate) fn stamp(&self) -> Result<Stamp, Error> {
        let header = self.token.as_ref().map(|token| format!("Bearer {token}").parse());
        Ok(Stamp(header.transpose().map_err(|_| Error::Token)?))
    }

    /// What lets only requests with the token in.
    pub(crate) fn guard(&self) -> Guard {
        Guard(self.token.as_deref().map(Token::new))
    }

    /// What is protected, in words.
    pub fn describe(&self) -> &'static str {
        match (&self.tls, &self.token) {
            (Some(Tls { mutual: true, .. }), Some(_)) => "mutual TLS and a token",
            (Some(Tls { mutual: true, .. }), None) => "mutual TLS",
            (Some(_), Some(_)) => "TLS and a token",
            (Some(_), None) => "TLS without a token: whoever reaches it may take leaderships",
            (None, Some(_)) => "a token without TLS: whoever listens on the way can read it",
            (None, None) => "neither TLS nor a token: whoever reaches it may take leaderships",
        }
    }
}

/// Secrets are never shown.
impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.describe())
    }
}

/// Puts the token into requests.
#[derive(Clone)]
pub(crate) struct Stamp(Option<MetadataValue<Ascii>>);

impl Interceptor for Stamp {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(header) = &self.0 {
            request.metadata_mut().insert("authorization", header.clone());
        }
        Ok(request)
    }
}

/// Lets only requests with the token in.
#[derive(Clone)]
pub(crate) struct Guard(Option<Token>);

impl Guard {
    fn check(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let Some(expected) = &self.0 else { return Ok(()) };
        match metadata.get("authorization").map(|given| given.to_str()) {
            None => Err(Status::unauthenticated(
                "this agent wants a token: send the metadata `authorization: Bearer TOKEN`",
            )),
            Some(Ok(given)) if expected.is_in_header(given) => Ok(()),
            Some(_) => {
                Err(Status::unauthenticated("the token in `authorization` is not the token of this agent"))
            }
        }
    }
}

impl Interceptor for Guard {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        self.check(request.metadata())?;
        Ok(request)
    }
}

/// Installs the TLS provider. It fails only if the program has installed one already, and that one is as good.
fn choose_provider() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

/// An error of a connection in words: what failed, and what is at the bottom of it.
pub(crate) fn explain(status: &Status) -> String {
    let mut cause = std::error::Error::source(status);
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    match cause.map(ToString::to_string) {
        Some(cause) if !status.message().contains(&cause) => format!("{}: {cause}", status.message()),
        _ => status.message().to_owned(),
    }
}

/// An error with everything that caused it: the first alone often says only that something failed.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_is_let_in() {
        let guard = Security { token: Some("secret".to_owned()), tls: None }.guard();
        let with = |header: &'static str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("authorization", MetadataValue::from_static(header));
            guard.check(&metadata).map_err(|status| status.code())
        };
        assert_eq!(with("Bearer secret"), Ok(()));
        for wrong in ["Bearer secreT", "Bearer secret2", "Bearer", "secret", ""] {
            assert_eq!(with(wrong), Err(tonic::Code::Unauthenticated), "{wrong}");
        }
        assert!(guard.check(&MetadataMap::new()).is_err());
        assert!(Security::default().guard().check(&MetadataMap::new()).is_ok());
    }

    #[test]
    fn an_address_without_a_port_is_refused() {
        let security = Security::default();
        assert!(security.endpoint("election-agent").is_err());
        assert!(security.endpoint("election agent:9090").is_err());
        assert!(security.endpoint("election-agent:9090").is_ok());
        assert!(security.endpoint("http://election-agent:9090").is_ok());
    }
}
