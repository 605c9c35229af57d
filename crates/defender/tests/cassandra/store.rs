//! The chart store on a real Cassandra: the facts of every store, and what only a server can do.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use phalanx_defender::record::Chamber;
use phalanx_defender::store::cassandra::{Applied, Config, Replication, Tls};
use phalanx_defender::store::{Cassandra, ChartStore, StoreError};
use phalanx_testkit::cassandra::{Keyspace, Server};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// A store in a keyspace of its own. The session is the test's own too: each test has a runtime that ends with it.
struct Fixture {
    store: Arc<dyn ChartStore>,
    _keyspace: &'static Keyspace,
}

impl std::ops::Deref for Fixture {
    type Target = dyn ChartStore;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

fn one() -> Replication {
    "1".parse().unwrap()
}

fn of(keyspace: &Keyspace) -> Config {
    Config { keyspace: keyspace.name().to_owned(), ..Config::new(keyspace.hosts()) }
}

/// One keyspace with its tables for all facts: each has chambers of its own.
async fn fixture() -> Fixture {
    static SHARED: tokio::sync::OnceCell<Keyspace> = tokio::sync::OnceCell::const_new();
    let keyspace = SHARED
        .get_or_init(async || {
            let keyspace = tokio::task::spawn_blocking(Keyspace::create).await.unwrap().unwrap();
            let config = of(&keyspace);
            println!("measured: Cassandra {}", Cassandra::version(&config).await.unwrap());
            assert_eq!(Cassandra::apply(&config, None).await.unwrap(), Applied::Made);
            keyspace
        })
        .await;
    Fixture { store: Arc::new(Cassandra::connect(&of(keyspace)).await.unwrap()), _keyspace: keyspace }
}

phalanx_defender::chart_store_conformance!(fixture());

#[track_caller]
fn assert_refused<T>(result: Result<T, StoreError>, words: &[&str]) {
    let error = result.err().expect("refused");
    let text = error.to_string();
    assert!(matches!(error, StoreError::Refused(_)), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} in {text:?}");
    }
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_is_made_once_and_another_is_refused() {
    let keyspace = tokio::task::spawn_blocking(Keyspace::create).await.unwrap().unwrap();
    let config = of(&keyspace);
    let nowhere = Config { keyspace: "no_such_keyspace".into(), ..config.clone() };
    assert_refused(Cassandra::connect(&nowhere).await, &["no_such_keyspace", "phalanx schema apply"]);
    assert_refused(Cassandra::connect(&config).await, &["u_charts", "phalanx schema apply"]);

    assert_eq!(Cassandra::apply(&config, Some(&one())).await.unwrap(), Applied::Made);
    assert_eq!(Cassandra::apply(&config, None).await.unwrap(), Applied::AlreadyThere);
    Cassandra::connect(&config).await.unwrap().ping().await.unwrap();
    let three: Replication = "3".parse().unwrap();
    assert_refused(Cassandra::apply(&config, Some(&three)).await, &["replication", "3", "1"]);

    let alter = |statement: &str| run(&config, statement.replace("KS", keyspace.name()));
    alter("ALTER TABLE KS.u_charts ADD of_a_newer_version text").await;
    Cassandra::connect(&config).await.unwrap();
    alter("ALTER TABLE KS.u_charts DROP lcl").await;
    alter("ALTER TABLE KS.t_charts WITH default_time_to_live = 60").await;
    alter("DROP TABLE KS.contexts").await;
    alter("CREATE TABLE KS.contexts (tool_id text PRIMARY KEY, take text)").await;
    let words = [
        "u_charts.lcl is missing, should be double",
        "t_charts: default_time_to_live is 60, should be 604800",
        "contexts.take is text, should be bigint",
        "contexts.chamber_id is missing, should be text, partition key 2",
    ];
    assert_refused(Cassandra::connect(&config).await, &words);
    assert_refused(Cassandra::apply(&config, None).await, &words);
}

#[tokio::test(flavor = "multi_thread")]
async fn alarms_of_a_keyspace_made_before_they_were_kept_by_id_are_found_by_it() {
    let keyspace = tokio::task::spawn_blocking(Keyspace::create).await.unwrap().unwrap();
    let config = of(&keyspace);
    Cassandra::apply(&config, Some(&one())).await.unwrap();
    let store = Cassandra::connect(&config).await.unwrap();
    let alarms = phalanx_defender::store::conformance::alarms::some(&store).await;
    run(&config, format!("DROP TABLE {}.alarms_by_id", keyspace.name())).await;
    assert_refused(Cassandra::connect(&config).await, &["lacks alarms_by_id", "phalanx schema apply"]);
    assert_eq!(Cassandra::apply(&config, None).await.unwrap(), Applied::Made);
    let store = Cassandra::connect(&config).await.unwrap();
    for alarm in alarms {
        assert_eq!(store.alarm(&alarm.id).await.unwrap(), Some((alarm, None)));
    }
}

/// Any statement, by the driver itself.
async fn run(config: &Config, statement: String) {
    let builder = scylla::client::session_builder::SessionBuilder::new().known_node(&config.hosts);
    builder.build().await.unwrap().query_unpaged(statement, ()).await.unwrap();
}

/// Asks until it works, and says how long that took.
async fn works_again(store: &Cassandra) -> Duration {
    let start = Instant::now();
    while store.ping().await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(30), "it does not work again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    start.elapsed()
}

/// Everything that can be asked is unavailable, and soon.
async fn is_unavailable(store: &Cassandra, within: Duration) {
    let chamber = Chamber::new("etch-01", "A").unwrap();
    let (start, traces) = (Instant::now(), ["x".into()]);
    let (ping, read, write) =
        tokio::join!(store.ping(), store.newest_state(&chamber), store.put_t_chart(&chamber, "run", &traces));
    for error in [ping.unwrap_err(), read.map(|_| ()).unwrap_err(), write.unwrap_err()] {
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    }
    assert!(start.elapsed() < within, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_or_dies_is_unavailable_and_works_again_after() {
    let mut server = tokio::task::spawn_blocking(Server::start).await.unwrap().unwrap();
    let config = Config { request_timeout: Duration::from_secs(3), ..Config::new(server.host()) };
    Cassandra::apply(&config, Some(&one())).await.unwrap();
    let store = Cassandra::connect(&config).await.unwrap();
    let chamber = Chamber::new("etch-01", "A").unwrap();
    store.put_t_chart(&chamber, "before", &["kept".into()]).await.unwrap();

    server.pause();
    is_unavailable(&store, Duration::from_secs(10)).await;
    is_unavailable(&store, Duration::from_secs(10)).await;
    server.resume();
    let late = works_again(&store).await;
    println!("measured: after a pause Cassandra answers again in {} ms", late.as_millis());

    server.kill();
    is_unavailable(&store, Duration::from_secs(10)).await;
    is_unavailable(&store, Duration::from_secs(10)).await;
    let error = Cassandra::connect(&config).await.err().unwrap();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    let server =
        tokio::task::spawn_blocking(move || server.restart().map(|()| server)).await.unwrap().unwrap();
    let late = works_again(&store).await;
    println!("measured: after kill -9 and a restart Cassandra answers again in {} ms", late.as_millis());
    assert_eq!(store.t_chart(&chamber, "before").await.unwrap(), Some(vec!["kept".into()]));
    drop(server);
}

/// Certificates of an authority of our own: the server's, and a client's.
struct Papers {
    folder: tempfile::TempDir,
}

impl Papers {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "authority");
        let ca = authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        write("ca.pem", ca.pem());
        for name in ["server", "client"] {
            let key = KeyPair::generate().unwrap();
            let mut params =
                CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let certificate = params.signed_by(&key, &issuer).unwrap();
            write(&format!("{name}.pem"), certificate.pem());
            write(&format!("{name}.key"), key.serialize_pem());
            write(&format!("{name}.both.pem"), key.serialize_pem() + &certificate.pem() + &ca.pem());
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_wants_a_password_and_a_certificate_gets_them() {
    let (papers, strangers) = (Papers::new(), Papers::new());
    let settings = format!(
        "\nauthenticator: PasswordAuthenticator\nauthorizer: CassandraAuthorizer\nrole_manager: CassandraRoleManager\n\
         client_encryption_options:\n  enabled: true\n  optional: false\n  require_client_auth: true\n  \
         ssl_context_factory:\n    class_name: org.apache.cassandra.security.PEMBasedSslContextFactory\n  \
         keystore: {}\n  truststore: {}\n",
        papers.path("server.both.pem").display(),
        papers.path("ca.pem").display(),
    );
    let server = tokio::task::spawn_blocking(move || Server::start_with(&settings)).await.unwrap().unwrap();
    let plain = Config::new(server.host());
    let tls = |papers: &Papers, ca: &Papers| Tls {
        ca: ca.path("ca.pem"),
        certificate: Some((papers.path("client.pem"), papers.path("client.key"))),
    };
    let user = |name: &str, password: &str| Some((name.to_owned(), password.to_owned()));
    let good =
        Config { tls: Some(tls(&papers, &papers)), user: user("cassandra", "cassandra"), ..plain.clone() };
    // The first user is made after the server listens.
    let start = Instant::now();
    let mut made = Cassandra::apply(&good, Some(&one())).await;
    while made.is_err() && start.elapsed() < Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        made = Cassandra::apply(&good, Some(&one())).await;
    }
    assert_eq!(made.unwrap(), Applied::Made);
    Cassandra::connect(&good).await.unwrap().ping().await.unwrap();

    let wrong = Config { user: user("cassandra", "s3cret"), ..good.clone() };
    assert_refused(Cassandra::connect(&wrong).await, &["cassandra"]);
    assert_refused(Cassandra::connect(&Config { user: None, ..good.clone() }).await, &["uthentication"]);
    let distrusting = Config { tls: Some(tls(&papers, &strangers)), ..good.clone() };
    assert_refused(Cassandra::connect(&distrusting).await, &["certificate"]);
    // Whom the server does not know, or who does not speak TLS at all, is not let in.
    let stranger = Config { tls: Some(tls(&strangers, &papers)), ..good.clone() };
    assert!(Cassandra::connect(&stranger).await.is_err());
    let nobody = Tls { certificate: None, ..tls(&papers, &papers) };
    assert!(Cassandra::connect(&Config { tls: Some(nobody), ..good }).await.is_err());
    assert!(Cassandra::connect(&plain).await.is_err());
}
