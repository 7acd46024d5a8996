//! The options of the format.

use crossdock_plugin_api::Options;

use crate::footer::Footer;

/// The options with which a file was written, as far as the metadata show them.
pub fn of_file(_: &Footer) -> Options {
    Options::new()
}
