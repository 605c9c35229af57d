mod apart;
mod books;
mod door;
mod fleet;
mod ground;
mod here;
mod lookout;
mod picture;
mod story;
mod summary;
mod view;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

use door::Door;
use ground::{Ground, Servers};
use story::{CHAMBERS, DEFENDERS, Story, Voice};
use summary::Summary;
use view::Stage;

use crate::signals::Stop;

/// Shows Phalanx at work, without any server or on those you name.
///
/// A simulated fab of 60 chambers sends its runs to five defenders. Meanwhile a defender crashes, two are
/// added, and all are replaced one by one in a rolling update. In the end it is counted, from what the fab sent and what is
/// read back from the store: what was lost, what was done twice, which faults were found, and how many alarms were false.
#[derive(Args)]
pub(crate) struct Demo {
    /// How long it runs, like 60s or 2m.
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = time)]
    length: Duration,
    /// Makes the fab reproducible; times are not.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Prints the summary alone, as JSON; everything else goes to standard error.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    servers: Servers,
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len()));
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        _ => return Err(format!("{text:?} is no time like 60s or 2m")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no time like 60s or 2m"))?;
    match Duration::from_secs(number.saturating_mul(seconds)) {
        length if (SHORTEST..=LONGEST).contains(&length) => Ok(length),
        _ => Err(format!("{text:?}: the demo runs for 30s to 60m")),
    }
}

/// Shorter, limits would not be learned before it ends.
const SHORTEST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(3600);

impl Demo {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(wrong) = self.servers.wrong() {
            eprintln!("error: {wrong}");
            return Ok(ExitCode::from(2));
        }
        let runtime = tokio::runtime::Runtime::new().context("the runtime cannot be made")?;
        let Some(summary) = runtime.block_on(self.show())? else {
            eprintln!("ended before it was over");
            return Ok(ExitCode::FAILURE);
        };
        if self.json {
            println!("{}", summary.json());
        } else {
            println!("\n{}", summary.text());
        }
        Ok(if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// What it came to; none where somebody ended it.
    async fn show(&self) -> Result<Option<Summary>> {
        let mut stop = Stop::listen()?;
        let ground = tokio::select! {
            () = stop.wanted() => return Ok(None),
            ground = Ground::open(&self.servers) => Arc::new(ground?),
        };
        let told = tokio::select! {
            () = stop.wanted() => Ok(None),
            told = self.tell(ground.clone()) => told,
        };
        // However it ended: servers are left as they were found. If they are not, what was told is still worth reading.
        if let Err(error) = ground.clear().await {
            eprintln!("what the demo made at the servers could not be removed: {error:#}");
        }
        told
    }

    /// Returns the line that says what the demo is and where to look.
    fn introduction(&self, url: &str) -> String {
        format!(
            "Phalanx demo, {} s: a simulated fab of {CHAMBERS} chambers sends its runs to {DEFENDERS} defenders; one \
             crashes, two join, all are replaced. Fleet: {url}/api/v1/cluster  Alarms: {url}/api/v1/alarms",
            self.length.as_secs()
        )
    }

    async fn tell(&self, ground: Arc<Ground>) -> Result<Option<Summary>> {
        let door = Door::open().await?;
        let url = door.url();
        eprintln!("{}", self.introduction(&url));
        let tell = |voice| {
            let Self { length, seed, servers, .. } = self;
            Story { ground, door, processes: servers.processes, length: *length, seed: *seed, voice }.tell()
        };
        if self.json {
            return tell(Voice::Quietly).await.map(Some);
        }
        if !io::stdout().is_terminal() {
            return tell(Voice::Aloud).await.map(Some);
        }
        let stage = Arc::new(Stage::new(url));
        let told = tokio::select! {
            told = tell(Voice::OnStage(stage.clone())) => told.map(Some),
            ended = view::draw(stage.clone(), self.length) => ended.map(|()| None),
        };
        // The picture is gone by now, and the story is worth reading.
        stage.lines().iter().for_each(|line| println!("{line}"));
        told
    }
}
