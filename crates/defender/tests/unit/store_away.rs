//! A chart store that stops answering while messages come, and the limits of what runs at once and for how long.

use std::time::Duration;

use crate::fleet::line::{Line, at, listed, traces};
use crate::fleet::moody::Mood;
use crate::fleet::options;
use phalanx_defender::record::{Chamber, Outcome};
use phalanx_defender::weights::announce_import;
use phalanx_testkit::wait::until_async;

#[tokio::test]
async fn while_the_store_is_away_messages_wait_without_counting_and_flow_when_it_is_back() {
    for mood in [Mood::Away, Mood::Silent] {
        let line = Line::usual().await;
        let first = line.send("run-1", 1, 500.0).await;
        line.settled(first.sequence).await;
        line.moody.be(mood);
        let mut last = 0;
        for run in 2..=20 {
            last = line.send(&format!("run-{run}"), run, 500.0).await.sequence;
        }
        let asked = if mood == Mood::Away { 6 } else { 1 };
        until_async("it was asked", async || (line.moody.refused() >= asked).then_some(())).await;
        let cursor = line.cursor().await.unwrap();
        assert_eq!(cursor["sequence"], first.sequence, "{mood:?}: nothing is committed meanwhile");
        assert_eq!(cursor["failures"].as_u64().unwrap_or(0), 0, "{mood:?}: waiting is no attempt");
        line.moody.be(Mood::Well);
        line.settled(last).await;
        let stats = line.defender.handle().stats();
        assert_eq!((stats.failed, stats.dead_letters), (0, 0), "{mood:?}");
        let contexts = line.contexts().await;
        assert_eq!(contexts.len(), 20);
        assert!(contexts.iter().all(|one| one.outcome == Outcome::Processed));
        assert!(line.dead_letters().await.is_empty());
    }
}

#[tokio::test]
async fn no_more_messages_run_at_once_than_are_allowed() {
    let mut usual = options(1);
    usual.cluster.max_concurrent = 3;
    let line = Line::start(usual).await;
    let chambers: Vec<Chamber> =
        (0..8).map(|number| Chamber::new("etch-02", &format!("C{number}")).unwrap()).collect();
    line.store.put_metadata(&chambers.iter().map(listed).collect::<Vec<_>>()).await.unwrap();
    announce_import(&*line.stores.assignments, "test").await.unwrap();
    until_async("all are served", async || (line.defender.handle().assignment().len() == 9).then_some(()))
        .await;
    // A new cursor needs the store once, too.
    until_async("all have cursors", async || {
        (line.stores.cursors.keys().await.unwrap().len() == 9).then_some(())
    })
    .await;
    line.moody.be(Mood::Silent);
    for chamber in &chambers {
        for run in 0..3 {
            let context = format!("run-{run}");
            line.defender.collector().submit(chamber, &context, at(run), &traces(500.0)).await.unwrap();
        }
    }
    until_async("three run", async || (line.moody.reading().0 == 3).then_some(())).await;
    line.moody.be(Mood::Well);
    let processed = async || (line.defender.handle().stats().processed == 24).then_some(());
    until_async("all are processed", processed).await;
    assert_eq!(line.moody.reading(), (0, 3));
}

#[tokio::test]
async fn what_a_message_waits_for_the_store_does_not_count_towards_its_time() {
    let mut usual = options(1);
    usual.cluster.process_timeout = Duration::from_millis(200);
    let line = Line::start(usual).await;
    line.moody.be(Mood::Slow(Duration::from_millis(500)));
    let sent = line.send("run-1", 1, 500.0).await;
    line.settled(sent.sequence).await;
    assert_eq!(line.defender.handle().stats().failed, 0);
    assert_eq!(line.contexts().await[0].outcome, Outcome::Processed);
}

#[tokio::test]
async fn what_a_message_works_itself_does_count() {
    let mut usual = options(1);
    usual.cluster.process_timeout = Duration::from_nanos(1);
    let line = Line::start(usual).await;
    let sent = line.send("run-1", 1, 500.0).await;
    line.settled(sent.sequence).await;
    let letters = line.dead_letters().await;
    assert_eq!((letters.len(), &letters[0]["reason"]), (1, &"it took longer than 1ns".into()));
    assert_eq!(line.contexts().await[0].outcome, Outcome::Dead);
}
