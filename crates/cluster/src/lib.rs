#![doc = include_str!("../README.md")]

pub mod backend;
pub mod codec;
pub mod core;
pub mod names;
mod shell;

pub use shell::*;
