//! A link between two processes that can be cut, each direction on its own.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From whoever connects to whoever is connected to.
    There,
    /// And back.
    Back,
}

/// A loopback port that leads to another one. What is cut is held back, not lost: once mended it arrives late, as a network
/// does it that sends again what nobody confirmed. Dropped, it ends with all its connections.
///
/// ```
/// use std::io::{Read as _, Write as _};
/// use std::net::{TcpListener, TcpStream};
/// use phalanx_testkit::proxy::{Direction, Proxy};
///
/// let server = TcpListener::bind("127.0.0.1:0").unwrap();
/// let proxy = Proxy::new().unwrap();
/// proxy.lead_to(server.local_addr().unwrap());
/// proxy.cut(Direction::There);
/// let mut client = TcpStream::connect(proxy.address()).unwrap();
/// let (mut served, _) = server.accept().unwrap();
/// client.write_all(b"late").unwrap();
/// served.write_all(b"soon").unwrap();
/// let mut word = [0; 4];
/// client.read_exact(&mut word).unwrap();
/// assert_eq!(&word, b"soon", "the other direction is whole");
/// proxy.mend();
/// served.read_exact(&mut word).unwrap();
/// assert_eq!(&word, b"late");
/// ```
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    target: Option<SocketAddr>,
    is_cut: [bool; 2],
    is_over: bool,
    open: Vec<TcpStream>,
}

impl Proxy {
    /// A new port. Whoever connects waits until it leads somewhere.
    pub fn new() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepting = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if accepting.lock().is_over {
                    return;
                }
                let shared = accepting.clone();
                thread::spawn(move || shared.connect(&client));
            }
        });
        Ok(Self { address, shared })
    }

    /// Where to connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it leads from now on. Connections that led elsewhere end.
    pub fn lead_to(&self, target: SocketAddr) {
        let mut state = self.shared.lock();
        state.target = Some(target);
        state.close_all();
        self.shared.changed.notify_all();
    }

    /// Lets nothing through in that direction.
    pub fn cut(&self, direction: Direction) {
        self.shared.lock().is_cut[direction as usize] = true;
    }

    /// Lets nothing through at all.
    pub fn cut_both(&self) {
        self.shared.lock().is_cut = [true, true];
    }

    /// Lets everything through again, what was held back first.
    pub fn mend(&self) {
        self.shared.lock().is_cut = [false, false];
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_over = true;
        state.close_all();
        self.shared.changed.notify_all();
        drop(state);
        // Wakes whoever accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn close_all(&mut self) {
        for stream in self.open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, condition: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.lock();
        self.changed
            .wait_while(state, |state| !state.is_over && condition(state))
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(self: &Arc<Self>, client: &TcpStream) {
        let target = self.wait_while(|state| state.target.is_none()).target;
        // Whoever connects to nobody is told so by the end of the connection.
        let Some(Ok(server)) = target.map(TcpStream::connect) else { return };
        let streams = [client.try_clone(), client.try_clone(), server.try_clone(), server.try_clone()];
        let [Ok(from_client), Ok(to_client), Ok(from_server), Ok(to_server)] = streams else { return };
        {
            let mut state = self.lock();
            if state.is_over || state.target != target {
                return;
            }
            let clones = [client.try_clone(), server.try_clone()];
            state.open.extend(clones.into_iter().flatten());
        }
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let there = self.clone();
        thread::spawn(move || there.pump(Direction::There, from_client, to_server));
        self.pump(Direction::Back, from_server, to_client);
    }

    fn pump(&self, direction: Direction, mut from: TcpStream, mut to: TcpStream) {
        let mut bytes = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            drop(self.wait_while(|state| state.is_cut[direction as usize]));
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // The end of a connection is news too, which a cut holds back.
        drop(self.wait_while(|state| state.is_cut[direction as usize]));
        let _ = to.shutdown(Shutdown::Write);
    }
}
