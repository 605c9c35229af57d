//! `phalanx etl serve`: the engine as a service.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Args;
use phalanx_etl::core::schedule::{Schedule, duration};
use phalanx_etl::engine::Options;
use phalanx_etl_service::{Config, Service, default_plan};
use phalanx_service::{Shutdown, Token};

use super::sources::{Sources, by_id};

/// Reads every feed when its schedule says so, and answers over HTTP.
///
/// Whatever was under way when it ended goes on when it starts again. A feed that has not completed within its limit is
/// shown as stale, counted and reported. Unless told otherwise cve is read every 2 hours and stale after 12, all others
/// are read daily and stale after 3 days.
#[derive(Args)]
pub(super) struct Serve {
    /// The database.
    #[arg(long, value_name = "FILE", default_value = "phalanx-etl.db")]
    db: PathBuf,

    #[command(flatten)]
    sources: Sources,

    /// When a provider is read: an interval (cve=2h), five fields of cron in UTC (cwe="15 3 * * *"), or never.
    #[arg(long, value_name = "ID=SCHEDULE", value_parser = parse_schedule)]
    schedule: Vec<(String, Schedule)>,

    /// How long ago a provider may have completed before it is stale, such as cve=6h.
    #[arg(long, value_name = "ID=DURATION", value_parser = parse_limit)]
    fresh_within: Vec<(String, Duration)>,

    /// Up to so much is added to each scheduled start.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    jitter: Duration,

    /// Where to listen; port 0 is any free one.
    #[arg(long, value_name = "ADDRESS", env = "HTTP_ADDR", default_value = "127.0.0.1:8080")]
    http_addr: String,

    /// What whoever steers must send; without one nobody can.
    #[arg(long, value_name = "TOKEN", env = "API_TOKEN", hide_env_values = true)]
    api_token: Option<String>,
}

fn pair(text: &str) -> Result<(&str, &str), String> {
    text.split_once('=').ok_or_else(|| "it begins with ID=, such as cve=".to_owned())
}

fn parse_schedule(text: &str) -> Result<(String, Schedule), String> {
    let (id, schedule) = pair(text)?;
    Ok((
        id.to_owned(),
        schedule.parse().map_err(|error: phalanx_etl::core::schedule::Error| error.to_string())?,
    ))
}

fn parse_limit(text: &str) -> Result<(String, Duration), String> {
    let (id, limit) = pair(text)?;
    Ok((id.to_owned(), duration(limit).map_err(|error| error.to_string())?))
}

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut options = Options::new(self.db.clone());
        self.sources.apply(&mut options);
        let schedules = by_id("--schedule", &self.schedule, &options);
        let limits = by_id("--fresh-within", &self.fresh_within, &options);
        let plans = options.providers.iter().map(|provider| {
            let mut plan = default_plan(&provider.id);
            plan.jitter = self.jitter;
            if let Some(schedule) = schedules.get(&provider.id) {
                plan.schedule = schedule.clone();
            }
            if let Some(limit) = limits.get(&provider.id) {
                plan.fresh_within = *limit;
            }
            (provider.id.clone(), plan)
        });
        let config = Config {
            plans: plans.collect(),
            options,
            http_addr: self.http_addr,
            token: self.api_token.as_deref().map_or_else(Token::none, Token::new),
            seed: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos().into(),
            log: Arc::new(|line| eprintln!("{line}")),
        };
        let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be made")?;
        runtime.block_on(serve(config))
    }
}

async fn serve(config: Config) -> anyhow::Result<ExitCode> {
    let shutdown = Shutdown::on_termination()?;
    let mut service = Service::start(config).await?;
    eprintln!("listening on {}", service.url());
    tokio::select! {
        () = shutdown.requested() => {}
        ended = service.ended() => {
            ended?;
            anyhow::bail!("the engine has ended by itself");
        }
    }
    eprintln!("leaving: what is under way goes on the next time; again ends at once");
    tokio::select! {
        stopped = service.stop() => stopped?,
        () = shutdown.requested_again() => {}
    }
    Ok(ExitCode::SUCCESS)
}
