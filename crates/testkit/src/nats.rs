//! Throw-away nats-servers: one node, or a cluster of three.
//!
//! ```no_run
//! use phalanx_testkit::nats::Server;
//!
//! let mut server = Server::start()?;
//! println!("{}", server.url());
//! server.kill();
//! server.restart()?; // the same address, the same data
//! # Ok::<(), phalanx_testkit::provision::Error>(())
//! ```

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::net::{free_ports, http_get, is_free};
use crate::process::{Lifetime, Process, bound_to_parent};
use crate::provision::{self, Error};
use crate::scratch::scratch_dir;

/// A server answers within milliseconds; a cluster needs an election. A busy machine gets time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Another process may take a port between our looking and the server's binding.
const PORT_TRIES: usize = 5;

/// The three addresses of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Where clients connect.
    pub client: u16,
    /// Where the server tells about itself.
    pub monitor: u16,
    /// Where the nodes of a cluster meet.
    pub route: u16,
}

impl Ports {
    /// Ports that are free now.
    pub fn free() -> Result<Self, Error> {
        let [client, monitor, route] =
            free_ports().map_err(|e| Error::failed("looking for free ports", e))?;
        Ok(Self { client, monitor, route })
    }

    /// Ports that are free now, with the one that clients try by themselves where it is among them.
    pub fn usual() -> Result<Self, Error> {
        let ports = Self::free()?;
        Ok(Self { client: if is_free(4222) { 4222 } else { ports.client }, ..ports })
    }
}

/// How a node is set up.
#[derive(Clone, Debug)]
pub struct Node {
    /// The binary to run.
    pub binary: PathBuf,
    /// Where its configuration, log and data live.
    pub dir: PathBuf,
    /// Unique, so that a stranger on the same port is not taken for this server.
    pub name: String,
    /// Its addresses.
    pub ports: Ports,
    /// The route ports of all nodes of its cluster; empty for a single node.
    pub routes: Vec<u16>,
    /// More lines of nats-server configuration: users, TLS, limits.
    pub extra: String,
}

impl Node {
    /// Writes the configuration and starts the server. It may not be ready yet: see [`Node::wait_until_ready`].
    pub fn launch(&self, lifetime: Lifetime) -> Result<Process, Error> {
        let config = self.dir.join("nats.conf");
        fs::create_dir_all(&self.dir)
            .and_then(|()| fs::write(&config, self.config()))
            .map_err(|e| Error::failed(format!("writing {}", config.display()), e))?;
        let mut command = match lifetime {
            Lifetime::WithUs => bound_to_parent(&self.binary),
            Lifetime::Detached => Command::new(&self.binary),
        };
        command.arg("--config").arg(&config);
        Process::start(command, lifetime, &self.log())
            .map_err(|e| Error::failed(format!("starting {}", self.binary.display()), e))
    }

    /// Waits until the server says of itself that it is the one we started and that JetStream works.
    pub fn wait_until_ready(&self, process: &mut Process) -> Result<(), Error> {
        self.wait_until(process, "/healthz")
    }

    /// Waits until the server is the one we started and answers well at that path of its monitor.
    fn wait_until(&self, process: &mut Process, path: &str) -> Result<(), Error> {
        let named = format!("\"server_name\": \"{}\"", self.name);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !process.is_alive() {
                return Err(Error::failed(
                    "nats-server",
                    format!("it ended at once: {}", self.last_log_line()),
                ));
            }
            let ours = || http_get(self.ports.monitor, "/varz").is_ok_and(|answer| answer.contains(&named));
            let ok =
                || http_get(self.ports.monitor, path).is_ok_and(|a| path == "/varz" || a.contains("\"ok\""));
            if ours() && ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        process.kill();
        Err(Error::failed("nats-server", format!("not ready after {PATIENCE:?}: {}", self.last_log_line())))
    }

    /// The address for clients.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.ports.client)
    }

    fn config(&self) -> String {
        let Self { name, dir, ports: Ports { client, monitor, route }, .. } = self;
        let mut config = format!(
            "server_name: {name}\nlisten: \"127.0.0.1:{client}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
             jetstream {{ store_dir: {:?}, max_mem: 256MB, max_file: 4GB }}\n",
            dir.join("data")
        );
        if !self.routes.is_empty() {
            let routes: Vec<_> =
                self.routes.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
            let _ = writeln!(
                config,
                "cluster {{ name: dev, listen: \"127.0.0.1:{route}\", routes: [{}] }}",
                routes.join(", ")
            );
        }
        config.push_str(&self.extra);
        config
    }

    fn log(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    fn last_log_line(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().last().unwrap_or("its log is empty").to_owned()
    }
}

/// A throw-away server. Dropping it kills it and removes its data.
#[derive(Debug)]
pub struct Server {
    node: Node,
    process: Process,
    // Dropped after the process that writes there.
    _dir: Option<TempDir>,
}

impl Server {
    /// Starts a single node on a free port and waits until JetStream works.
    pub fn start() -> Result<Self, Error> {
        Self::start_with("")
    }

    /// As [`start`](Server::start), with more lines of configuration.
    pub fn start_with(extra: &str) -> Result<Self, Error> {
        let binary = provision::nats(&|_| {})?;
        let dir = scratch()?;
        with_free_ports(|| {
            let node = Node {
                binary: binary.clone(),
                dir: dir.path().join("n1"),
                name: unique_name("test"),
                ports: Ports::free()?,
                routes: Vec::new(),
                extra: extra.to_owned(),
            };
            let mut process = node.launch(Lifetime::WithUs)?;
            node.wait_until_ready(&mut process)?;
            Ok((node, process))
        })
        .map(|(node, process)| Self { node, process, _dir: Some(dir) })
    }

    /// The address for clients.
    pub fn url(&self) -> String {
        self.node.url()
    }

    /// The server's name, as it tells its clients.
    pub fn name(&self) -> &str {
        &self.node.name
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What the server counts, as JSON.
    pub fn varz(&self) -> std::io::Result<String> {
        http_get(self.node.ports.monitor, "/varz")
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&mut self) {
        self.process.terminate(PATIENCE);
    }

    /// SIGSTOP: the server hangs with its connections open.
    pub fn pause(&self) {
        self.process.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.process.resume();
    }

    /// Starts it again, on the same address and data, and waits until it is healthy.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.process.kill();
        self.process = self.node.launch(Lifetime::WithUs)?;
        self.node.wait_until_ready(&mut self.process)
    }
}

/// Three nodes that form a JetStream cluster.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
    _dir: TempDir,
}

impl Cluster {
    /// Starts three nodes and waits until each says that the cluster works.
    pub fn start() -> Result<Self, Error> {
        Self::start_with("")
    }

    /// As [`start`](Cluster::start), with more lines of configuration for each node.
    pub fn start_with(extra: &str) -> Result<Self, Error> {
        let binary = provision::nats(&|_| {})?;
        let dir = scratch()?;
        let nodes = with_free_ports(|| {
            let nodes = {
                // A failed attempt leaves data that belongs to nodes of other names.
                let base = unique_name("test");
                cluster_nodes(&binary, &dir.path().join(&base), &base, extra)?
            };
            launch_cluster(&nodes, Lifetime::WithUs).map(|processes| nodes.into_iter().zip(processes))
        })?
        .map(|(node, process)| Server { node, process, _dir: None })
        .collect();
        Ok(Self { nodes, _dir: dir })
    }

    /// The addresses of all nodes, separated by commas.
    pub fn urls(&self) -> String {
        self.nodes.iter().map(Server::url).collect::<Vec<_>>().join(",")
    }

    /// A node, from 0.
    pub fn node(&mut self, index: usize) -> &mut Server {
        &mut self.nodes[index]
    }

    /// The node of that name, such as the leader that a stream names.
    pub fn named(&mut self, name: &str) -> Option<&mut Server> {
        self.nodes.iter_mut().find(|node| node.name() == name)
    }
}

/// Three nodes with free ports under `dir`, named after `base`. Data found there belongs to the nodes by name, so a
/// cluster that is to find its data again keeps its base.
pub fn cluster_nodes(binary: &Path, dir: &Path, base: &str, extra: &str) -> Result<Vec<Node>, Error> {
    let ports = [Ports::free()?, Ports::free()?, Ports::free()?];
    let routes: Vec<u16> = ports.iter().map(|ports| ports.route).collect();
    Ok((1..=3)
        .zip(ports)
        .map(|(n, ports)| Node {
            binary: binary.to_owned(),
            dir: dir.join(format!("n{n}")),
            name: format!("{base}-n{n}"),
            ports,
            routes: routes.clone(),
            extra: extra.to_owned(),
        })
        .collect())
}

/// Launches the nodes together: none is healthy before the others are there.
pub fn launch_cluster(nodes: &[Node], lifetime: Lifetime) -> Result<Vec<Process>, Error> {
    let mut processes = nodes.iter().map(|node| node.launch(lifetime)).collect::<Result<Vec<_>, _>>()?;
    // A node that ended at once is the reason why the others wait: all are asked for their names first.
    let mut all = |path: &str| {
        nodes.iter().zip(&mut processes).try_for_each(|(node, process)| node.wait_until(process, path))
    };
    let ready = all("/varz").and_then(|()| all("/healthz"));
    if ready.is_err() {
        processes.iter_mut().for_each(Process::kill);
    }
    ready.map(|()| processes)
}

/// Unique on this machine: no two servers of any run answer to the same name.
pub fn unique_name(base: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{base}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn scratch() -> Result<TempDir, Error> {
    scratch_dir().map_err(|e| Error::failed("making a folder for nats-server", e))
}

fn with_free_ports<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut result = attempt();
    for _ in 1..PORT_TRIES {
        match &result {
            Err(Error::Failed { reason, .. }) if reason.contains("address already in use") => {
                result = attempt()
            }
            _ => break,
        }
    }
    result
}
