//! How the command line says where Cassandra is.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use phalanx_defender::store::cassandra::{Config, Consistency, KEYSPACE, Tls};

/// Where Cassandra is, and who we are there.
#[derive(Args)]
pub(crate) struct CassandraArgs {
    /// Some hosts of the cluster, `host[:port]` separated by commas.
    #[arg(long = "cassandra-hosts", env = "CASSANDRA_HOSTS", value_name = "HOSTS")]
    hosts: String,
    #[command(flatten)]
    session: SessionArgs,
}

/// How we speak with Cassandra.
#[derive(Args)]
struct SessionArgs {
    /// The keyspace.
    #[arg(long, env = "CASSANDRA_KEYSPACE", default_value = KEYSPACE)]
    keyspace: String,
    /// How many replicas must have answered: LOCAL_QUORUM, QUORUM, ALL, ONE, TWO, THREE or LOCAL_ONE.
    #[arg(long, env = "CASSANDRA_CONSISTENCY", value_name = "LEVEL", default_value_t)]
    consistency: Consistency,
    /// The user name.
    #[arg(long = "cassandra-user", env = "CASSANDRA_USER", value_name = "NAME")]
    user: Option<String>,
    /// The password; better in the variable than where every process can read it.
    #[arg(
        long = "cassandra-password",
        env = "CASSANDRA_PASSWORD",
        value_name = "PASSWORD",
        hide_env_values = true
    )]
    password: Option<String>,
    /// Encrypt, and believe whom this authority (PEM) has signed.
    #[arg(long = "cassandra-tls-ca", env = "CASSANDRA_TLS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Our own certificate (PEM).
    #[arg(long = "cassandra-tls-cert", env = "CASSANDRA_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Its key (PEM).
    #[arg(long = "cassandra-tls-key", env = "CASSANDRA_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

impl CassandraArgs {
    pub(crate) fn config(self) -> anyhow::Result<Config> {
        self.session.config(self.hosts)
    }
}

impl SessionArgs {
    fn config(self, hosts: String) -> anyhow::Result<Config> {
        let user = match (self.user, self.password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            (Some(_), None) => bail!("CASSANDRA_USER is set and CASSANDRA_PASSWORD is not"),
            (None, Some(_)) => bail!("CASSANDRA_PASSWORD is set and CASSANDRA_USER is not"),
        };
        let certificate = match (self.tls_cert, self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => bail!("CASSANDRA_TLS_CERT and CASSANDRA_TLS_KEY go together, and one of them is not set"),
        };
        let tls = match (self.tls_ca, certificate) {
            (Some(ca), certificate) => Some(Tls { ca, certificate }),
            (None, None) => None,
            (None, Some(_)) => {
                bail!("CASSANDRA_TLS_CERT is set and CASSANDRA_TLS_CA is not: whom to believe?")
            }
        };
        let config = Config { keyspace: self.keyspace, consistency: self.consistency, ..Config::new(hosts) };
        Ok(Config { user, tls, ..config })
    }
}
