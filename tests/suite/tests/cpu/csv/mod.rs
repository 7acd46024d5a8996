//! Tests the C plugin `csv` of `examples/c-plugin` through the library and the command.

mod command;
mod faults;
pub mod fixture;
mod malformed;
mod mutations;
mod round_trips;
mod tables;
mod work;
