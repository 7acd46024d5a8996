//! Describes the file of a table, for `crossdock inspect`.

use std::path::Path;

use arrow_schema::Schema;
use crossdock::api::CancelFlag;
use crossdock::source::Input;
use crossdock::{ReadOptions, Result, printable};
use crossdock_arrays::field_type_name;
use serde_json::json;

use super::options;

/// Describes the format, the plugin that reads it, and the columns, without reading rows. Returns
/// `None` if no plugin recognises the file.
pub fn of_file(path: &Path, plugins: &options::PluginArgs, as_json: bool) -> Result<Option<String>> {
    let session = plugins.host(plugins.policy()?).build_lenient().session().open()?;
    let input = Input::open(path, &CancelFlag::new())?;
    if session.recognise(&input, None).is_err() {
        return Ok(None);
    }
    let reader = session.read(input, &ReadOptions::default())?;
    let (plugin, schema) = (reader.plugin(), reader.schema());
    if as_json {
        let mut out = json_schema(schema);
        out["format"] = json!(reader.format());
        out["plugin"] = json!(plugin.name());
        return Ok(Some(out.to_string()));
    }
    let text = format!("{:<12} {}\n{:<12} {}\n", "format", reader.format(), "read by", plugin.name());
    Ok(Some(text + &text_schema(schema)))
}

/// The columns and the metadata of a schema as a JSON object.
pub fn json_schema(schema: &Schema) -> serde_json::Value {
    let column = |field: &std::sync::Arc<arrow_schema::Field>| {
        let (name, data_type) = (field.name(), field_type_name(field));
        json!({ "name": name, "type": data_type, "nullable": field.is_nullable(), "metadata": pairs(field.metadata()) })
    };
    let columns: Vec<_> = schema.fields().iter().map(column).collect();
    json!({ "columns": columns, "metadata": pairs(schema.metadata()) })
}

/// The columns of a schema, one in each line.
pub fn text_schema(schema: &Schema) -> String {
    let mut text = String::new();
    for (i, field) in schema.fields().iter().enumerate() {
        let nulls = if field.is_nullable() { "" } else { ", no nulls" };
        let head = if i == 0 { "columns" } else { "" };
        let column = format!("{}: {}{nulls}", field.name(), field_type_name(field));
        text += &format!("{head:<12} {}\n", printable(&column));
    }
    text
}

fn pairs(metadata: &arrow_schema::Metadata) -> serde_json::Value {
    metadata.iter().map(|(key, value)| (key.to_string(), json!(value.to_string()))).collect()
}
