//! Child processes that never outlive the run that started them.
//!
//! A server started by a test must be gone when the test process is, however that ends: a panic (Drop), ctrl-c or
//! kill -9 (the kernel's parent-death signal, set by `setpriv` before it becomes the server). The kernel sends that
//! signal when the *thread* that forked ends, not the process, so one thread that never ends does all the forking.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::until;

/// How long a server may live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// No longer than this process.
    WithUs,
    /// Until somebody stops it: it has a process group of its own, so that ctrl-c here does not reach it.
    Detached,
}

/// A running child, killed when dropped unless it is detached.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lifetime: Lifetime,
}

impl Process {
    /// Starts `command` with its output appended to the file `log`.
    pub fn start(mut command: Command, lifetime: Lifetime, log: &Path) -> io::Result<Self> {
        let out = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = match lifetime {
            Lifetime::WithUs => fork_on_lasting_thread(command)?,
            Lifetime::Detached => command.process_group(0).spawn()?,
        };
        Ok(Self { child, lifetime })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self) {
        // An error means that it has ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// SIGTERM, and waits up to `patience` before it kills.
    pub fn terminate(&mut self, patience: Duration) -> Option<ExitStatus> {
        signal(self.id(), Signal::TERM);
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        self.kill();
        None
    }

    /// Stops the process by SIGSTOP until [`resume`](Process::resume), and waits until none of its threads runs.
    pub fn pause(&self) {
        signal(self.id(), Signal::STOP);
        // The kernel stops one thread after the other: without the wait, a server may still answer a request.
        until("all threads are stopped", || is_stopped(self.id()).then_some(()));
    }

    /// SIGCONT.
    pub fn resume(&self) {
        signal(self.id(), Signal::CONT);
    }
}

/// Returns whether every thread of a process is stopped, or has ended.
fn is_stopped(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name of the program, in parentheses, may contain spaces; the state follows it.
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 't', 'Z', 'X']))
    })
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.lifetime == Lifetime::WithUs {
            self.kill();
        }
    }
}

/// Sends a signal to a process, if it is still there.
pub fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// `program`, run so that the kernel kills it when the thread that forks it ends. Where there is no `setpriv`, only
/// Drop cleans up.
pub fn bound_to_parent(program: &Path) -> Command {
    if !has_setpriv() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Whether `setpriv` (util-linux) can set a parent-death signal here.
pub fn has_setpriv() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| succeeds(Command::new("setpriv").args(["--pdeathsig", "KILL", "--", "true"])))
}

/// Runs a command for its exit code alone.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

type ForkRequest = (Command, Sender<io::Result<Child>>);

fn fork_on_lasting_thread(command: Command) -> io::Result<Child> {
    static FORKER: OnceLock<Mutex<Sender<ForkRequest>>> = OnceLock::new();
    let forker = FORKER.get_or_init(|| {
        let (requests, inbox) = channel::<ForkRequest>();
        thread::spawn(move || {
            for (mut command, answer) in inbox {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(requests)
    });
    let (answer, result) = channel();
    let gone = || io::Error::other("the forking thread is gone");
    forker.lock().map_err(|_| gone())?.send((command, answer)).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}
