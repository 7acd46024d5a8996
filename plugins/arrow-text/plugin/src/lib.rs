//! Exports the crate crossdock-arrow-text as the plugin `libcrossdock_arrow_text_plugin.so`.

crossdock_plugin_api::crossdock_plugin!(
    crossdock_arrow_text::ArrowText,
    name: "arrow-text",
    description: "Reads and writes CSV and NDJSON (JSON Lines), also compressed with gzip or Zstandard",
    interfaces: "crossdock.importer/1 crossdock.exporter/1",
    formats: "csv ndjson",
    requires: "crossdock.host.memory/1 crossdock.host.kernels/1 crossdock.host.tasks/1",
);
