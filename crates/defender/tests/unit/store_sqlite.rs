//! The chart store in an SQLite file: the facts of every store, and what only a file can do.

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::Sequence;
use phalanx_defender::record::{Chamber, Context, Flags, Mark, Outcome, Results, StateRow, UChart};
use phalanx_defender::store::{ChartStore, Sqlite, StoreError};
use rusqlite::Connection;
use tempfile::TempDir;

struct Fixture {
    store: Sqlite,
    folder: TempDir,
}

impl Deref for Fixture {
    type Target = Sqlite;

    fn deref(&self) -> &Sqlite {
        &self.store
    }
}

impl Fixture {
    fn path(&self) -> PathBuf {
        self.folder.path().join("charts.db")
    }
}

async fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    Fixture { store: Sqlite::open(&folder.path().join("charts.db")).unwrap(), folder }
}

phalanx_defender::chart_store_conformance!(fixture());

pub(crate) fn results(sequence: u64, stamp: Timestamp) -> Results {
    let chamber = Chamber::new("etch-01", "A").unwrap();
    let mark = Mark {
        position: Position { generation: 1, sequence: Sequence(sequence) },
        take: 1,
        stamp: stamp.as_microsecond().try_into().unwrap(),
    };
    let context = format!("run-{sequence}");
    let point = UChart {
        indicator: "power".into(),
        timestamp: stamp,
        context: context.as_str().into(),
        value: Some(1.0),
        limits: None,
        n: 1,
        flags: Flags::LEARNING,
        strategy: "v1".into(),
    };
    Results {
        chamber,
        mark,
        charts: vec![point],
        alarms: Vec::new(),
        context: Context {
            position: mark.position,
            take: 1,
            context: context.as_str().into(),
            timestamp: stamp,
            strategy: "v1".into(),
            outcome: Outcome::Processed,
        },
        state: StateRow {
            mark,
            predecessor: None,
            context: "".into(),
            stream: 1,
            history: Vec::new(),
            state: b"state".to_vec(),
        },
    }
}

#[tokio::test]
async fn points_and_traces_expire_and_the_chart_state_stays() {
    let fixture = fixture().await;
    let (now, day) = (Timestamp::now(), SignedDuration::from_hours(24));
    let (old, new) = (results(1, now), results(2, now + day));
    let chamber = old.chamber.clone();
    for written in [&old, &new] {
        fixture.write(written).await.unwrap();
    }
    fixture.put_t_chart(&chamber, "run-1", &["x".into()]).await.unwrap();
    let counts = async || {
        let points = fixture.u_charts(&chamber, "power", None, 9).await.unwrap().len();
        let contexts = fixture.contexts(&chamber, None, 9).await.unwrap().len();
        (points, contexts, fixture.t_chart(&chamber, "run-1").await.unwrap().is_some())
    };
    assert_eq!(fixture.expire(now + day * 6).await.unwrap(), 0);
    assert_eq!(counts().await, (2, 2, true));
    assert_eq!(fixture.expire(now + day * 7 + SignedDuration::from_mins(1)).await.unwrap(), 1);
    assert_eq!(counts().await, (2, 2, false));
    let after_30 = now + day * 30 + SignedDuration::from_mins(1);
    assert_eq!(fixture.expire(after_30).await.unwrap(), 2);
    assert_eq!(counts().await, (1, 1, false));
    assert_eq!(fixture.expire(after_30).await.unwrap(), 0);
    assert!(fixture.state_at(&chamber, old.mark.position).await.unwrap().is_some());
}

#[tokio::test]
async fn a_heap_of_old_rows_leaves_in_small_steps() {
    let fixture = fixture().await;
    let now = Timestamp::now();
    let mut written = results(1, now);
    written.charts = (0..5000)
        .map(|i| UChart { context: format!("run-{i}").into(), ..written.charts[0].clone() })
        .collect();
    fixture.write(&written).await.unwrap();
    let mut steps = Vec::new();
    while steps.last() != Some(&0) {
        steps.push(fixture.expire(now + SignedDuration::from_hours(24 * 31)).await.unwrap());
    }
    assert_eq!(steps, [2001, 2000, 1000, 0]);
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_opening_again() {
    let fixture = fixture().await;
    let written = results(1, Timestamp::now());
    fixture.write(&written).await.unwrap();
    // Another handle sees it while the first is open: readers do not wait for a writer.
    let beside = Sqlite::open(&fixture.path()).unwrap();
    assert_eq!(beside.newest_state(&written.chamber).await.unwrap(), Some(written.state.clone()));
    fixture.close().await;
    let error = fixture.write(&written).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(text) if text.contains("closed")), "{error}");
    let again = Sqlite::open(&fixture.path()).unwrap();
    assert_eq!(again.newest_state(&written.chamber).await.unwrap(), Some(written.state));
}

#[tokio::test]
async fn a_file_that_somebody_locks_is_unavailable_and_works_again_after() {
    let fixture = fixture().await;
    let other = Connection::open(fixture.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let written = results(1, Timestamp::now());
    let error = fixture.write(&written).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(text) if text.contains("locked")), "{error}");
    // Reading goes on meanwhile.
    assert!(fixture.newest_state(&written.chamber).await.unwrap().is_none());
    other.execute_batch("COMMIT").unwrap();
    fixture.write(&written).await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_no_fault_of_the_message() {
    let fixture = fixture().await;
    let written = results(1, Timestamp::now());
    fixture.write(&written).await.unwrap();
    fixture.close().await;
    let find = "SELECT rootpage FROM sqlite_schema WHERE name = 'chart_state'";
    let page =
        Connection::open(fixture.path()).unwrap().query_row(find, [], |row| row.get::<_, i64>(0)).unwrap()
            as usize;
    let mut bytes = fs::read(fixture.path()).unwrap();
    bytes[(page - 1) * 4096..page * 4096].fill(0xa5);
    fs::write(fixture.path(), &bytes).unwrap();
    let again = Sqlite::open(&fixture.path()).unwrap();
    let error = again.newest_state(&written.chamber).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(text) if text.contains("malformed")), "{error}");
    let error = again.write(&written).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    drop(again);
    bytes[4096..].fill(0xa5);
    fs::write(fixture.path(), bytes).unwrap();
    refused(&fixture.path(), &["damaged", "copy"]);
}

#[track_caller]
fn refused(path: &std::path::Path, words: &[&str]) {
    let before = fs::read(path).ok();
    let error = Sqlite::open(path).err().expect("refused");
    let text = error.to_string();
    assert!(matches!(error, StoreError::Refused(_)), "{text}");
    for word in words.iter().chain([&path.file_name().unwrap().to_str().unwrap()]) {
        assert!(text.contains(word), "{word} in {text}");
    }
    assert!(fs::read(path).ok() == before, "it was changed");
}

#[test]
fn a_file_that_is_not_ours_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("text.db"), "not a database at all, but longer than a header of one would be ".repeat(9))
        .unwrap();
    refused(&path("text.db"), &["not an SQLite file"]);
    Connection::open(path("other.db")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    refused(&path("other.db"), &["another program"]);
    drop(Sqlite::open(&path("newer.db")).unwrap());
    Connection::open(path("newer.db")).unwrap().pragma_update(None, "user_version", 99).unwrap();
    refused(&path("newer.db"), &["version 99", "version 1"]);
    refused(&path("no-such-folder/charts.db"), &["unable to open"]);
    refused(folder.path(), &["unable to open"]);
}

#[tokio::test]
async fn one_bad_row_does_not_harm_those_that_share_its_transaction() {
    let fixture = fixture().await;
    let now = Timestamp::now();
    // Refused by SQLite itself: nothing may be NULL there.
    Connection::open(fixture.path())
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER no_bad BEFORE INSERT ON contexts WHEN new.context_id = 'run-13'
             BEGIN SELECT RAISE(ABORT, 'thirteen is refused'); END",
        )
        .unwrap();
    let all: Vec<Results> = (1..=40).map(|sequence| results(sequence, now)).collect();
    let outcomes = futures_util::future::join_all(all.iter().map(|results| fixture.write(results))).await;
    for (results, outcome) in all.iter().zip(outcomes) {
        match results.mark.position.sequence.0 {
            13 => assert!(matches!(outcome, Err(StoreError::Refused(text)) if text.contains("thirteen"))),
            _ => outcome.unwrap(),
        }
    }
    assert_eq!(fixture.contexts(&all[0].chamber, None, 99).await.unwrap().len(), 39);
}
