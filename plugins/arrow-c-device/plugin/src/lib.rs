//! `libcrossdock_arrow_c_device_plugin.so`: the crate crossdock-arrow-c-device behind the plugin entry.

crossdock_plugin_api::crossdock_plugin!(
    crossdock_arrow_c_device::ArrowCDevice,
    name: "arrow-c-device",
    description: "Arrow C Data, C Stream, C Device and C Device Stream, both ways",
    interfaces: "crossdock.importer/1 crossdock.exporter/1",
    formats: "arrow-c-device arrow-c-device-stream arrow-c-data arrow-c-stream",
);
