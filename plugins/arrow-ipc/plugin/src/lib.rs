//! Builds the crate crossdock-arrow-ipc as the plugin `libcrossdock_arrow_ipc_plugin.so`.

crossdock_plugin_api::crossdock_plugin!(
    crossdock_arrow_ipc::ArrowIpc,
    name: "arrow-ipc",
    description: "Reads and writes Arrow IPC files and streams, to and from every device",
    interfaces: "crossdock.importer/1 crossdock.exporter/1",
    formats: "arrow-ipc-file arrow-ipc-stream",
    requires: "crossdock.host.memory/1 crossdock.host.kernels/1 crossdock.host.loader/1 \
               crossdock.host.tasks/1",
);
