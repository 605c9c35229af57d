pub mod numeric;
pub mod constants;
mod distribution;
