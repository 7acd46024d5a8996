//! `libcrossdock_encodings_plugin.so`: the crate crossdock-encodings behind the plugin entry.

crossdock_plugin_api::crossdock_plugin!(
    crossdock_encodings::Encodings,
    name: "encodings",
    description: "encoded arrays, as Vortex has them: trees of nodes in capsules or as bytes, decoded",
    interfaces: "crossdock.importer/1 crossdock.exporter/1 crossdock.encoding/1",
    formats: "encoded-array encodings",
    encodings: "fastlanes.bitpacked fastlanes.delta fastlanes.for fastlanes.rle vortex.alp vortex.alprd vortex.bool \
                vortex.bytebool vortex.chunked vortex.constant vortex.datetimeparts vortex.decimal \
                vortex.decimal_byte_parts vortex.dict vortex.ext vortex.fixed_size_list vortex.fsst vortex.list \
                vortex.listview vortex.map vortex.masked vortex.null vortex.onpair vortex.primitive vortex.runend \
                vortex.sequence vortex.sparse vortex.struct vortex.varbin vortex.varbinview vortex.zigzag",
);
