//! What commands are told, by flags and by environment variables.

pub(crate) mod election;
pub(crate) mod places;
pub(crate) mod reader;
pub(crate) mod variables;
