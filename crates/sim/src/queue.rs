//! What will happen, in the order of time; what is due at the same time happens in the order it was planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use phalanx_cluster_core::types::Time;

/// A queue of things to come.
#[derive(Debug)]
pub(crate) struct EventQueue<T> {
    order: BinaryHeap<Reverse<(Time, u64, usize)>>,
    things: Vec<Option<T>>,
    free: Vec<usize>,
    planned: u64,
}

impl<T> EventQueue<T> {
    pub(crate) fn new() -> Self {
        Self { order: BinaryHeap::new(), things: Vec::new(), free: Vec::new(), planned: 0 }
    }

    pub(crate) fn plan(&mut self, at: Time, thing: T) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.things.push(None);
            self.things.len() - 1
        });
        self.things[place] = Some(thing);
        self.planned += 1;
        self.order.push(Reverse((at, self.planned, place)));
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.order.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next thing that is due until then.
    pub(crate) fn next(&mut self, until: Time) -> Option<(Time, T)> {
        let &Reverse((at, _, place)) = self.order.peek()?;
        if at > until {
            return None;
        }
        self.order.pop();
        self.free.push(place);
        self.things[place].take().map(|thing| (at, thing))
    }
}
