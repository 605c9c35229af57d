//! A real Cassandra: one for a test run, with a keyspace for each test.
//!
//! ```no_run
//! use phalanx_testkit::cassandra::{Keyspace, shared_hosts};
//!
//! let keyspace = Keyspace::create()?; // on the shared server; dropped with the value
//! println!("{} on {}", keyspace.name(), shared_hosts()?);
//! # Ok::<(), phalanx_testkit::provision::Error>(())
//! ```

mod cql;

use std::fs;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::nats::unique_name;
use crate::net::{connect_to, free_ports, is_free};
use crate::process::{Lifetime, Process, bound_to_parent, has_setpriv, succeeds};
use crate::provision::{self, CassandraHome, Error};
use crate::scratch::scratch_dir;

/// 3 s on a quiet machine, 8 s on a busy one; a start without the archive takes longer.
const PATIENCE: Duration = Duration::from_secs(90);
const PORT_TRIES: usize = 5;

/// The variable that names a running Cassandra: `host[:port]`, several separated by commas.
pub const HOSTS_VARIABLE: &str = "CASSANDRA_HOSTS";

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct Node {
    home: CassandraHome,
    dir: PathBuf,
    /// Where clients connect.
    pub cql_port: u16,
    storage_port: u16,
    /// Lines added to its settings.
    settings: String,
}

impl Node {
    /// A server with its data in `dir`, on ports that are free now.
    pub fn new(home: CassandraHome, dir: &Path) -> Result<Self, Error> {
        let [cql_port, storage_port] =
            free_ports().map_err(|e| Error::failed("looking for free ports", e))?;
        Ok(Self { home, dir: dir.to_owned(), cql_port, storage_port, settings: String::new() })
    }

    /// The same, on the port that clients try by themselves where that is free.
    pub fn on_usual_port(self) -> Self {
        Self { cql_port: if is_free(9042) { 9042 } else { self.cql_port }, ..self }
    }

    /// The address for clients.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.cql_port)
    }

    /// Starts it and waits until it answers CQL.
    pub fn launch(&self, lifetime: Lifetime) -> Result<Process, Error> {
        self.launch_with(lifetime, &format!("-XX:SharedArchiveFile={}", self.home.archive.display()))
    }

    fn launch_with(&self, lifetime: Lifetime, archive_option: &str) -> Result<Process, Error> {
        self.write_config().map_err(|e| Error::failed(format!("writing {}", self.dir.display()), e))?;
        let mut command = self.command(lifetime);
        command
            .arg(format!("@{}", self.dir.join("jvm.args").display()))
            .arg(archive_option)
            .arg(format!("-Dcassandra.config=file://{}", self.dir.join("cassandra.yaml").display()))
            .arg(format!("-Dcassandra.storagedir={}", self.dir.display()))
            .arg(format!("-Dlogback.configurationFile={}", self.dir.join("logback.xml").display()))
            .args(["-cp", &format!("{}/*", self.home.lib.display())])
            .arg("org.apache.cassandra.service.CassandraDaemon");
        let mut process = Process::start(command, lifetime, &self.log())
            .map_err(|e| Error::failed("starting Cassandra", e))?;
        self.wait(&mut process)?;
        Ok(process)
    }

    fn command(&self, lifetime: Lifetime) -> Command {
        let mut command = match lifetime {
            Lifetime::WithUs => bound_to_parent(&self.home.java),
            Lifetime::Detached => Command::new(&self.home.java),
        };
        if lifetime == Lifetime::WithUs && has_setpriv() && may_drop_memory_lock() {
            command = Command::new("setpriv");
            command.args(NO_MEMORY_LOCK).args(["--pdeathsig", "KILL", "--"]).arg(&self.home.java);
        }
        command
    }

    fn write_config(&self) -> std::io::Result<()> {
        fs::create_dir_all(&self.dir)?;
        let yaml = include_str!("cassandra.yaml")
            .replace("@DIR@", &self.dir.display().to_string())
            .replace("@CQL_PORT@", &self.cql_port.to_string())
            .replace("@STORAGE_PORT@", &self.storage_port.to_string())
            + &self.settings;
        fs::write(self.dir.join("cassandra.yaml"), yaml)?;
        fs::write(self.dir.join("jvm.args"), include_str!("jvm.args"))?;
        fs::write(self.dir.join("logback.xml"), include_str!("logback.xml"))
    }

    fn wait(&self, process: &mut Process) -> Result<(), Error> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.cql_port));
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !process.is_alive() {
                return Err(Error::failed(
                    "Cassandra",
                    format!("it ended at once: {}", self.last_log_lines()),
                ));
            }
            // Whoever asks for encryption does not answer us; that it listens must do, which it begins with last.
            let encrypted = self.settings.contains("client_encryption_options");
            let answers = if encrypted { connect_to(address).is_ok() } else { cql::answers(address) };
            if answers && process.is_alive() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        process.kill();
        Err(Error::failed("Cassandra", format!("no answer after {PATIENCE:?}: {}", self.last_log_lines())))
    }

    fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    fn last_log_lines(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join(" | ")
    }
}

/// As root Cassandra locks its memory, which costs 175 MiB; without the capability it does not.
const NO_MEMORY_LOCK: [&str; 2] = ["--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"];

fn may_drop_memory_lock() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| succeeds(Command::new("setpriv").args(NO_MEMORY_LOCK).args(["--", "true"])))
}

/// A throw-away server of one's own, for tests that kill and restart it.
#[derive(Debug)]
pub struct Server {
    node: Node,
    process: Process,
    // Dropped after the process that writes there.
    _dir: TempDir,
}

impl Server {
    /// Starts a server on free ports and waits until it answers CQL.
    pub fn start() -> Result<Self, Error> {
        Self::start_with("")
    }

    /// The same with some more lines of `cassandra.yaml`, such as who may connect and how.
    pub fn start_with(settings: &str) -> Result<Self, Error> {
        let home = provision::cassandra(&|_| {})?;
        let mut tries = 1;
        loop {
            let dir = scratch_dir().map_err(|e| Error::failed("making a folder for Cassandra", e))?;
            let node = Node { settings: settings.to_owned(), ..Node::new(home.clone(), dir.path())? };
            match node.launch(Lifetime::WithUs) {
                Ok(process) => return Ok(Self { node, process, _dir: dir }),
                Err(Error::Failed { reason, .. }) if tries < PORT_TRIES && reason.contains("in use") => {
                    tries += 1
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The address for clients.
    pub fn host(&self) -> String {
        self.node.host()
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM: it drains and ends.
    pub fn stop(&mut self) {
        self.process.terminate(PATIENCE);
    }

    /// SIGSTOP.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// Starts it again, on the same address and data.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.process.kill();
        self.process = self.node.launch(Lifetime::WithUs)?;
        Ok(())
    }
}

/// The Cassandra of this test run: the one `CASSANDRA_HOSTS` names, else one that this process starts and shares.
pub fn shared_hosts() -> Result<String, Error> {
    static SHARED: Mutex<Option<Server>> = Mutex::new(None);
    if let Some(hosts) = hosts_from_env() {
        return Ok(hosts);
    }
    let mut shared = SHARED.lock().map_err(|_| Error::failed("Cassandra", "an earlier start panicked"))?;
    if shared.is_none() {
        *shared = Some(Server::start()?);
    }
    Ok(shared.as_ref().map(Server::host).unwrap_or_default())
}

/// The hosts that `CASSANDRA_HOSTS` names, where it is set.
pub fn hosts_from_env() -> Option<String> {
    std::env::var(HOSTS_VARIABLE).ok().filter(|hosts| !hosts.is_empty())
}

/// A keyspace of one's own on the shared server, dropped with the value.
#[derive(Debug)]
pub struct Keyspace {
    name: String,
    hosts: String,
}

impl Keyspace {
    /// Creates a keyspace with a name nobody else has.
    pub fn create() -> Result<Self, Error> {
        Self::create_on(&shared_hosts()?)
    }

    /// Creates it on the server that `hosts` names.
    pub fn create_on(hosts: &str) -> Result<Self, Error> {
        let keyspace = Self { name: unique_name("test").replace('-', "_"), hosts: hosts.to_owned() };
        keyspace.run(&format!(
            "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
            keyspace.name
        ))?;
        Ok(keyspace)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server it stands on, as `CASSANDRA_HOSTS` would name it.
    pub fn hosts(&self) -> &str {
        &self.hosts
    }

    fn run(&self, statement: &str) -> Result<(), Error> {
        let first = self.hosts.split(',').next().unwrap_or_default().trim();
        let with_port = if first.contains(':') { first.to_owned() } else { format!("{first}:9042") };
        let address =
            with_port.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(|| {
                Error::failed(HOSTS_VARIABLE, format!("{first:?} is not a host this machine can find"))
            })?;
        cql::run(address, statement).map_err(|e| Error::failed(format!("CQL on {address}"), e))
    }
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        // A server that is gone has no keyspace to drop.
        let _ = self.run(&format!("DROP KEYSPACE IF EXISTS {}", self.name));
    }
}

/// Writes the start-up archive: the server is started, answers, and dumps its classes when it ends.
pub(crate) fn make_archive(home: &CassandraHome) -> Result<(), Error> {
    let dir = scratch_dir().map_err(|e| Error::failed("making a folder for Cassandra", e))?;
    let node = Node::new(home.clone(), dir.path())?;
    let partial = home.archive.with_extension("partial");
    let mut process =
        node.launch_with(Lifetime::WithUs, &format!("-XX:ArchiveClassesAtExit={}", partial.display()))?;
    process.terminate(PATIENCE);
    fs::rename(&partial, &home.archive).map_err(|e| Error::failed("making the start-up archive", e))
}
