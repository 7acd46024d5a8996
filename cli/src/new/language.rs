//! What a plugin is written in.

use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Rust,
    C,
}
