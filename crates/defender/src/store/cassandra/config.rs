//! How to reach Cassandra, and who we are there.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::store::StoreError;

/// The keyspace where none is named.
pub const KEYSPACE: &str = "defense_system";

/// How to reach Cassandra, and who we are there.
///
/// ```
/// use phalanx_defender::store::cassandra::Config;
///
/// let user = Some(("anna".to_owned(), "s3cret".to_owned()));
/// let config = Config { user, ..Config::new("cassandra-1,cassandra-2:9043") };
/// assert!(!format!("{config:?}").contains("s3cret"));
/// ```
#[derive(Clone)]
pub struct Config {
    /// `host[:port]`, separated by commas: as many of the cluster as one likes, the others are found.
    pub hosts: String,
    /// The keyspace.
    pub keyspace: String,
    /// How many replicas must have answered.
    pub consistency: Consistency,
    /// A user name and a password.
    pub user: Option<(String, String)>,
    /// Encryption; none: no encryption.
    pub tls: Option<Tls>,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long an answer may take. After that a write may have happened.
    pub request_timeout: Duration,
}

/// How the connection is encrypted.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Whom we believe, as a PEM file.
    pub ca: PathBuf,
    /// Who we are, as PEM files: the certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl Config {
    /// The usual keyspace, `LOCAL_QUORUM`, no user, no encryption.
    pub fn new(hosts: impl Into<String>) -> Self {
        Self {
            hosts: hosts.into(),
            keyspace: KEYSPACE.to_owned(),
            consistency: Consistency::default(),
            user: None,
            tls: None,
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(5),
        }
    }

    /// The hosts one by one.
    pub(super) fn nodes(&self) -> Result<Vec<&str>, StoreError> {
        let nodes: Vec<&str> = self.hosts.split(',').map(str::trim).filter(|host| !host.is_empty()).collect();
        if nodes.is_empty() {
            return Err(StoreError::Refused("no host of Cassandra is named".to_owned()));
        }
        Ok(nodes)
    }

    /// The keyspace, if it can be one: it becomes part of statements.
    pub(super) fn keyspace(&self) -> Result<&str, StoreError> {
        check_keyspace(&self.keyspace)?;
        Ok(&self.keyspace)
    }
}

/// Secrets are not shown.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("hosts", &self.hosts)
            .field("keyspace", &self.keyspace)
            .field("consistency", &self.consistency)
            .field("user", &self.user.as_ref().map(|(user, _)| user))
            .field("tls", &self.tls)
            .field("connect_timeout", &self.connect_timeout)
            .field("request_timeout", &self.request_timeout)
            .finish()
    }
}

/// Refuses a name that would have to be quoted.
pub(super) fn check_keyspace(name: &str) -> Result<(), StoreError> {
    let good = |(i, c): (usize, char)| c.is_ascii_lowercase() || (i > 0 && (c.is_ascii_digit() || c == '_'));
    if name.is_empty() || name.len() > 48 || !name.chars().enumerate().all(good) {
        return Err(StoreError::Refused(format!(
            "{name:?} is no name of a keyspace: it begins with a–z and has up to 48 of a–z 0–9 _"
        )));
    }
    Ok(())
}

impl Tls {
    pub(super) fn load(&self) -> Result<Arc<ClientConfig>, StoreError> {
        let bad = |path: &PathBuf, error: &dyn fmt::Display| {
            StoreError::Refused(format!("TLS: {}: {error}", path.display()))
        };
        let certificates = |path: &PathBuf| -> Result<Vec<CertificateDer<'static>>, StoreError> {
            let found: Result<Vec<_>, _> =
                CertificateDer::pem_file_iter(path).map_err(|e| bad(path, &e))?.collect();
            let found = found.map_err(|e| bad(path, &e))?;
            if found.is_empty() { Err(bad(path, &"there is no certificate in it")) } else { Ok(found) }
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate).map_err(|e| bad(&self.ca, &e))?;
        }
        // Named, not left to the process: whatever else speaks TLS here may have chosen another or none.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(&self.ca, &e))?
            .with_root_certificates(roots);
        let config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| bad(key, &e))?;
                builder
                    .with_client_auth_cert(certificates(certificate)?, secret)
                    .map_err(|e| bad(certificate, &e))?
            }
        };
        Ok(Arc::new(config))
    }
}

/// How many replicas must have answered.
///
/// ```
/// use phalanx_defender::store::cassandra::Consistency;
///
/// assert_eq!(Consistency::default().to_string(), "LOCAL_QUORUM");
/// assert_eq!("quorum".parse::<Consistency>()?.to_string(), "QUORUM");
/// assert!("most".parse::<Consistency>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consistency(pub(super) scylla::statement::Consistency);

/// Those that can both be written and read with.
const LEVELS: [(&str, scylla::statement::Consistency); 7] = {
    use scylla::statement::Consistency as C;
    [
        ("LOCAL_QUORUM", C::LocalQuorum),
        ("QUORUM", C::Quorum),
        ("ALL", C::All),
        ("ONE", C::One),
        ("TWO", C::Two),
        ("THREE", C::Three),
        ("LOCAL_ONE", C::LocalOne),
    ]
};

impl Default for Consistency {
    fn default() -> Self {
        Self(scylla::statement::Consistency::LocalQuorum)
    }
}

impl FromStr for Consistency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text.trim()));
        let names = LEVELS.map(|(name, _)| name).join(", ");
        found
            .map(|(_, level)| Self(*level))
            .ok_or_else(|| format!("{text:?} is no consistency; there are {names}"))
    }
}

impl fmt::Display for Consistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(LEVELS.iter().find(|(_, level)| *level == self.0).map_or("?", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyspace_that_would_change_a_statement_is_refused() {
        assert!(check_keyspace("defense_system").is_ok());
        for bad in ["", "Upper", "a;drop", "1a", "a b", &"x".repeat(49), "ä"] {
            assert!(check_keyspace(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_that_is_no_certificate_is_named() {
        let tls = Tls { ca: "/no/such/ca.pem".into(), certificate: None };
        assert!(tls.load().unwrap_err().to_string().contains("/no/such/ca.pem"));
    }

    #[test]
    fn every_level_is_read_as_it_is_shown() {
        for (name, _) in LEVELS {
            assert_eq!(name.parse::<Consistency>().unwrap().to_string(), name);
        }
    }
}
