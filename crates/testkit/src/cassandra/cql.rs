//! As much of the CQL protocol (version 4, no authentication) as making and dropping a keyspace takes. Tests of
//! Phalanx itself use a real driver.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::net::connect_to;

const STARTUP: u8 = 0x01;
const OPTIONS: u8 = 0x05;
const QUERY: u8 = 0x07;
const ERROR: u8 = 0x00;
const SUPPORTED: u8 = 0x06;

/// Whether something that speaks CQL listens there.
pub(super) fn answers(address: SocketAddr) -> bool {
    let ask = || call(&mut connect_to(address)?, OPTIONS, &[]);
    ask().is_ok_and(|(opcode, _)| opcode == SUPPORTED)
}

/// Runs one statement without parameters.
pub(super) fn run(address: SocketAddr, statement: &str) -> io::Result<()> {
    let mut stream = connect_to(address)?;
    let mut startup = vec![0, 1];
    for word in ["CQL_VERSION", "3.0.0"] {
        startup.extend((word.len() as u16).to_be_bytes());
        startup.extend(word.as_bytes());
    }
    checked(call(&mut stream, STARTUP, &startup)?)?;
    let mut query = (statement.len() as u32).to_be_bytes().to_vec();
    query.extend(statement.as_bytes());
    // Consistency ONE, no flags.
    query.extend([0, 1, 0]);
    checked(call(&mut stream, QUERY, &query)?)
}

fn checked((opcode, body): (u8, Vec<u8>)) -> io::Result<()> {
    if opcode != ERROR {
        return Ok(());
    }
    // An error is a code (4 bytes) and a string (2 bytes of length).
    let message = body.get(6..).unwrap_or_default();
    Err(io::Error::other(String::from_utf8_lossy(message).into_owned()))
}

fn call(stream: &mut TcpStream, opcode: u8, body: &[u8]) -> io::Result<(u8, Vec<u8>)> {
    let mut frame = vec![4, 0, 0, 0, opcode];
    frame.extend((body.len() as u32).to_be_bytes());
    frame.extend(body);
    stream.write_all(&frame)?;
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let len = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    if len > 1 << 20 {
        return Err(io::Error::other(format!("an answer of {len} bytes")));
    }
    let mut answer = vec![0; len as usize];
    stream.read_exact(&mut answer)?;
    Ok((head[4], answer))
}
