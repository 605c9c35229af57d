//! What happens, as a stream that a client can come back to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde_json::Value;
use tokio::sync::watch;

/// How many events are kept for clients that come back.
pub const KEPT: usize = 1_000;

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its number; they have no gaps.
    pub id: u64,
    /// What kind of thing, such as `alarm`.
    pub kind: String,
    /// What there is to say.
    pub data: Arc<Value>,
}

/// The last events of this process. Clones are the same events.
#[derive(Clone, Debug)]
pub struct Events {
    /// What the ids of this process begin with: after a restart a client is not told that it missed nothing.
    life: String,
    kept: Arc<Mutex<VecDeque<Event>>>,
    newest: watch::Sender<u64>,
}

impl Events {
    /// No events yet. `life` tells this run of the process from every other, such as its start in milliseconds.
    pub fn new(life: u64) -> Self {
        Self { life: format!("{life:x}"), kept: Arc::default(), newest: watch::Sender::new(0) }
    }

    /// Notes an event and tells whoever listens.
    pub fn publish(&self, kind: &str, data: Value) {
        let mut kept = self.lock();
        let id = kept.back().map_or(1, |last| last.id + 1);
        kept.push_back(Event { id, kind: kind.to_owned(), data: Arc::new(data) });
        if kept.len() > KEPT {
            kept.pop_front();
        }
        drop(kept);
        self.newest.send_replace(id);
    }

    /// Every event after `seen` that is still kept.
    pub fn after(&self, seen: u64) -> Vec<Event> {
        let kept = self.lock();
        let first = kept.front().map_or(0, |first| first.id);
        let skip = (seen + 1).saturating_sub(first) as usize;
        kept.iter().skip(skip).cloned().collect()
    }

    /// Streams events to a client: those after the one it saw last, if it says so, otherwise from now on.
    pub fn stream(
        &self,
        headers: &HeaderMap,
    ) -> Sse<impl Stream<Item = Result<SseEvent, std::convert::Infallible>> + use<>> {
        let given = headers.get("last-event-id").and_then(|id| id.to_str().ok());
        let seen = given.map_or_else(|| *self.newest.borrow(), |id| self.seen(id));
        let state = (self.clone(), self.newest.subscribe(), seen, VecDeque::new());
        let events = stream::unfold(state, |(events, mut newest, mut seen, mut waiting)| async move {
            while waiting.is_empty() {
                if newest.wait_for(|newest| *newest > seen).await.is_err() {
                    return None;
                }
                waiting.extend(events.after(seen));
            }
            let event: Event = waiting.pop_front()?;
            seen = event.id;
            let sent = SseEvent::default()
                .id(format!("{}-{}", events.life, event.id))
                .event(&event.kind)
                .data(event.data.to_string());
            Some((Ok(sent), (events, newest, seen, waiting)))
        });
        Sse::new(events).keep_alive(KeepAlive::default())
    }

    /// What a client has seen that names this event last. Of another life of this process: nothing of this one.
    fn seen(&self, id: &str) -> u64 {
        id.split_once('-')
            .filter(|(life, _)| *life == self.life)
            .and_then(|(_, number)| number.parse().ok())
            .unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_back_misses_nothing_of_the_last_thousand() {
        let events = Events::new(7);
        for number in 1..=KEPT as u64 + 50 {
            events.publish("alarm", number.into());
        }
        let ids = |seen| events.after(seen).iter().map(|event| event.id).collect::<Vec<_>>();
        assert_eq!(ids(1_048), [1_049, 1_050]);
        assert_eq!(ids(1_050), Vec::<u64>::new());
        assert_eq!(ids(0).first(), Some(&51));
        assert_eq!(ids(0).len(), KEPT);
        assert_eq!(events.seen("7-1048"), 1_048);
        assert_eq!(events.seen("8-1048"), 0, "an id of another life");
        assert_eq!(events.seen("rubbish"), 0);
    }
}
