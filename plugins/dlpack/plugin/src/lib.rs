//! `libcrossdock_dlpack_plugin.so`: the crate crossdock-dlpack behind the plugin entry.

crossdock_plugin_api::crossdock_plugin!(
    crossdock_dlpack::DlPack,
    name: "dlpack",
    description: "DLPack tensors, legacy and versioned, both ways: a tensor a column",
    interfaces: "crossdock.importer/1 crossdock.exporter/1",
    formats: "dlpack dlpack-legacy",
);
