//! `phalanx election-agent`: one node of the agent that grants leaderships.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use phalanx_election::agent::{Agent, Config};
use phalanx_election::node;
use phalanx_election::security::Security;
use phalanx_service::Shutdown;

use crate::settings::election::SecurityArgs;

/// Grants leaderships over gRPC: one node of one, three or five that agree by Raft.
///
/// docs/election-agent.md shows how to set three of them up.
#[derive(Args)]
pub(crate) struct ElectionAgent {
    /// The number of this node, which no other has.
    #[arg(long, env = "ELECTION_NODE_ID", value_name = "ID", default_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    node_id: u64,

    /// All nodes and how they are reached, such as 1=10.0.0.1:9090,2=10.0.0.2:9090,3=10.0.0.3:9090.
    ///
    /// Those who begin together name the same nodes. Later it says only how this node reaches the others.
    #[arg(long, env = "ELECTION_PEERS", value_name = "ID=ADDRESS", value_delimiter = ',', value_parser = peer)]
    peers: Vec<(u64, String)>,

    /// Nodes of a running agent that let this one in: for one that is new, or whose folder is empty.
    #[arg(long, env = "ELECTION_JOIN", value_name = "ADDRESS", value_delimiter = ',')]
    join: Vec<String>,

    /// Where this node remembers. It must survive restarts.
    #[arg(long, env = "DATA_DIR", value_name = "FOLDER", default_value = "phalanx-election")]
    data_dir: PathBuf,

    /// Where it listens for clients and other nodes; port 0 is any free one.
    #[arg(long, env = "GRPC_ADDR", value_name = "ADDRESS", default_value = "127.0.0.1:9090")]
    grpc_addr: String,

    /// Where it listens for probes, metrics and status.
    #[arg(long, env = "HTTP_ADDR", value_name = "ADDRESS", default_value = "127.0.0.1:9091")]
    http_addr: String,

    /// How other nodes reach this one [default: its own address in --peers, or where it listens]
    #[arg(long, env = "ELECTION_ADVERTISE", value_name = "ADDRESS")]
    advertise: Option<String>,

    /// Believe only clients and nodes that show a certificate of the CA.
    #[arg(long, env = "ELECTION_AGENT_MUTUAL_TLS")]
    mutual_tls: bool,

    #[command(flatten)]
    protection: SecurityArgs,
}

fn peer(text: &str) -> Result<(u64, String), String> {
    let (id, address) = text.split_once('=').ok_or("it is written ID=ADDRESS, such as 1=10.0.0.1:9090")?;
    match id.trim().parse() {
        Ok(0) | Err(_) => Err(format!("{id:?} is no number of a node, such as 1")),
        Ok(id) => Ok((id, address.trim().to_owned())),
    }
}

impl ElectionAgent {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let peers: BTreeMap<u64, String> = self.peers.iter().cloned().collect();
        if peers.len() != self.peers.len() {
            bail!("--peers names a node twice");
        }
        if !peers.is_empty() && !peers.contains_key(&self.node_id) {
            bail!("--peers does not name this node, {}", self.node_id);
        }
        if self.join.is_empty() && !matches!(peers.len(), 0 | 1 | 3 | 5) {
            bail!(
                "--peers names {} nodes; name 1, 3 or 5: an even number bears no more losses than one less",
                peers.len()
            );
        }
        let security = self.protection.security(self.mutual_tls)?;
        let config = Config {
            grpc_addr: self.grpc_addr,
            http_addr: self.http_addr,
            node: node::Config {
                id: self.node_id,
                data_dir: self.data_dir,
                peers,
                join: self.join,
                advertise: self.advertise.unwrap_or_default(),
                security: security.clone(),
                log: Arc::new(|line| eprintln!("{line}")),
            },
        };
        let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be made")?;
        runtime.block_on(serve(config, &security))
    }
}

async fn serve(config: Config, security: &Security) -> Result<ExitCode> {
    let shutdown = Shutdown::on_termination()?;
    let agent = Agent::start(config).await?;
    eprintln!("granting leaderships on {}: {}", agent.grpc_addr(), warning(agent.grpc_addr(), security));
    eprintln!("listening on {}", agent.http_url());
    tokio::select! {
        () = shutdown.requested() => {}
        error = agent.ended() => return Err(anyhow!(error)),
    }
    eprintln!("leaving");
    agent.stop().await;
    Ok(ExitCode::SUCCESS)
}

/// What protects it, and whether that fits to where it listens.
fn warning(address: SocketAddr, security: &Security) -> String {
    let described = security.describe();
    match address.ip().is_loopback() {
        true => format!("{described}; reached from this machine alone"),
        false => described.to_owned(),
    }
}
