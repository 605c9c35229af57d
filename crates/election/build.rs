//! Makes Rust of the protocol, without an installed `protoc`.

use std::path::PathBuf;
use std::{env, fs};

const PROTOCOL: [&str; 4] = [
    "phalanx/election/v1/election.proto",
    "phalanx/election/v1/admin.proto",
    "phalanx/election/v1/peer.proto",
    "grpc/election_agent/v1/election_agent.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_source_info(true).include_imports(true).open_files(PROTOCOL)?;
    // What the reflection service tells.
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo says where to write")?);
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().build_transport(false).compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
