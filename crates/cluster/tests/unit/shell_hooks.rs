//! Hooks that fail, panic and block: reported, in order, and no concern of the worker's heart.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::fleet::{builder, config, memory};
use phalanx_cluster::core::{Config, WorkerState};
use phalanx_cluster::{HookError, Hooks, OwnedPartition, Problem};
use phalanx_testkit::wait::until_async;

#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Fails,
    Panics,
    Waits,
    Blocks,
}

#[derive(Clone)]
struct Rude {
    manner: Manner,
    calls: Arc<Mutex<Vec<(Instant, String)>>>,
}

impl Rude {
    fn new(manner: Manner) -> Self {
        Self { manner, calls: Arc::default() }
    }

    fn note(&self, what: String) {
        self.calls.lock().unwrap().push((Instant::now(), what));
    }

    fn names(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|(_, what)| what.clone()).collect()
    }
}

#[async_trait::async_trait]
impl Hooks for Rude {
    async fn on_assignment_changed(
        &self,
        added: Vec<OwnedPartition>,
        removed: Vec<Arc<str>>,
    ) -> Result<(), HookError> {
        self.note(format!("assignment +{} -{}", added.len(), removed.len()));
        match self.manner {
            Manner::Fails => return Err("it does not like it".into()),
            Manner::Panics => panic!("it cannot stand it"),
            Manner::Waits => std::future::pending().await,
            // Once is enough.
            Manner::Blocks
                if self.names().iter().filter(|what| what.starts_with("assignment")).count() > 1 => {}
            Manner::Blocks => std::thread::sleep(Duration::from_secs(32)),
        }
        Ok(())
    }

    async fn on_state_changed(&self, _: WorkerState, to: WorkerState) -> Result<(), HookError> {
        self.note(format!("state {to:?}"));
        Ok(())
    }

    async fn on_error(&self, problem: Problem) -> Result<(), HookError> {
        self.note(format!("error {problem}"));
        Ok(())
    }
}

async fn reported(manner: Manner, words: &str) -> Rude {
    let hooks = Rude::new(manner);
    let worker = builder(&memory(), Config { consumes_log: false, ..config(1) }, 3)
        .hooks(hooks.clone())
        .start()
        .await
        .unwrap();
    let began = Instant::now();
    let told = async || hooks.names().iter().any(|what| what.contains(words)).then_some(());
    tokio::time::timeout(Duration::from_secs(60), async {
        while told().await.is_none() {
            // All the while the worker lives: its fence is far shorter than the hook.
            assert!(worker.status().holder.is_none() || worker.may_write(), "after {:?}", began.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{words:?} was not reported: {:?}", hooks.names()));
    let text = worker.metrics().text();
    assert!(
        text.contains("phalanx_hook_errors_total{group=\"tests\",hook=\"on_assignment_changed\"} "),
        "{text}"
    );
    assert!(text.contains("phalanx_heartbeat_errors_total{group=\"tests\"} 0"));
    hooks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_fails_is_reported_with_its_own_words() {
    reported(Manner::Fails, "on_assignment_changed failed: it does not like it").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_panics_is_reported_with_its_own_words() {
    reported(Manner::Panics, "on_assignment_changed panicked: it cannot stand it").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_never_returns_is_given_up_after_half_a_minute_and_the_next_follow() {
    let hooks = reported(Manner::Waits, "on_assignment_changed has not returned after 30s").await;
    let calls = hooks.calls.lock().unwrap().clone();
    let stuck = calls.iter().position(|(_, what)| what.starts_with("assignment")).unwrap();
    let (at, next) = (calls[stuck].0, &calls[stuck + 1]);
    assert!(next.0.duration_since(at) >= Duration::from_secs(30), "{} came before its turn", next.1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_blocks_its_thread_keeps_its_place_and_disturbs_no_heartbeat() {
    let hooks = reported(Manner::Blocks, "on_assignment_changed has not returned after 30s").await;
    let calls = hooks.calls.lock().unwrap().clone();
    let stuck = calls.iter().position(|(_, what)| what.starts_with("assignment")).unwrap();
    assert!(calls[stuck + 1].0.duration_since(calls[stuck].0) >= Duration::from_secs(32));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_log_the_next_owner_waits_for_the_hook_of_the_last() {
    /// Takes a second to let go.
    #[derive(Clone)]
    struct Slow(Arc<Mutex<Vec<(String, Instant)>>>, &'static str);

    #[async_trait::async_trait]
    impl Hooks for Slow {
        async fn on_assignment_changed(
            &self,
            added: Vec<OwnedPartition>,
            removed: Vec<Arc<str>>,
        ) -> Result<(), HookError> {
            if !removed.is_empty() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let mut notes = self.0.lock().unwrap();
            notes.extend(removed.iter().map(|name| (format!("{} -{name}", self.1), Instant::now())));
            notes.extend(
                added.iter().map(|owned| (format!("{} +{}", self.1, owned.partition), Instant::now())),
            );
            Ok(())
        }
    }

    let backend = memory();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let alone = || Config {
        consumes_log: false,
        fleet_size: None,
        cold_start_window: Duration::from_secs(1),
        ..config(1)
    };
    let first = builder(&backend, alone(), 4).hooks(Slow(notes.clone(), "a")).start().await.unwrap();
    until_async("it has all", async || (first.assignment().len() == 4).then_some(())).await;
    let second = builder(&backend, alone(), 4).hooks(Slow(notes.clone(), "b")).start().await.unwrap();
    until_async("the second is told", async || {
        notes.lock().unwrap().iter().any(|(what, _)| what.starts_with("b +")).then_some(())
    })
    .await;
    let notes = notes.lock().unwrap().clone();
    for (what, at) in notes.iter().filter(|(what, _)| what.starts_with("b +")) {
        let name = what.trim_start_matches("b +");
        let let_go =
            notes.iter().find(|(other, _)| *other == format!("a -{name}")).expect("the first let go of it");
        assert!(let_go.1 <= *at, "{name} was gained before it was let go of");
    }
    drop((first, second));
}
