//! Builds the crate crossdock-dlpack as the plugin `libcrossdock_dlpack_plugin.so`.

crossdock_plugin_api::crossdock_plugin!(
    crossdock_dlpack::DlPack,
    name: "dlpack",
    description: "Imports and exports DLPack tensors, legacy and versioned: one tensor per column",
    interfaces: "crossdock.importer/1 crossdock.exporter/1",
    formats: "dlpack dlpack-legacy",
    requires: "crossdock.host.memory/1 crossdock.host.kernels/1",
);
