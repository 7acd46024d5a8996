//! Builds the crate crossdock-arrow-c-device as the plugin `libcrossdock_arrow_c_device_plugin.so`.

crossdock_plugin_api::crossdock_plugin!(
    crossdock_arrow_c_device::ArrowCDevice,
    name: "arrow-c-device",
    description: "Imports and exports Arrow C Data, C Stream, C Device and C Device Stream",
    interfaces: "crossdock.importer/1 crossdock.exporter/1",
    formats: "arrow-c-device arrow-c-device-stream arrow-c-data arrow-c-stream",
    requires: "crossdock.host.memory/1 crossdock.host.kernels/1",
);
