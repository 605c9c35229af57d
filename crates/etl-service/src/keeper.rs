//! The task that keeps the timetable and passes on what happened.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use phalanx_etl::core::EventKind;
use phalanx_etl::core::timetable::{Effect, Feed, Input, Plan, Timetable};
use phalanx_etl::engine::{Handle, Progress, ProviderConfig};
use phalanx_etl::providers::Freshness;
use phalanx_etl::store::{Counts, Reader};
use phalanx_service::{Beat, Events};
use serde_json::json;
use tokio::sync::mpsc;

use crate::metrics::Metrics;
use crate::service::Log;
use crate::store::Readers;

/// The longest the keeper sleeps: whoever watches it wants to see it turn.
const TURN: Duration = Duration::from_secs(2);

/// Returns the plan of a feed that its provider proposes.
pub fn default_plan(config: &ProviderConfig) -> Plan {
    let freshness = config.provider().map_or_else(Freshness::default, |provider| provider.freshness());
    let Freshness { schedule, stale_after } = freshness;
    Plan {
        schedule: schedule.parse().expect("a provider proposes a valid schedule"),
        jitter: Duration::from_secs(300),
        fresh_within: stale_after,
    }
}

/// Time since the epoch.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Where the feeds stand. Clones are the same feeds.
#[derive(Clone)]
pub(crate) struct Feeds(Arc<Mutex<Timetable>>);

impl Feeds {
    pub(crate) fn new(timetable: Timetable) -> Self {
        Self(Arc::new(Mutex::new(timetable)))
    }

    pub(crate) fn all(&self) -> BTreeMap<String, Feed> {
        self.lock().feeds().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Timetable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Keeper {
    pub(crate) feeds: Feeds,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Events,
    pub(crate) readers: Readers,
    pub(crate) engine: Handle,
    pub(crate) log: Log,
    pub(crate) beat: Beat,
    /// What was counted of each provider so far.
    pub(crate) counts: BTreeMap<String, Counts>,
    /// The last event and the last step that were passed on.
    pub(crate) seen: (i64, i64),
}

impl Keeper {
    /// Goes on until the engine has ended.
    pub(crate) async fn run(mut self, mut progress: mpsc::Receiver<Progress>) {
        loop {
            self.tell(Input::Tick);
            self.beat.turned(Instant::now());
            let deadline = self.feeds.lock().next_deadline();
            let wait = deadline.map_or(TURN, |at| at.saturating_sub(now()).min(TURN));
            match tokio::time::timeout(wait, progress.recv()).await {
                Ok(Some(first)) => {
                    self.got_on(&first);
                    while let Ok(more) = progress.try_recv() {
                        self.got_on(&more);
                    }
                    self.pass_on().await;
                }
                Ok(None) => return,
                Err(_) => self.pass_on().await,
            }
        }
    }

    fn got_on(&mut self, progress: &Progress) {
        let before = self.counts.insert(progress.provider.clone(), progress.counts).unwrap_or_default();
        self.metrics.progressed(progress, before);
        if progress.events.iter().any(|(kind, _)| *kind == EventKind::ProviderStarted) {
            self.tell(Input::Began(progress.provider.clone()));
        }
        if let Some((outcome, why)) = &progress.ended {
            let id = &progress.provider;
            let level = if outcome.satisfies() { "" } else { "error: " };
            (self.log)(&format!("{level}{id} {outcome}: {why}"));
            self.tell(Input::Ended(id.clone(), outcome.satisfies()));
        }
    }

    fn tell(&self, input: Input) {
        let mut effects = Vec::new();
        self.feeds.lock().handle(now(), input, &mut effects);
        for effect in effects {
            match effect {
                Effect::Start(ids) => {
                    (self.log)(&format!("scheduled: {}", ids.join(", ")));
                    // What came of it, the events tell.
                    drop(self.engine.start(ids));
                }
                Effect::Stale { id, completed, limit } => {
                    self.metrics.became_stale(&id);
                    let since = completed.map_or("never".to_owned(), |at| format!("last at {}", time(at)));
                    let limit_s = limit.as_secs();
                    (self.log)(&format!(
                        "error: {id} is stale: it has to complete every {limit_s} s and did {since}"
                    ));
                    let data = json!({ "provider": id, "limit_seconds": limit_s, "completed_at": completed.map(time) });
                    self.events.publish("STALE", data);
                }
                Effect::Fresh(id) => {
                    (self.log)(&format!("{id} is fresh again"));
                    self.events.publish("FRESH", json!({ "provider": id }));
                }
            }
        }
    }

    /// Publishes what the store has got since the last time.
    async fn pass_on(&mut self) {
        let (event, step) = self.seen;
        let news =
            self.readers.read(move |reader| Ok((reader.events_after(event)?, reader.history_after(step)?)));
        match news.await {
            Ok((events, steps)) => {
                for event in events {
                    self.seen.0 = event.seq;
                    self.events.publish(&event.kind.clone(), json!(event));
                }
                for step in steps {
                    self.seen.1 = step.seq;
                    self.metrics.moved(&step);
                }
            }
            Err(error) => (self.log)(&format!("error: {error}")),
        }
    }
}

/// The numbers of the last event and the last step there are.
pub(crate) fn seen(reader: &Reader) -> Result<(i64, i64), phalanx_etl::store::Error> {
    let event = reader.events(1)?.last().map_or(0, |event| event.seq);
    Ok((event, reader.history()?.last().map_or(0, |step| step.seq)))
}

pub(crate) fn time(since_epoch: Duration) -> String {
    let ms = i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |time| time.to_string())
}
