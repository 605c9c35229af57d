//! Generates the Rust code and the descriptors of the Election Agent's protocol.
//!
//! A program of its own, so that only `cargo xtask fix` and `cargo xtask check` build the protobuf compiler.

use std::path::PathBuf;
use std::{env, fs};

const PROTOCOL: [&str; 4] = [
    "phalanx/election/v1/election.proto",
    "phalanx/election/v1/admin.proto",
    "phalanx/election/v1/peer.proto",
    "grpc/election_agent/v1/election_agent.proto",
];

/// Takes two arguments: the folder of the `.proto` files and the folder to write to.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = env::args_os().skip(1).map(PathBuf::from);
    let (Some(protocol), Some(out), None) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("usage: phalanx-proto-codegen PROTO_FOLDER OUTPUT_FOLDER".into());
    };
    let mut compiler = protox::Compiler::new([protocol])?;
    compiler.include_source_info(true).include_imports(true).open_files(PROTOCOL)?;
    fs::create_dir_all(&out)?;
    // The reflection service serves these.
    fs::write(out.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        .build_transport(false)
        .out_dir(out)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
