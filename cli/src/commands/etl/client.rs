//! Asking an ETL service.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use serde_json::Value;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(35);

/// Where the service is.
#[derive(Args, Clone)]
pub(super) struct Place {
    /// Where `phalanx etl serve` listens.
    #[arg(long, value_name = "URL", env = "PHALANX_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
}

impl Place {
    pub(super) fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ask("GET", path, None)
    }

    /// Steers; `token` is the service's API_TOKEN.
    pub(super) fn post(&self, path: &str, token: Option<&str>) -> anyhow::Result<Value> {
        self.ask("POST", path, token)
    }

    fn ask(&self, method: &str, path: &str, token: Option<&str>) -> anyhow::Result<Value> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .build()
            .into();
        let url = format!("{}{path}", self.url.trim_end_matches('/'));
        let mut request = ureq::http::Request::builder().method(method).uri(&url);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body("").with_context(|| format!("`{}` is no URL of a service", self.url))?;
        let mut answer = agent.run(request).map_err(|error| {
            anyhow!(
                "no ETL service answers at {}: {error}; start one with `phalanx etl serve`, or say where it is with \
                 --url or PHALANX_URL",
                self.url
            )
        })?;
        let text =
            answer.body_mut().read_to_string().with_context(|| format!("reading the answer of {url}"))?;
        let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if answer.status().is_success() {
            return Ok(body);
        }
        match body["message"].as_str() {
            Some(message) => bail!("{message}"),
            None => bail!("{url} answered {}: is that an ETL service?", answer.status()),
        }
    }
}
