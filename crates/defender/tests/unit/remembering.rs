//! What a chamber's charts remember is gone, damaged, or of a newer program; and a store that does not answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fleet::line::{STRATEGY, traces};
use crate::fleet::moody::{Mood, Moody};
use crate::fleet::paused::{delivery, pipeline_told, place};
use phalanx_cluster::backend::Embedded;
use phalanx_cluster::{Failure, Handler as _};
use phalanx_defender::Observer;
use phalanx_defender::pipeline::{PATIENCE, Pipeline};
use phalanx_defender::record::{Chamber, Outcome};
use phalanx_defender::store::{ChartStore, Sqlite};
use rusqlite::Connection;
use tempfile::TempDir;

/// Reported problems.
#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Observer for Heard {
    fn problem(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

/// A chamber with one run, whose state then becomes what a statement makes of it; and a worker that has just got it.
struct Scene {
    folder: TempDir,
    store: Arc<dyn ChartStore>,
    moody: Arc<Moody>,
    backend: Embedded,
    chamber: Chamber,
    heard: Arc<Heard>,
}

impl Scene {
    async fn with_one_run() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let inner: Arc<dyn ChartStore> = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
        let moody = Moody::new(inner);
        let (chamber, backend) = (Chamber::new("etch-01", "A").unwrap(), Embedded::in_memory().unwrap());
        let scene = Self { folder, store: moody.clone(), moody, backend, chamber, heard: Arc::default() };
        for run in 1..=2 {
            scene.store.put_t_chart(&scene.chamber, &format!("run-{run}"), &traces(500.0)).await.unwrap();
        }
        scene.worker(PATIENCE).await.handle(delivery(&scene.chamber, 1, 1)).await.unwrap();
        scene
    }

    async fn worker(&self, patience: Duration) -> Pipeline {
        pipeline_told(&self.store, &self.backend, STRATEGY, self.heard.clone(), patience).await
    }

    fn state_becomes(&self, statement: &str) {
        let db = Connection::open(self.folder.path().join("charts.db")).unwrap();
        assert_eq!(db.execute(statement, []).unwrap(), 1);
    }

    /// The outcomes of the runs, the oldest first.
    async fn outcomes(&self) -> Vec<Outcome> {
        let mut rows = self.store.contexts(&self.chamber, None, 10).await.unwrap();
        rows.reverse();
        rows.into_iter().map(|row| row.outcome).collect()
    }

    fn heard(&self, words: &str) -> bool {
        self.heard.0.lock().unwrap().iter().any(|text| text.contains(words))
    }
}

#[tokio::test]
async fn a_state_of_a_newer_program_is_left_alone_and_its_chamber_waits() {
    let scene = Scene::with_one_run().await;
    scene.state_becomes("UPDATE chart_state SET state = x'6300'");
    let waits = scene.worker(PATIENCE).await.handle(delivery(&scene.chamber, 2, 2)).await;
    assert!(matches!(waits, Err(Failure::Unavailable)), "{waits:?}");
    assert!(scene.heard("it waits: the chart state has format 99"), "{:?}", scene.heard.0);
    assert_eq!(scene.outcomes().await, [Outcome::Processed]);
    assert_eq!(scene.store.state_at(&scene.chamber, place(1)).await.unwrap().unwrap().state[0], 99);
}

#[tokio::test]
async fn a_damaged_state_begins_anew_and_that_is_said() {
    let scene = Scene::with_one_run().await;
    scene.state_becomes("UPDATE chart_state SET state = substr(state, 1, 3)");
    scene.worker(PATIENCE).await.handle(delivery(&scene.chamber, 2, 2)).await.unwrap();
    assert!(scene.heard("its charts begin anew: the chart state is damaged"), "{:?}", scene.heard.0);
    assert_eq!(scene.outcomes().await, [Outcome::Processed, Outcome::Processed]);
}

#[tokio::test]
async fn a_state_that_is_gone_is_asked_for_again_before_the_charts_begin_anew() {
    let scene = Scene::with_one_run().await;
    scene.state_becomes("DELETE FROM chart_state");
    let worker = scene.worker(PATIENCE).await;
    let again = worker.handle(delivery(&scene.chamber, 2, 2)).await;
    assert!(matches!(&again, Err(Failure::Retry(why)) if why.contains("is not in the store")), "{again:?}");
    assert!(!scene.heard("begin anew"));
    let mut last = delivery(&scene.chamber, 2, 2);
    last.attempt = 3;
    worker.handle(last).await.unwrap();
    assert!(scene.heard("its charts begin anew"), "{:?}", scene.heard.0);
}

#[tokio::test]
async fn a_message_is_buried_although_the_state_is_gone() {
    let scene = Scene::with_one_run().await;
    scene.state_becomes("DELETE FROM chart_state");
    scene.worker(PATIENCE).await.record_dead_letter(delivery(&scene.chamber, 2, 2), "a test").await.unwrap();
    assert_eq!(scene.outcomes().await, [Outcome::Processed, Outcome::Dead]);
}

#[tokio::test]
async fn a_store_that_never_answers_holds_no_message_for_ever() {
    let scene = Scene::with_one_run().await;
    let worker = scene.worker(Duration::from_millis(50)).await;
    scene.moody.be(Mood::Silent);
    let waits = worker.handle(delivery(&scene.chamber, 2, 2)).await;
    assert!(matches!(waits, Err(Failure::Unavailable)), "{waits:?}");
    scene.moody.be(Mood::Well);
    worker.handle(delivery(&scene.chamber, 2, 2)).await.unwrap();
    assert_eq!(scene.outcomes().await, [Outcome::Processed, Outcome::Processed]);
}
