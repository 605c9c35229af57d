//! Settings of the commands: flags and environment variables from the tables of `phalanx_settings`, and the configuration
//! of the libraries from their values.

pub(crate) mod args;
pub(crate) mod connections;
pub(crate) mod election;
