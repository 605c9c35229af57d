//! Variables of a defender that works alone, each set to a value other than its default and seen from outside.

use crate::util::running::{command, csv, metric, start_as};
use phalanx_testkit::wait::until;

#[test]
fn the_cache_has_the_size_and_the_weights_have_the_age_they_are_given() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = command(folder.path());
    command.envs([
        ("CACHE_SIZE_MB", "7"),
        ("WEIGHT_CACHE_TTL_SECONDS", "0.5"),
        ("WEIGHT_UPDATE_INTERVAL_SECONDS", "1"),
        ("API_TOKEN", "my-own"),
    ]);
    let mut running = start_as(folder.path(), &mut command);
    assert!(!folder.path().join("api-token").exists(), "a token that was given is not written down");
    running.token = "my-own".to_owned();
    assert_eq!(running.get("/api/v1/cache/stats").1["limitBytes"], 7_000_000);

    // Whoever changes the list in the store itself says nothing: it is read again when it is too old.
    let charts = rusqlite::Connection::open(folder.path().join("charts.db")).unwrap();
    charts.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    charts.execute("INSERT INTO chamber_metadata VALUES ('etch-09', 'Z', 10, 1.0, 1.0, 10, 0)", []).unwrap();
    until("the new chamber is assigned", || {
        (metric(&running.url, "defender_assigned_chambers")? == 1.0).then_some(())
    });

    // What a run really has is what its chamber weighs after the next estimate: 5 SVIDs, one value a second, a minute.
    let path = "/api/v1/contexts?tool=etch-09&chamber=Z&context=run-1";
    assert_eq!(running.ask("POST", path, Some("my-own"), "text/csv", &csv(500)).0, 202);
    until("the weight is estimated", || {
        let (_, chambers) = running.get("/api/v1/chambers");
        let chamber = chambers["chambers"].as_array()?.iter().find(|one| one["chamberId"] == "Z")?.clone();
        (chamber["svidCount"] == 5 && chamber["weight"].as_u64()? > 10).then_some(())
    });
}

#[test]
fn a_run_that_takes_longer_than_it_may_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let running = start_as(folder.path(), command(folder.path()).env("PROCESS_TIMEOUT_SECONDS", "0.001"));
    let lines = (0..200_000).map(|n| format!("{},500,3,60,40,3\n", n * 1_000));
    let head = "time,RF_POWER,RF_REFLECTED,ESC_TEMP,PRESSURE,STEP\n".to_owned();
    let long: String = std::iter::once(head).chain(lines).collect();
    assert_eq!(running.send("run-1", &long).0, 202);
    let letters = until("a dead letter", || {
        let (_, letters) = running.get("/api/v1/dlq");
        letters["deadLetters"].as_array().filter(|letters| !letters.is_empty()).cloned()
    });
    let reason = letters[0]["reason"].as_str().unwrap();
    assert!(reason.contains("0.001") || reason.contains("1ms") || reason.contains("time"), "{reason}");
}
