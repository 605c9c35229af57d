//! A strategy file that changes while a defender runs.

use std::fs;

use crate::fleet::line::{Line, STRATEGY};
use crate::fleet::options;
use phalanx_testkit::wait::until_async;

fn counted(line: &Line, name: &str) -> u64 {
    let families = line.defender.handle().metrics().registry().gather();
    let family = families.iter().find(|family| family.name() == name).unwrap();
    family.get_metric()[0].get_counter().get_value() as u64
}

#[tokio::test]
async fn a_changed_file_is_in_force_for_the_next_run_and_a_bad_one_is_refused_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("strategy.toml");
    fs::write(&file, STRATEGY).unwrap();
    let mut options = options(1);
    options.strategy_file = Some(file.clone());
    let line = Line::start(options).await;
    let first = line.send("run-1", 1, 510.0).await;
    line.settled(first.sequence).await;

    fs::write(&file, STRATEGY.replace("mean(RF_POWER)", "mean(RF_POWER")).unwrap();
    until_async("it is refused", async || (line.defender.strategy().refused() == 1).then_some(())).await;
    until_async("it is told", async || line.told.problem_with("strategy.toml is refused: ").then_some(()))
        .await;
    let second = line.send("run-2", 2, 510.0).await;
    line.settled(second.sequence).await;

    fs::remove_file(&file).unwrap();
    until_async("it is told", async || line.told.problem_with("strategy.toml cannot be read").then_some(()))
        .await;

    fs::write(&file, STRATEGY.replace("ucl = 520", "ucl = 505")).unwrap();
    until_async("it is loaded", async || (line.defender.strategy().loaded() == 1).then_some(())).await;
    let third = line.send("run-3", 3, 510.0).await;
    line.settled(third.sequence).await;

    let points = line.points("power").await;
    let versions: Vec<&str> = points.iter().map(|point| &*point.strategy).collect();
    let current = line.defender.strategy().current();
    let (old, new) = (versions[0], &**current.version());
    assert_eq!(versions, [old, old, new]);
    assert_ne!(old, new);
    let ucl: Vec<_> = points.iter().map(|point| point.limits.unwrap().ucl).collect();
    assert_eq!(ucl, [Some(520.0), Some(520.0), Some(505.0)]);
    assert_eq!(*line.told.strategies.lock().unwrap(), [(old.to_owned(), new.to_owned())]);
    assert_eq!(counted(&line, "defender_strategies_loaded_total"), 1);
    assert_eq!(counted(&line, "defender_strategies_refused_total"), 1);
    assert_eq!(line.contexts().await[1].strategy, line.contexts().await[0].strategy);
}
