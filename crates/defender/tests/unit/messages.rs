//! What becomes of messages of every kind, on the embedded backend and an SQLite file.

use crate::fleet;
use std::time::Duration;

use crate::fleet::line::{Line, at, traces};
use crate::fleet::options;
use bytes::Bytes;
use phalanx_cluster::backend::Backend as _;
use phalanx_defender::judge::alarm;
use phalanx_defender::notification::Rebaseline;
use phalanx_defender::record::{Flags, Outcome, UChart};
use phalanx_defender::worker::Options;
use phalanx_testkit::wait::until_async;

fn outcomes(line: &[phalanx_defender::record::Context]) -> Vec<(&str, Outcome)> {
    line.iter().map(|one| (&*one.context, one.outcome)).collect()
}

#[tokio::test]
async fn a_run_that_is_sent_twice_within_the_window_is_in_the_log_once() {
    let line = Line::usual().await;
    let first = line.send("run-1", 1, 500.0).await;
    let again = line.send("run-1", 1, 500.0).await;
    assert_eq!((again.sequence, again.duplicate), (first.sequence, true));
    let last = line.send("run-2", 2, 500.0).await;
    line.settled(last.sequence).await;
    let expected = [("run-1", Outcome::Processed), ("run-2", Outcome::Processed)];
    assert_eq!(outcomes(&line.contexts().await), expected);
}

#[tokio::test]
async fn a_run_that_is_sent_again_after_the_window_is_committed_without_effect_and_counted() {
    let mut usual = options(1);
    usual.settings.log.duplicate_window = Duration::from_millis(1);
    usual.alarms.duplicate_window = Duration::from_millis(1);
    let line = Line::start(usual).await;
    let first = line.send("run-1", 1, 600.0).await;
    line.settled(first.sequence).await;
    let (points, state) = (line.points("power").await, line.state().await);
    let raised = line.published_alarms().await;
    assert_eq!(raised.len(), 1, "{raised:?}");
    // The alarm that it raised is still active.
    let again = until_async("the window is over", async || {
        let sent = line.send("run-1", 7, 500.0).await;
        (!sent.duplicate).then_some(sent)
    })
    .await;
    line.settled(again.sequence).await;
    let expected = [("run-1", Outcome::Processed), ("run-1", Outcome::Duplicate)];
    assert_eq!(outcomes(&line.contexts().await), expected);
    assert_eq!((line.points("power").await, line.state().await), (points, state));
    assert_eq!(line.published_alarms().await, raised, "nothing was raised anew");
    assert_eq!(line.defender.pipeline_metrics().outcomes(Outcome::Duplicate), 1);
    assert_eq!(line.dead_letters().await, [] as [serde_json::Value; 0]);
}

#[tokio::test]
async fn a_run_whose_traces_come_later_is_processed_when_they_are_there() {
    let line = Line::usual().await;
    let sequence = line.notify("run-1", 1).await;
    until_async("it was tried", async || (line.defender.handle().stats().failed >= 1).then_some(())).await;
    line.store.put_t_chart(&line.chamber, "run-1", &traces(500.0)).await.unwrap();
    line.settled(sequence).await;
    assert_eq!(outcomes(&line.contexts().await), [("run-1", Outcome::Processed)]);
    assert_eq!(line.points("power").await[0].value, Some(500.0));
    assert!(line.dead_letters().await.is_empty());
}

#[tokio::test]
async fn a_run_whose_traces_never_come_is_a_dead_letter_after_three_attempts_and_the_next_goes_on() {
    let line = Line::usual().await;
    let before = line.send("run-1", 1, 600.0).await;
    line.settled(before.sequence).await;
    let state = line.state().await;
    let sequence = line.notify("run-2", 2).await;
    line.settled(sequence).await;
    let letters = line.dead_letters().await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!(letters[0]["attempts"], 3);
    assert_eq!(letters[0]["reason"], "the T-chart etch-01:A:run-2 is not in the store");
    assert!(letters[0]["original"].as_str().unwrap().contains("run-2"), "the message in full");
    assert_eq!(line.state().await, state, "what the charts remember is as it was");
    let alarms = line.published_alarms().await;
    assert_eq!(alarms.len(), 1, "a dead letter raises and clears nothing: {alarms:?}");
    // Its id is not used up: it can be sent again.
    let again = line.send("run-2", 3, 500.0).await;
    line.settled(again.sequence).await;
    let expected = [("run-1", Outcome::Processed), ("run-2", Outcome::Dead), ("run-2", Outcome::Processed)];
    assert_eq!(outcomes(&line.contexts().await), expected);
    assert_eq!(line.defender.pipeline_metrics().outcomes(Outcome::Dead), 1);
}

#[tokio::test]
async fn traces_that_cannot_be_read_are_a_dead_letter_at_once_that_says_why() {
    let line = Line::usual().await;
    let good = traces(500.0)[0].clone();
    let hostile: [(&str, Bytes); 4] = [
        ("garbage", "these are no traces".into()),
        ("empty", Bytes::new()),
        ("short", good.slice(..good.len() / 2)),
        ("zeros", vec![0; 4096].into()),
    ];
    let mut last = 0;
    for (context, blob) in &hostile {
        line.store.put_t_chart(&line.chamber, context, std::slice::from_ref(blob)).await.unwrap();
        last = line.notify(context, 1).await;
    }
    line.settled(last).await;
    let letters = line.dead_letters().await;
    assert_eq!(letters.len(), hostile.len());
    for letter in &letters {
        assert_eq!(letter["attempts"], 1, "no attempt helps: {letter}");
        let reason = letter["reason"].as_str().unwrap();
        assert!(reason.starts_with("chunk 1 of the T-chart cannot be read: "), "{reason}");
    }
    assert!(line.contexts().await.iter().all(|one| one.outcome == Outcome::Dead));
    assert!(line.points("power").await.is_empty());
}

#[tokio::test]
async fn a_sensor_that_is_not_there_gives_a_point_without_a_value_and_no_alarm() {
    let line = Line::usual().await;
    let sent = line.send("run-1", 1, 500.0).await;
    line.settled(sent.sequence).await;
    let gas = line.points("gas").await;
    assert_eq!((gas.len(), gas[0].value), (1, None));
    assert!(gas[0].flags.has(Flags::NO_VALUE));
    assert!(line.published_alarms().await.is_empty());
}

#[tokio::test]
async fn a_chamber_without_charts_commits_its_runs_and_they_are_counted() {
    let strategy = fleet::line::STRATEGY.replace("etch-*", "cvd-*");
    let line = Line::with(&strategy, options(1)).await;
    // Nobody needs its traces, so it does not matter that they are not there.
    let sequence = line.notify("run-1", 1).await;
    line.settled(sequence).await;
    assert_eq!(outcomes(&line.contexts().await), [("run-1", Outcome::NoCharts)]);
    assert_eq!(line.defender.pipeline_metrics().outcomes(Outcome::NoCharts), 1);
    assert!(line.dead_letters().await.is_empty());
}

#[tokio::test]
async fn what_is_no_notification_of_this_chamber_is_a_dead_letter_and_changes_nothing() {
    let line = Line::usual().await;
    let sent = line.send("run-1", 1, 600.0).await;
    line.settled(sent.sequence).await;
    let state = line.state().await;
    let named = |tool: &str, context: &str| {
        format!(
            r#"{{"toolId":"{tool}","chamberId":"A","contextId":"{context}","tChartKey":"{tool}:A:{context}",
                "timestamp":"2026-01-01T00:00:00Z"}}"#
        )
    };
    let hostile: [(Bytes, &str); 7] = [
        ("not json".into(), "the message is not a notification: "),
        (Bytes::from_static(b"\xff\xfe\x00"), "the message is not a notification: "),
        (Bytes::new(), "the message is not a notification: "),
        (
            named("etch-02", "run-7").into(),
            "the message is about etch-02:A, and stands in the log of etch-01:A",
        ),
        (named("etch-01", "two words").into(), "contextId \"two words\" has ' '"),
        (named("etch-01", &"x".repeat(20_000)).into(), "contextId "),
        (" ".repeat(70_000).into(), "the message has 70000 bytes"),
    ];
    let mut last = 0;
    for (payload, _) in &hostile {
        last = line.publish(payload.clone()).await;
    }
    let good = line.send("run-2", 2, 600.0).await;
    line.settled(last).await;
    let letters = line.dead_letters().await;
    assert_eq!(letters.len(), hostile.len());
    for (letter, (_, reason)) in letters.iter().zip(&hostile) {
        assert!(letter["reason"].as_str().unwrap().starts_with(reason), "{letter}");
        assert_eq!(letter["attempts"], 1);
    }
    assert_eq!(letters[1]["originalBase64"], "//4A");
    line.settled(good.sequence).await;
    let contexts = line.contexts().await;
    let dead = contexts.iter().filter(|one| one.outcome == Outcome::Dead);
    assert_eq!(dead.clone().count(), hostile.len());
    for one in dead {
        phalanx_defender::notification::check_context(&one.context).unwrap();
        let row = line.store.state_at(&line.chamber, one.position).await.unwrap();
        assert!(row.is_none_or(|row| row.state == state), "the chart state is unchanged");
    }
    assert_eq!(contexts.last().unwrap().outcome, Outcome::Processed);
}

#[tokio::test]
async fn a_rebaseline_takes_effect_between_the_runs_it_stands_between_and_once() {
    let line = Line::usual().await;
    for run in 1..=6 {
        line.send(&format!("run-{run}"), run, 500.0 + (run % 3) as f64).await;
    }
    let command = Rebaseline {
        chamber: line.chamber.clone(),
        context: "cmd-1".into(),
        timestamp: at(6),
        charts: Some(vec!["learned".into()]),
    };
    line.defender.collector().rebaseline(&command).await.unwrap();
    line.publish(command.to_json()).await;
    let mut last = 0;
    for run in 7..=12 {
        last = line.send(&format!("run-{run}"), run, 510.0 + (run % 3) as f64).await.sequence;
    }
    line.settled(last).await;
    // Which points have a flag, counted from 1.
    let having = |points: &[UChart], flag| -> Vec<usize> {
        (1..).zip(points).filter(|(_, point)| point.flags.has(flag)).map(|(place, _)| place).collect()
    };
    let learned = line.points("learned").await;
    assert_eq!(having(&learned, Flags::LEARNING), [1, 2, 3, 4, 5, 7, 8, 9, 10, 11]);
    assert_eq!(having(&learned, Flags::BEGINS), [1, 7]);
    assert_eq!(having(&line.points("power").await, Flags::BEGINS), [1], "the others are left alone");
    let contexts = line.contexts().await;
    let commands: Vec<_> = outcomes(&contexts).into_iter().filter(|(name, _)| *name == "cmd-1").collect();
    assert_eq!(commands, [("cmd-1", Outcome::Command), ("cmd-1", Outcome::Duplicate)]);
}

#[tokio::test]
async fn an_alarm_is_published_once_when_it_is_raised_and_once_when_it_is_cleared() {
    let line = Line::usual().await;
    for (run, power) in [(1, 500.0), (2, 600.0), (3, 610.0), (4, 500.0), (5, 600.0)] {
        let sent = line.send(&format!("run-{run}"), run, power).await;
        line.settled(sent.sequence).await;
    }
    let published = line.published_alarms().await;
    let seen: Vec<(String, &str, &str)> = published
        .iter()
        .map(|alarm| {
            let text = |field: &str| alarm[field].as_str().unwrap();
            (text("alarmId").to_owned(), text("contextId"), text("state"))
        })
        .collect();
    let id = |context: &str| alarm::id(&line.chamber, context, "power", "limits");
    let expected =
        [(id("run-2"), "run-2", "open"), (id("run-2"), "run-2", "cleared"), (id("run-5"), "run-5", "open")];
    assert_eq!(seen, expected);
    assert_eq!(published[1]["clearedByContextId"], "run-4");
    assert!(published[0]["message"].as_str().unwrap().contains("above the upper limit 520"), "{published:?}");
    assert_eq!(published[0]["severity"], "critical");
    let page = line.store.alarms(Some(&line.chamber), at(0), None, 10).await.unwrap();
    assert_eq!(page.alarms.len(), 2, "and stored");
    assert_eq!(line.told.alarms.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn an_alarm_that_cannot_be_published_holds_its_chamber_back_and_is_published_once() {
    let line = Line::usual().await;
    let alarm_log = Options::default().alarms;
    let first = line.send("run-1", 1, 500.0).await;
    line.settled(first.sequence).await;
    line.backend.remove_log(&alarm_log.name).await.unwrap();
    let bad = line.send("run-2", 2, 600.0).await;
    until_async("its results are written", async || (line.points("power").await.len() == 2).then_some(()))
        .await;
    until_async("it was tried again", async || (line.defender.handle().stats().received >= 3).then_some(()))
        .await;
    let cursor = line.cursor().await.unwrap();
    assert_eq!(cursor["sequence"], first.sequence, "the cursor waits for the alarm");
    assert_eq!(cursor["failures"].as_u64().unwrap_or(0), 0, "that is no fault of the message");
    let alarms = line.backend.log(&alarm_log).await.unwrap();
    line.settled(bad.sequence).await;
    assert_eq!(alarms.read("alarm.etch-01.A", 1, 10).await.unwrap().len(), 1);
    assert!(line.dead_letters().await.is_empty());
}

#[tokio::test]
async fn a_chamber_whose_cursor_is_lost_goes_on_where_its_charts_are() {
    let line = Line::usual().await;
    for run in 1..=7 {
        let sent = line.send(&format!("run-{run}"), run, 500.0 + (run % 3) as f64).await;
        line.settled(sent.sequence).await;
    }
    let before = line.points("learned").await;
    let cursor = line.stores.cursors.get("etch-01.A").await.unwrap().unwrap();
    line.stores.cursors.delete("etch-01.A", cursor.revision).await.unwrap();
    let last = line.send("run-8", 8, 700.0).await;
    line.settled(last.sequence).await;
    let after = line.points("learned").await;
    assert_eq!(after[..7], before, "what was there is as it was, and nothing is learned twice");
    assert_eq!((after.len(), after[7].n), (8, 5));
    // One run is repeated: whether it was committed nobody knows any more.
    let contexts = line.contexts().await;
    assert_eq!(contexts.len(), 9);
    let count = |name: &str| contexts.iter().filter(|one| &*one.context == name).count();
    assert_eq!((1..=6).map(|run| count(&format!("run-{run}"))).collect::<Vec<_>>(), [1; 6]);
    assert!(contexts[8].position.generation > contexts[0].position.generation);
    let state = line.store.newest_state(&line.chamber).await.unwrap().unwrap();
    assert_eq!(&*state.context, "run-8");
    assert!(line.dead_letters().await.is_empty());
}

#[tokio::test]
async fn patterns_are_the_same_from_the_store_as_from_the_cache_whatever_times_the_runs_have() {
    let line = Line::usual().await;
    // A clock that was a year ahead, and was then put right.
    for run in 0..130 {
        line.send(&format!("ahead-{run}"), 525_600 + run, 499.0).await;
    }
    let mut last = 0;
    for run in 1..=5 {
        last = line.send(&format!("right-{run}"), run, 501.0).await.sequence;
    }
    line.settled(last).await;
    line.defender.cache().forget(&line.chamber);
    for run in 6..=9 {
        last = line.send(&format!("right-{run}"), run, 501.0).await.sequence;
    }
    line.settled(last).await;
    // The ninth in a row above the centre.
    let expected = alarm::id(&line.chamber, "right-9", "power", "nelson-2");
    let published = line.published_alarms().await;
    assert!(published.iter().any(|alarm| alarm["alarmId"] == expected.as_str()), "{published:#?}");
}
