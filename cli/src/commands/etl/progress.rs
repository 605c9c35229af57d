//! A bar per provider on a terminal, plain lines elsewhere. All of it on standard error.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use phalanx_etl::core::EventKind;
use phalanx_etl::engine::Progress;

/// Not every batch is news to somebody who reads a log.
const LINE_EVERY: Duration = Duration::from_secs(5);

pub(super) enum Display {
    Bars(MultiProgress, BTreeMap<String, ProgressBar>),
    Lines(BTreeMap<String, Instant>),
}

impl Display {
    pub(super) fn new() -> Self {
        if std::io::stderr().is_terminal() {
            Self::Bars(MultiProgress::new(), BTreeMap::new())
        } else {
            Self::Lines(BTreeMap::new())
        }
    }

    pub(super) fn update(&mut self, progress: &Progress) {
        let counts = progress.counts;
        let mut text = format!(
            "{} read, {} stored, {} unchanged, {} dead letters",
            counts.read, counts.stored, counts.unchanged, counts.dead_lettered
        );
        let news = progress.events.iter().rev().find(|(kind, _)| *kind != EventKind::Checkpoint);
        if let Some((outcome, why)) = &progress.ended {
            text = format!("{text}: {outcome}, {why}");
        } else if let Some((kind, detail)) = news {
            text = format!("{text}: {kind} {detail}");
        }
        let id = &progress.provider;
        match self {
            Self::Bars(bars, by_id) => {
                let bar = by_id.entry(id.clone()).or_insert_with(|| {
                    let bar = bars.add(ProgressBar::no_length());
                    if let Ok(style) = ProgressStyle::with_template("{prefix:>6} {spinner} {elapsed} {msg}") {
                        bar.set_style(style);
                    }
                    bar.with_prefix(id.clone())
                });
                bar.set_position(counts.read);
                bar.set_message(text.clone());
                bar.tick();
                if progress.ended.is_some() {
                    bar.finish_with_message(text);
                }
            }
            Self::Lines(last) => {
                let due = last.get(id).is_none_or(|at| at.elapsed() >= LINE_EVERY);
                if due || news.is_some() || progress.ended.is_some() {
                    last.insert(id.clone(), Instant::now());
                    eprintln!("{id}: {text}");
                }
            }
        }
    }
}
