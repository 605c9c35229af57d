//! One worker, for as long as one run takes.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use jiff::Timestamp;
use phalanx_cluster::core::{Config, Position};
use phalanx_defender::collector::Collector;
use phalanx_defender::record::{Alarm, Context, Outcome, UChart};
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::worker::{Defender, Observer, Options};
use serde_json::Value;

use super::Sent;
use super::outcome::Report;
use crate::commands::local::{Local, Place};

/// How often it is looked whether the run is through.
const LOOK: Duration = Duration::from_millis(20);
/// A run that takes longer does not come through: three attempts of 5 s each, the pauses between them, and a start.
const LIMIT: Duration = Duration::from_secs(60);
/// Where a chart has more points since the run than this, it is not looked for.
const NEWEST: usize = 1000;

/// Problems go to the person who waits.
struct Tell;

impl Observer for Tell {
    fn problem(&self, text: &str) {
        eprintln!("phalanx: {text}");
    }
}

/// Stores the run, tells its chamber, and runs a worker until the run is through.
pub(super) async fn process(place: Place, strategy: Strategy, sent: &Sent) -> anyhow::Result<Report> {
    let local = place.open().await?;
    // Sent before the worker starts, it is in the list of chambers when that is read first.
    let collector = Collector::new(local.store.clone(), local.stores.notifications.clone())
        .announcing(local.stores.assignments.clone());
    let collected = collector.submit(&sent.chamber, &sent.context, sent.timestamp, &sent.chunks).await?;
    let cluster =
        Config { fleet_size: Some(1), scale_window: Duration::from_secs(1), ..Options::default().cluster };
    let options = Options { cluster, ..Options::default() };
    let holder = Arc::new(Holder::new(strategy));
    let (backend, store) = (local.backend.clone(), local.store.clone());
    let defender = Defender::start(backend, store, holder, Arc::new(Tell), options).await?;
    let settled = tokio::time::timeout(LIMIT, local.settled(sent, collected.sequence)).await;
    let report = match settled {
        Ok(row) => local.report(sent, row?).await,
        Err(_) => Err(anyhow!(
            "run {} of {} is in the log, but not through after {} s; it stays there for the next worker",
            sent.context,
            sent.chamber,
            LIMIT.as_secs()
        )),
    };
    defender.shutdown().await;
    local.backend.close().await;
    report
}

impl Local {
    /// What became of the message of that place, once its cursor has moved past it.
    async fn settled(&self, sent: &Sent, sequence: u64) -> anyhow::Result<Context> {
        let key = sent.chamber.to_string().replace(':', ".");
        loop {
            if let Some(entry) = self.stores.cursors.get(&key).await? {
                let cursor: Value = serde_json::from_slice(&entry.value)?;
                if cursor["sequence"].as_u64().is_some_and(|committed| committed >= sequence) {
                    break;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        let rows = self.store.contexts(&sent.chamber, NEWEST).await?;
        match rows.into_iter().find(|row| row.position.sequence == sequence) {
            Some(row) => Ok(row),
            None => bail!("run {} was here long ago; its rows are no longer looked at", sent.context),
        }
    }

    async fn report(&self, sent: &Sent, row: Context) -> anyhow::Result<Report> {
        let mut points = Vec::new();
        for indicator in self.store.indicators(&sent.chamber).await? {
            let rows = self.store.u_charts(&sent.chamber, &indicator, None, NEWEST).await?;
            let mine = |(point, _, _): (UChart, _, _)| (*point.context == *sent.context).then_some(point);
            points.extend(rows.into_iter().find_map(mine));
        }
        let page = self.store.alarms(Some(&sent.chamber), Timestamp::UNIX_EPOCH, None, NEWEST).await?;
        let by_this_run = |alarm: &Alarm| {
            let cleared = alarm.cleared.as_ref().is_some_and(|(context, _)| **context == *sent.context);
            cleared || *alarm.context == *sent.context
        };
        let alarms = page.alarms.into_iter().map(|(alarm, _)| alarm).filter(by_this_run).collect();
        let reason = match row.outcome {
            Outcome::Dead => Some(self.reason(sent, row.position).await?),
            _ => None,
        };
        Ok(Report { chamber: sent.chamber.clone(), row, points, alarms, reason })
    }

    /// Why a message is a dead letter.
    async fn reason(&self, sent: &Sent, at: Position) -> anyhow::Result<String> {
        let (tool, chamber) = (sent.chamber.tool(), sent.chamber.chamber());
        let subject = format!("dlq.{tool}.{chamber}.{}-{}", at.generation, at.sequence);
        let letter = self.stores.dead_letters.last(&subject).await?;
        let letter: Value = serde_json::from_slice(&letter.map(|letter| letter.payload).unwrap_or_default())?;
        Ok(letter["reason"].as_str().unwrap_or("no reason was given").to_owned())
    }
}
