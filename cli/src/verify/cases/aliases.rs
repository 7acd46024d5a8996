//! Former names of cases.

/// Pairs of a former name, which `--case` still accepts, and the current name of the case.
pub const ALIASES: [(&str, &str); 10] = [
    ("calls.wishes", "calls.settings"),
    ("encoding.lying_nodes", "encoding.malformed_nodes"),
    ("exporter.kept", "exporter.input_lifetime"),
    ("exporter.plan_kept", "exporter.follows_plan"),
    ("importer.kept", "importer.input_lifetime"),
    ("importer.schema_at_once", "importer.schema_on_open"),
    ("interfaces.once", "interfaces.unique_names"),
    ("memory.told", "memory.error_message"),
    ("memory.work", "memory.streams_and_events"),
    ("structs.longer_places", "structs.longer_arguments"),
];
