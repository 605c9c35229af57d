//! Which ETL service is asked.

use clap::Args;

use crate::client::{Client, Sort, USUAL};

const SERVICE: Sort = Sort {
    name: "ETL service",
    remedy: "start one with `phalanx etl serve`, or say where it is with --url or PHALANX_URL",
    token: "API_TOKEN",
};

/// Where the service is.
#[derive(Args, Clone)]
pub(super) struct Place {
    /// Where `phalanx etl serve` listens.
    #[arg(long, value_name = "URL", env = "PHALANX_URL", default_value = USUAL)]
    url: String,
}

impl Place {
    /// Who is asked; `token` is the service's API_TOKEN, for what steers it.
    pub(super) fn client(&self, token: Option<String>) -> anyhow::Result<Client> {
        Client::new(&SERVICE, &self.url, token)
    }
}
