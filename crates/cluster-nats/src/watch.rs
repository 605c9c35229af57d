//! A watch: an ephemeral consumer that is made anew, after the last change that was told, whenever it may have missed
//! something.

use std::time::Duration;

use async_nats::header::NATS_LAST_CONSUMER;
use async_nats::jetstream::stream::Info;
use async_nats::{HeaderValue, Message, StatusCode, Subscriber, jetstream};
use futures_util::StreamExt as _;
use phalanx_cluster::backend::{Entry, Error, Watch, WatchEvent};
use phalanx_cluster::core::types::Revision;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::sync::watch::Receiver;

use crate::connection::{Connection, RequestError};
use crate::kv::{is_deletion, micros};

/// The consumer says so often that it is there, if it has nothing else to say.
const IDLE_HEARTBEAT: Duration = Duration::from_secs(1);
/// Longer silence means that it is not.
const MAX_IDLE: Duration = Duration::from_millis(2_500);
/// When it cannot be made, it is tried again so soon.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// The server removes a consumer that nobody listens to.
const INACTIVE_THRESHOLD: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct WatchSource {
    connection: Connection,
    stream: String,
    prefix: String,
}

/// A consumer that runs.
struct WatchConsumer {
    messages: Subscriber,
    name: String,
    /// The last sequence the stream's leader had when the consumer was made: up to there nothing is news.
    begin: u64,
    /// Which stream this is.
    created: i128,
    /// The stream is not the one, or not as far, as it was.
    replaced: bool,
}

/// Where a watch stands.
struct WatchProgress {
    last_revision: u64,
    created: Option<i128>,
    /// Whether deletions are told: not those before the values that a watch begins with.
    skip_deletions: bool,
}

impl WatchSource {
    pub(crate) fn new(connection: Connection, stream: &str, prefix: &str) -> Self {
        Self { connection, stream: stream.to_owned(), prefix: prefix.to_owned() }
    }

    /// Starts to tell; an error if it cannot begin.
    pub(crate) async fn start(self, after: Revision, keys_only: bool) -> Result<Watch, Error> {
        let mut made = self.connection.connection_count.subscribe();
        made.mark_unchanged();
        let progress = WatchProgress { last_revision: after.0, created: None, skip_deletions: after.0 == 0 };
        let feed = match self.begin(&progress, keys_only).await {
            Ok(feed) => feed,
            Err(trouble) => {
                let what = format!("watch of {}", self.stream);
                return Err(trouble.into_read_error(what, &self.stream));
            }
        };
        let (events, watch) = Watch::new();
        tokio::spawn(async move { self.run(progress, feed, keys_only, made, &events).await });
        Ok(watch)
    }

    /// Tells until nobody listens.
    async fn run(
        &self,
        mut progress: WatchProgress,
        mut feed: WatchConsumer,
        keys_only: bool,
        mut made: Receiver<u64>,
        events: &mpsc::Sender<WatchEvent>,
    ) -> Option<()> {
        if feed.replaced {
            events.send(WatchEvent::Resumed { replaced: true }).await.ok()?;
        }
        loop {
            progress.follow(&feed);
            let ended = self.forward(&mut progress, &mut feed, &mut made, events).await;
            self.remove(&feed).await;
            ended?;
            feed = loop {
                made.mark_unchanged();
                match self.begin(&progress, keys_only).await {
                    Ok(feed) => break feed,
                    // Whatever is wrong, it may pass: the bucket may even be made anew.
                    Err(_) => tokio::select! {
                        () = events.closed() => return None,
                        _ = made.changed() => {}
                        () = tokio::time::sleep(RETRY_DELAY) => {}
                    },
                }
            };
            events.send(WatchEvent::Resumed { replaced: feed.replaced }).await.ok()?;
        }
    }

    async fn begin(&self, progress: &WatchProgress, keys_only: bool) -> Result<WatchConsumer, RequestError> {
        let stream = &self.stream;
        let info: Info = self.connection.api(&format!("STREAM.INFO.{stream}"), &Value::Null).await?;
        let created = info.created.unix_timestamp_nanos();
        let replaced = progress.created.is_some_and(|before| before != created)
            || info.state.last_sequence < progress.last_revision;
        let after = if replaced { 0 } else { progress.last_revision };
        let begin = if info.state.messages == 0 { after } else { info.state.last_sequence };

        let inbox = self.connection.client.new_inbox();
        let name = inbox.rsplit('.').next().unwrap_or(&inbox).to_owned();
        let messages =
            self.connection.client.subscribe(inbox.clone()).await.map_err(|_| RequestError::NotSent)?;
        let mut config = json!({
            "name": name,
            "deliver_subject": inbox,
            "filter_subject": format!("{}>", self.prefix),
            "ack_policy": "none",
            "max_deliver": 1,
            "replay_policy": "instant",
            "flow_control": true,
            "idle_heartbeat": nanos(IDLE_HEARTBEAT),
            "inactive_threshold": nanos(INACTIVE_THRESHOLD),
            "num_replicas": 1,
            "mem_storage": true,
            "headers_only": keys_only,
        });
        match after {
            0 => config["deliver_policy"] = "last_per_subject".into(),
            after => {
                config["deliver_policy"] = "by_start_sequence".into();
                config["opt_start_seq"] = (after + 1).into();
            }
        }
        let request = json!({ "stream_name": stream, "config": config, "action": "create" });
        self.connection.api::<Value>(&format!("CONSUMER.CREATE.{stream}.{name}"), &request).await?;
        Ok(WatchConsumer { messages, name, begin, created, replaced })
    }

    /// Tells what the consumer brings until it may have missed something; none when nobody listens.
    async fn forward(
        &self,
        progress: &mut WatchProgress,
        feed: &mut WatchConsumer,
        made: &mut Receiver<u64>,
        events: &mpsc::Sender<WatchEvent>,
    ) -> Option<()> {
        let mut current = false;
        let mut received = 0;
        loop {
            if !current && progress.last_revision >= feed.begin {
                current = true;
                progress.skip_deletions = false;
                events.send(WatchEvent::Current).await.ok()?;
            }
            let message = tokio::select! {
                biased;
                () = events.closed() => return None,
                _ = made.changed() => return Some(()),
                message = tokio::time::timeout(MAX_IDLE, feed.messages.next()) => message,
            };
            let Ok(Some(message)) = message else { return Some(()) };
            if message.status == Some(StatusCode::IDLE_HEARTBEAT) {
                match self.reply_flow_control(&message).await {
                    None => {}
                    // It has nothing more, though the leader had: what was there has expired.
                    Some(sent) if sent == received => feed.begin = feed.begin.min(progress.last_revision),
                    Some(_) => return Some(()),
                }
                continue;
            }
            let message = jetstream::Message { message, context: self.connection.js.clone() };
            let Ok(info) = message.info() else { continue };
            received += 1;
            if info.consumer_sequence != received {
                return Some(());
            }
            let (sequence, stored_at) = (info.stream_sequence, micros(info.published.unix_timestamp_nanos()));
            if let Some(event) = self.event(&message.message, sequence, stored_at, progress.skip_deletions) {
                events.send(event).await.ok()?;
            }
            progress.last_revision = sequence;
        }
    }

    fn event(
        &self,
        message: &Message,
        sequence: u64,
        stored_at: u64,
        skip_deletions: bool,
    ) -> Option<WatchEvent> {
        let key = message.subject.strip_prefix(&*self.prefix)?.to_owned();
        let revision = Revision(sequence);
        match message.headers.as_ref().is_some_and(is_deletion) {
            true if skip_deletions => None,
            true => Some(WatchEvent::Delete { key, revision }),
            false => {
                Some(WatchEvent::Put(Entry { key, value: message.payload.clone(), revision, stored_at }))
            }
        }
    }

    /// Answers the server's questions about the pace. How many messages the consumer has sent, if this is its sign of life.
    async fn reply_flow_control(&self, message: &Message) -> Option<u64> {
        let headers = message.headers.as_ref();
        let header = |name: &str| headers.and_then(|headers| headers.get(name)).map(HeaderValue::as_str);
        let stalled = header("Nats-Consumer-Stalled").map(str::to_owned);
        let ask = message.reply.as_ref().map(ToString::to_string).or(stalled);
        if let Some(ask) = ask {
            // Unanswered, the server stops, and we begin anew.
            let _ = self.connection.client.publish(ask, "".into()).await;
        }
        header(NATS_LAST_CONSUMER.as_ref())?.parse().ok()
    }

    /// Takes the consumer away. One that stays is removed by the server when nobody listens for a while.
    async fn remove(&self, feed: &WatchConsumer) {
        if self.connection.ensure_connected().is_ok() {
            let subject = format!("$JS.API.CONSUMER.DELETE.{}.{}", self.stream, feed.name);
            let _ = self.connection.client.publish(subject, "".into()).await;
        }
    }
}

impl WatchProgress {
    fn follow(&mut self, feed: &WatchConsumer) {
        if feed.replaced {
            self.last_revision = 0;
            self.skip_deletions = true;
        }
        self.created = Some(feed.created);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
