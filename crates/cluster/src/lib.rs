#![doc = include_str!("../README.md")]

pub mod backend;
pub mod codec;
mod fleet;
pub mod names;
mod shell;

pub use fleet::{Fleet, FleetView, Member, Window};
pub use names::Names;
pub use phalanx_cluster_core as core;
pub use shell::*;
