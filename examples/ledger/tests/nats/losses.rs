//! A log that is removed, cursors that are lost, messages that are gone: each is noticed and said, none waited on.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::fleet::{Fleet, MACHINE, Member, Published, commits, connect, cursor_history, map, owners, runs};
use phalanx_cluster::backend::Backend as _;
use phalanx_ledger::settings;
use phalanx_testkit::nats::Server;
use phalanx_testkit::wait::until_async;

/// Asks JetStream for something that no worker ever does, in the words of the protocol.
fn api(server: &Server, subject: &str, body: &str) {
    let mut stream = TcpStream::connect(server.url().trim_start_matches("nats://")).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let request = format!(
        "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB $JS.API.{subject} answer {}\r\n{body}\r\nPING\r\n",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut said = String::new();
    while !said.contains("\"success\":true") {
        let mut line = String::new();
        assert!(answers.read_line(&mut line).unwrap() > 0, "{subject}: {said}");
        assert!(!line.contains("\"error\""), "{subject}: {line}");
        said.push_str(&line);
    }
}

fn said(dir: &Path, words: &str) -> bool {
    std::fs::read_dir(dir).unwrap().any(|file| {
        let path = file.unwrap().path();
        path.file_name().unwrap().to_string_lossy().starts_with("stderr-")
            && std::fs::read_to_string(path).unwrap().contains(words)
    })
}

fn ended(dir: &Path, ids: &[String]) -> bool {
    let runs = runs(dir);
    ids.iter().all(|id| runs.iter().any(|run| run.id == *id && run.end.is_some()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_broker_loses_is_noticed_and_said_and_the_work_goes_on() {
    let _machine = MACHINE.read().await;
    let server = Server::start().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fleet = Fleet {
        binary: env!("CARGO_BIN_EXE_ledger"),
        url: server.url(),
        dir: dir.path().to_owned(),
        parts: 20,
        size: 2,
        replicas: 1,
        history: 64,
        env: Vec::new(),
    };
    let mut members: Vec<Member> = ["anna", "berta"].iter().map(|name| fleet.start(name)).collect();
    let nats = connect(&server.url(), 1).await;
    until_async("a map for two", async || map(&nats).await.filter(|(_, map)| owners(map).len() == 2)).await;
    let published = Published::default();
    let round = async |seq: u64| -> Vec<String> {
        let log = nats.log(&settings(64).log).await.unwrap();
        for part in 0..20 {
            published.publish(&log, part, seq).await;
        }
        (0..20).map(|part| format!("{part}-{seq}")).collect()
    };
    let first = round(0).await;
    until_async("the first round", async || ended(dir.path(), &first).then_some(())).await;

    // The stream is deleted and made again.
    api(&server, "STREAM.DELETE.WORK", "");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let second = round(1).await;
    until_async("the second round", async || ended(dir.path(), &second).then_some(())).await;
    assert!(said(dir.path(), "is not the one that was read before"));

    // The cursors are lost: with nothing stored that says how far it came, everything in the log is done again.
    api(&server, "STREAM.DELETE.KV_phalanx-ledger-cursors", "");
    let third = round(2).await;
    until_async("the third round", async || ended(dir.path(), &third).then_some(())).await;
    until_async("it is said", async || {
        said(dir.path(), "KV_phalanx-ledger-cursors; it was removed").then_some(())
    })
    .await;
    until_async("every cursor is there again", async || {
        let cursors = cursor_history(&nats, 64).await;
        let committed = |part: &usize| {
            cursors
                .get(part)
                .is_some_and(|values| commits(values).iter().any(|c| c.context == format!("{part}-2")))
        };
        (0..20).all(|part| committed(&part)).then_some(())
    })
    .await;

    // The claims are lost: everybody forgets what it knew, and claims an id again.
    api(&server, "STREAM.DELETE.KV_phalanx-ledger-ids", "");
    until_async("it is said", async || {
        said(dir.path(), "the bucket of stable ids was made anew").then_some(())
    })
    .await;
    let more = round(10).await;
    until_async("a round afterwards", async || ended(dir.path(), &more).then_some(())).await;

    // Messages go before anybody has read them.
    for member in &mut members {
        assert!(member.process.terminate(Duration::from_secs(30)).is_some());
    }
    round(3).await;
    let log = nats.log(&settings(64).log).await.unwrap();
    let last = log.info().await.unwrap().last;
    api(&server, "STREAM.PURGE.WORK", &format!("{{\"seq\":{}}}", last + 1));
    let fifth = round(4).await;
    let _members: Vec<Member> = ["clara", "dora"].iter().map(|name| fleet.start(name)).collect();
    until_async("the fifth round", async || ended(dir.path(), &fifth).then_some(())).await;
    assert!(said(dir.path(), "were gone before they were read"));
    assert!(!ended(dir.path(), &["3-3".to_owned()]), "what was gone cannot have been processed");
    let bucket = nats.bucket(&settings(64).cursors).await.unwrap();
    assert_eq!(bucket.keys().await.unwrap().len(), 20);
}
