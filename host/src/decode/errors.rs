//! Errors of nodes.

use std::fmt;

use crossdock_plugin_api::{EncodedNode, Error};

use crate::plugin::Plugin;

/// Adds the plugin to an error, and also the node's path unless the message already names the node.
pub(super) fn with_context(error: Error, plugin: &Plugin, node: EncodedNode<'_>) -> Error {
    plugin.note_panic(&error);
    if error.message().starts_with(node.encoding()) || error.message().contains(&node.path()) {
        return error.context(plugin);
    }
    error.context(format_args!("{plugin}: {}", node.path()))
}

/// The error for an invalid code, or for the invalid end of a run.
pub(super) fn invalid_entry(node: EncodedNode<'_>, expected: fmt::Arguments<'_>, at: u64) -> Error {
    node.wrong(format_args!("{expected}, but the entry at position {at} is invalid"))
}
