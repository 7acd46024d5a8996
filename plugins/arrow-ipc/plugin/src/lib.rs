//! The plugin `arrow-ipc` as a shared library; everything is in [`crossdock_arrow_ipc`].

crossdock_plugin_api::crossdock_plugin!(
    crossdock_arrow_ipc::ArrowIpc,
    name: "arrow-ipc",
    description: "Arrow IPC files and streams, to and from any device",
    interfaces: "crossdock.importer/1 crossdock.exporter/1",
    formats: "arrow-ipc-file arrow-ipc-stream",
);
