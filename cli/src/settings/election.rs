//! What protects the way to an election agent: the same names for its nodes, its clients and its commands.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use phalanx_election::security::{Security, Tls};

#[derive(Args, Clone)]
#[command(next_help_heading = "Protection")]
pub(crate) struct Protection {
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

impl Protection {
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

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("{} cannot be read", file.display()))
}
