//! The C plugin `csv` of `examples/c-plugin`, in the library and in the command.

mod command;
mod faults;
mod fixture;
mod malformed;
mod mutations;
mod round_trips;
mod tables;
mod work;
