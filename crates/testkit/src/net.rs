//! Free ports, and the little HTTP that a health check needs.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Below the range from which the kernel takes ports for outgoing connections, so that none of those is in the way.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// `N` different loopback ports that are free now and were not given before by this process. Another process may take
/// one before it is used, so whoever uses them must be ready to try again with others.
pub(crate) fn free_ports<const N: usize>() -> io::Result<[u16; N]> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes that start together begin at different places.
    let start = std::process::id().wrapping_mul(2_654_435_761) % PORTS.len() as u32;
    let mut ports = [0; N];
    for port in &mut ports {
        let candidates = (0..PORTS.len()).map(|_| {
            let step = start + NEXT.fetch_add(1, Ordering::Relaxed);
            PORTS.start + (step % PORTS.len() as u32) as u16
        });
        let mut candidates = candidates.filter(|&candidate| is_free(candidate));
        *port = candidates.next().ok_or_else(|| io::Error::other("no port is free"))?;
    }
    Ok(ports)
}

/// A connection to a loopback port that neither connects nor reads for ever.
pub(crate) fn connect(port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
    connect_to(address)
}

pub(crate) fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let patience = Duration::from_secs(10);
    let stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// The body of `GET path`.
pub(crate) fn http_get(port: u16, path: &str) -> io::Result<String> {
    let mut stream = connect(port)?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// Whether a loopback port is free now.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
