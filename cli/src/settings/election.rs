//! Settings of the connection to an election agent, under the same names for its nodes, its clients and its commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use phalanx_cluster::backend::Election;
use phalanx_election::backend::AgentElection;
use phalanx_election::client::Client;
use phalanx_election::names;
use phalanx_election::security::{Security, Tls};
use phalanx_settings::{
    ELECTION_AGENT_ADDR, ELECTION_AGENT_TLS_CA, ELECTION_AGENT_TLS_CERT, ELECTION_AGENT_TLS_KEY,
    ELECTION_AGENT_TOKEN, NATS_SERVERS, POD_NAMESPACE, Parser,
};

#[derive(Args, Clone)]
#[command(next_help_heading = "Protection")]
pub(crate) struct SecurityArgs {
    /// The token that all nodes and clients of the agent share; better in the variable than where every process can read it.
    #[arg(long, env = "ELECTION_AGENT_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// PEM file of whom to believe.
    #[arg(long, env = "ELECTION_AGENT_TLS_CA", value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// PEM file of who we are.
    #[arg(long, env = "ELECTION_AGENT_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// PEM file of its key.
    #[arg(long, env = "ELECTION_AGENT_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

impl SecurityArgs {
    /// What was given; `mutual` for a server that believes only whom the CA vouches for.
    pub(crate) fn security(&self, mutual: bool) -> Result<Security> {
        let token = self.token.clone().filter(|token| !token.is_empty());
        let identity = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            (None, None) => None,
            (Some(_), None) => bail!("--tls-cert needs its key: name it with --tls-key"),
            (None, Some(_)) => bail!("--tls-key needs its certificate: name it with --tls-cert"),
        };
        let ca = self.tls_ca.as_deref().map(read).transpose()?;
        if mutual && ca.is_none() {
            bail!("--mutual-tls needs to know whom to believe: name the CA with --tls-ca");
        }
        let tls = (ca.is_some() || identity.is_some()).then_some(Tls { ca, identity, mutual });
        Ok(Security { token, tls })
    }
}

/// Settings of the election at an election agent.
#[derive(Clone)]
pub(crate) struct ElectionAgentSettings {
    pub(crate) addresses: Vec<String>,
    pub(crate) election: String,
    term: Duration,
    security: Security,
}

impl ElectionAgentSettings {
    /// Parses the settings; `None` if no agent is named, so that the broker elects the leader.
    pub(crate) fn parse(parser: &mut Parser<'_>, term: Duration) -> Option<Self> {
        let addresses = parser.given(&ELECTION_AGENT_ADDR)?;
        if parser.given(&NATS_SERVERS).is_none() {
            parser.errors.push(
                "ELECTION_AGENT_ADDR is set and NATS_SERVERS is not: a defender that works alone has nobody to elect; \
                 name NATS to join a fleet"
                    .to_owned(),
            );
        }
        let addresses: Vec<String> = addresses.split(',').map(|one| one.trim().to_owned()).collect();
        for address in addresses.iter().filter(|address| !has_port(address)) {
            parser.errors.push(format!(
                "ELECTION_AGENT_ADDR has {address:?}; allowed is a host and a port, such as election-agent:9090"
            ));
        }
        let namespace = parser.given(&POD_NAMESPACE).unwrap_or_else(|| "default".to_owned());
        let election = names::election(&namespace);
        let election = election.map_err(|error| parser.errors.push(format!("POD_NAMESPACE: {error}")));
        if let Err(error) = names::term(term) {
            parser.errors.push(format!("ELECTION_TTL_SECONDS: {error}"));
        }
        let (tls_cert, tls_key) = parser.pair(&ELECTION_AGENT_TLS_CERT, &ELECTION_AGENT_TLS_KEY).unzip();
        let args = SecurityArgs {
            token: parser.given(&ELECTION_AGENT_TOKEN),
            tls_ca: parser.given(&ELECTION_AGENT_TLS_CA),
            tls_cert,
            tls_key,
        };
        let security = args.security(false).map_err(|error| parser.errors.push(format!("{error:#}")));
        Some(Self { addresses, election: election.ok()?, term, security: security.ok()? })
    }

    /// Returns the election for a worker. Nothing is connected yet.
    pub(crate) fn election(&self) -> Result<Arc<dyn Election>> {
        let client = Client::new(&self.addresses, &self.security).context("ELECTION_AGENT_ADDR")?;
        Ok(Arc::new(AgentElection::new(client, self.election.clone(), self.term)))
    }
}

fn has_port(address: &str) -> bool {
    let port = address.rsplit_once(':').map(|(host, port)| (host.is_empty(), port.parse::<u16>()));
    matches!(port, Some((false, Ok(1..))))
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("{} cannot be read", file.display()))
}
