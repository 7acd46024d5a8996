//! The plugin in plain C, `examples/c-plugin`: CSV both ways, through the library and the command.

mod bench;
mod command;
mod faults;
mod malformed;
mod mutations;
mod round_trips;
mod tables;
mod work;
