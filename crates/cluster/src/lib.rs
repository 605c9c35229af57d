#![doc = include_str!("../README.md")]

pub mod backend;
pub mod codec;
pub mod names;
mod shell;

pub use phalanx_cluster_core as core;
pub use shell::*;
