//! A defender as an application, embedded in another program.

use std::sync::{Arc, Mutex};

use crate::fleet::line::STRATEGY;
use crate::fleet::options;
use phalanx_defender::app::{self, AppError, ChartLocation, Config, Connections, Coordination, DataFolder};
use phalanx_service::Shutdown;
use phalanx_testkit::wait::until_async;
use tempfile::TempDir;

fn config(folder: &TempDir) -> (Config, Arc<Mutex<Vec<String>>>) {
    let (lines, data) = (Arc::<Mutex<Vec<String>>>::default(), folder.path().join("data"));
    let config = Config {
        connections: Connections {
            coordination: Coordination::Embedded(data.clone()),
            charts: ChartLocation::Sqlite(data),
        },
        options: options(1),
        http_addr: "127.0.0.1:0".to_owned(),
        token: None,
        strategy_file: folder.path().join("strategy.toml"),
        log: Arc::new({
            let lines = lines.clone();
            move |line| lines.lock().unwrap().push(line.to_owned())
        }),
    };
    (config, lines)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_serves_until_it_is_told_to_stop_and_releases_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("strategy.toml"), STRATEGY).unwrap();
    let data = DataFolder::at(&folder.path().join("data"));
    for _ in 0..2 {
        let (config, lines) = config(&folder);
        let shutdown = Shutdown::default();
        let running = tokio::spawn(app::run(config, shutdown.clone()));
        let url = until_async("it has its folder", async || data.address()).await;
        assert!(data.token().is_some(), "an embedded defender creates a write token");
        let live = tokio::task::spawn_blocking(move || ureq::get(format!("{url}/health/live")).call());
        assert_eq!(live.await.unwrap().unwrap().status(), 200);
        shutdown.request();
        running.await.unwrap().unwrap();
        assert_eq!(data.address(), None);
        let lines = lines.lock().unwrap();
        assert!(lines[0].starts_with("listening on http://127.0.0.1:"), "{lines:?}");
        assert_eq!(lines[1..], ["leaving"]);
    }
}

#[tokio::test]
async fn a_strategy_that_cannot_be_used_is_an_error_before_anything_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let error = app::run(config(&folder).0, Shutdown::default()).await.unwrap_err();
    assert!(matches!(&error, AppError::ReadStrategy { .. }), "{error}");
    std::fs::write(folder.path().join("strategy.toml"), "[[group]]\ntools = 7\n").unwrap();
    let error = app::run(config(&folder).0, Shutdown::default()).await.unwrap_err();
    assert!(matches!(&error, AppError::Strategy { .. }), "{error}");
    assert!(!folder.path().join("data").exists());
}
