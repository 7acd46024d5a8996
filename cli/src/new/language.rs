//! The programming language of a new plugin.

use clap::ValueEnum;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Rust,
    C,
}
