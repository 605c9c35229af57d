//! The Cassandra that tests get is a real one, and keeps what it acknowledged.

use phalanx_testkit::cassandra::{Keyspace, Server};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;

async fn connect(hosts: &str) -> Session {
    let hosts: Vec<&str> = hosts.split(',').collect();
    SessionBuilder::new().known_nodes(hosts).disallow_shard_aware_port(true).build().await.expect("a session")
}

async fn names(session: &Session, query: String) -> Vec<String> {
    let rows = session.query_unpaged(query, ()).await.expect("an answer").into_rows_result().expect("rows");
    rows.rows::<(String,)>().expect("one text column").map(|row| row.expect("a row").0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_survive_kill_9_and_restart() {
    let mut server = Server::start().unwrap();
    let keyspace = Keyspace::create_on(&server.host()).unwrap();
    let table = format!("{}.survivors", keyspace.name());
    {
        let session = connect(&server.host()).await;
        session.query_unpaged(format!("CREATE TABLE {table} (name text PRIMARY KEY)"), ()).await.unwrap();
        session.query_unpaged(format!("INSERT INTO {table} (name) VALUES ('one')"), ()).await.unwrap();
    }
    server.kill();
    server.restart().unwrap();
    let session = connect(&server.host()).await;
    assert_eq!(names(&session, format!("SELECT name FROM {table}")).await, ["one"]);
    let version = names(&session, "SELECT release_version FROM system.local".to_owned()).await;
    println!("measured: Cassandra {} kept its rows across kill -9", version[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyspace_lives_as_long_as_its_test() {
    let keyspace = Keyspace::create().unwrap();
    let session = connect(keyspace.hosts()).await;
    let query = format!(
        "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = '{}'",
        keyspace.name()
    );
    assert_eq!(names(&session, query.clone()).await, [keyspace.name()]);
    drop(keyspace);
    assert!(names(&session, query).await.is_empty());
}

#[test]
fn two_tests_get_two_keyspaces() {
    let (one, two) = (Keyspace::create().unwrap(), Keyspace::create().unwrap());
    assert_ne!(one.name(), two.name());
}

#[test]
fn a_statement_that_fails_says_why() {
    let error = Keyspace::create_on("127.0.0.1:1").unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:1"), "{error}");
}
