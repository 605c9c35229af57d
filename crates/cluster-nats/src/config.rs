//! How to reach a NATS server, and who we are there.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How to reach a NATS server, and who we are there.
///
/// ```
/// use phalanx_cluster_nats::Config;
///
/// let config = Config { token: Some("s3cret".to_owned()), ..Config::new("nats://127.0.0.1:4222") };
/// assert!(!format!("{config:?}").contains("s3cret"));
/// ```
#[derive(Clone)]
pub struct Config {
    /// Addresses, separated by commas.
    pub servers: String,
    /// What the server calls this connection in its reports.
    pub name: String,
    /// A user name and a password.
    pub user: Option<(String, String)>,
    /// A token.
    pub token: Option<String>,
    /// A credentials file: a user's JWT and seed.
    pub creds: Option<PathBuf>,
    /// A user's nkey seed, or the file that has it.
    pub nkey: Option<String>,
    /// Encryption.
    pub tls: Tls,
    /// How many servers keep each bucket and log: 1 or 3.
    pub replicas: usize,
    /// How long an answer may take. After that a write may have happened.
    pub timeout: Duration,
}

/// How the connection is encrypted. With any of these set, it must be.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Whom we believe, as a PEM file; the system's authorities without it.
    pub ca: Option<PathBuf>,
    /// Who we are, as a PEM file with its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Config {
    /// One replica, no user, two seconds for an answer.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            servers: servers.into(),
            name: "phalanx".to_owned(),
            user: None,
            token: None,
            creds: None,
            nkey: None,
            tls: Tls::default(),
            replicas: 1,
            timeout: Duration::from_secs(2),
        }
    }
}

/// Secrets are not shown.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An address may carry a password.
        let servers: Vec<_> = self.servers.split(',').map(redact).collect();
        f.debug_struct("Config")
            .field("servers", &servers)
            .field("name", &self.name)
            .field("user", &self.user.as_ref().map(|(user, _)| user))
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("creds", &self.creds)
            .field("nkey", &self.nkey.as_ref().map(|_| "…"))
            .field("tls", &self.tls)
            .field("replicas", &self.replicas)
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// An address without what stands before its `@`.
pub(crate) fn redact(address: &str) -> String {
    let address = address.trim();
    match address.split_once('@') {
        None => address.to_owned(),
        Some((before, host)) => match before.split_once("://") {
            Some((scheme, _)) => format!("{scheme}://…@{host}"),
            None => format!("…@{host}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let config = Config {
            user: Some(("anna".to_owned(), "s3cret".to_owned())),
            nkey: Some("SUs3cret".to_owned()),
            ..Config::new("nats://u:s3cret@host:4222, host2:4222")
        };
        let shown = format!("{config:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("nats://…@host:4222") && shown.contains("anna"), "{shown}");
    }
}
