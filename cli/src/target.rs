//! Target of runs and lists: a running defender, or the stores that it would use.

use anyhow::{Result, bail};
use clap::Args;
use phalanx_defender::app::{Coordination, DataFolder, LocalStores, OpenBackend};
use phalanx_settings::{DATA_DIR, NATS_SERVERS};

use crate::client::{Client, ServiceArgs};
use crate::settings::args::ConnectionArgs;
use crate::settings::connections::ConnectionSettings;

/// Arguments that select the target.
#[derive(Args)]
#[command(next_help_heading = "Where it goes")]
pub(crate) struct TargetArgs {
    /// To the defender that listens there, such as http://127.0.0.1:8080.
    ///
    /// Without it: to NATS and Cassandra where NATS_SERVERS is set; otherwise to the defender that runs on the data folder,
    /// and where none does, into the folder itself.
    #[arg(long, env = "PHALANX_URL", value_name = "URL")]
    url: Option<String>,

    /// The token of that defender; better in the variable than where every process can read it.
    #[arg(long, env = "API_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    token: Option<String>,

    #[command(flatten)]
    connections: ConnectionArgs,
}

/// Target of runs and lists.
pub(crate) enum Target {
    /// A running defender.
    Service(Client),
    /// The stores, opened by this process.
    Local(Box<LocalStores>),
}

impl TargetArgs {
    /// Returns the data folder that was named.
    pub(crate) fn folder(&self) -> Option<DataFolder> {
        self.connections.given.value(&DATA_DIR).map(|folder| DataFolder::at(folder.as_ref()))
    }

    /// Returns whether this process has to do the work: no service is named, and no defender has stored its address in the
    /// folder.
    pub(crate) fn runs_locally(&self) -> bool {
        let is_served = self.folder().is_some_and(|folder| folder.address().is_some());
        !self.has_url() && !self.connections.given.has(&NATS_SERVERS) && !is_served
    }

    /// Resolves the target, and opens the stores if it is local.
    pub(crate) async fn resolve(&self) -> Result<Target> {
        if self.has_url() {
            return Ok(Target::Service(self.service().client()?));
        }
        let mut parser = self.connections.parser();
        let settings = ConnectionSettings::parse(&mut parser, "phalanx");
        let Some(settings) = settings.filter(|_| parser.errors.is_empty()) else {
            bail!("{}", parser.errors.join("; "));
        };
        let ConnectionSettings { connections, stores, .. } = settings;
        let coordination = &connections.coordination;
        let backend = match (OpenBackend::open(coordination).await, coordination) {
            (Ok(backend), _) => backend,
            // Another process has the folder: a defender that has stored its address.
            (Err(_), Coordination::Embedded(folder)) if DataFolder::at(folder).address().is_some() => {
                return Ok(Target::Service(self.service().client()?));
            }
            (Err(error), _) => return Err(error.into()),
        };
        Ok(Target::Local(Box::new(LocalStores::open(backend, &connections.charts, stores).await?)))
    }

    fn has_url(&self) -> bool {
        self.url.as_ref().is_some_and(|url| !url.trim().is_empty())
    }

    fn service(&self) -> ServiceArgs {
        let data_dir = self.connections.given.value(&DATA_DIR).map(Into::into);
        ServiceArgs { url: self.url.clone(), data_dir, token: self.token.clone() }
    }
}
