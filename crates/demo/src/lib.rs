//! The demo of Phalanx: a simulated fab sends its runs to a fleet of defenders, of which one crashes, two are added and all
//! are replaced; in the end an audit counts the outcomes of all runs.
//!
//! - `scenario`: the steps, and the runs that the fab sends;
//! - `environment`: the stores, in this process or on real servers;
//! - `fleet`: the defenders, in this process (`in_process`) or as child processes (`child_process`), and one address for
//!   all of them (`proxy`);
//! - `fleet_watcher`: the state of the fleet, seen from outside;
//! - `audit`: the count, from the sent runs and the store alone; `summary`: its result;
//! - `display`: the terminal display, one `frame` after the other.

mod audit;
mod child_process;
mod display;
mod environment;
mod fleet;
mod fleet_watcher;
mod frame;
mod in_process;
mod proxy;
mod scenario;
mod summary;

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::{self, LocalBoxFuture};
use phalanx_service::Shutdown;

pub use self::child_process::ChildCommand;
use self::display::DisplayState;
use self::environment::Environment;
pub use self::environment::Servers;
use self::proxy::FleetProxy;
use self::scenario::{CHAMBERS, DEFENDERS, Output, Scenario};
pub use self::summary::Summary;

/// Settings of the demo.
pub struct Options {
    /// Length of the scenario.
    pub length: Duration,
    /// Seed of the simulated fab.
    pub seed: u64,
    /// Real servers; without them everything runs in this process.
    pub servers: Option<Servers>,
    /// Command that runs a defender as a child process; without it every defender runs in this process. It needs servers.
    pub child_command: Option<ChildCommand>,
    /// Whether the progress goes to standard error, because standard output is for the summary alone.
    pub is_quiet: bool,
}

/// Runs the demo. Returns nothing if a stop was requested before its end.
pub fn run(options: Options, shutdown: Shutdown) -> LocalBoxFuture<'static, Result<Option<Summary>>> {
    Box::pin(async move {
        let environment = tokio::select! {
            () = shutdown.requested() => return Ok(None),
            environment = Environment::open(options.servers.as_ref()) => Arc::new(environment?),
        };
        let summary = run_scenario(options, environment.clone(), &shutdown).await;
        // Servers are left as they were found, however the scenario ended. If that fails, its result is still worth reading.
        if let Err(error) = environment.clean_up().await {
            eprintln!("what the demo made at the servers could not be removed: {error:#}");
        }
        summary
    })
}

async fn run_scenario(
    options: Options,
    environment: Arc<Environment>,
    shutdown: &Shutdown,
) -> Result<Option<Summary>> {
    let Options { length, seed, child_command, is_quiet, .. } = options;
    let proxy = FleetProxy::open().await?;
    let url = proxy.url();
    eprintln!("{}", introduction(length, &url));
    let display = (!is_quiet && io::stdout().is_terminal()).then(|| Arc::new(DisplayState::new(url)));
    let output = match &display {
        Some(display) => Output::Display(display.clone()),
        None if is_quiet => Output::Stderr,
        None => Output::Stdout,
    };
    let scenario = Scenario { environment, proxy, child_command, length, seed, output };
    let drawing = async {
        match &display {
            Some(display) => display::draw(display, length, shutdown).await,
            None => future::pending().await,
        }
    };
    let summary = tokio::select! {
        () = shutdown.requested() => Ok(None),
        summary = scenario.run() => summary.map(Some),
        drawn = drawing => drawn.map(|never| match never {}),
    };
    // The display is gone by now, and its lines are worth reading.
    for line in display.iter().flat_map(|display| display.lines()) {
        println!("{line}");
    }
    summary
}

/// Returns the line that introduces the demo and its addresses.
fn introduction(length: Duration, url: &str) -> String {
    format!(
        "Phalanx demo, {} s: a simulated fab of {CHAMBERS} chambers sends its runs to {DEFENDERS} defenders; one \
         crashes, two join, all are replaced. Fleet: {url}/api/v1/cluster  Alarms: {url}/api/v1/alarms",
        length.as_secs()
    )
}
