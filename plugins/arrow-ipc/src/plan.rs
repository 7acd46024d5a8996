//! What writing would do to each column.

use arrow_schema::{Schema, SchemaRef};
use crossdock_plugin_api::{ColumnPlan, Device, Verdict};

use crate::codec::Codec;
use crate::wire;

/// A verdict for each column of `schema` on `from`.
pub fn plan(schema: &Schema, from: Device, codec: Option<Codec>) -> Vec<ColumnPlan> {
    schema
        .fields()
        .iter()
        .map(|field| {
            let alone = SchemaRef::new(Schema::new(vec![field.clone()]));
            let (verdict, reason) = match (wire::Schema::number(alone), codec) {
                (Err(error), _) => (Verdict::Unsupported, error.message().to_string()),
                (Ok(_), Some(codec)) => (Verdict::Converted, format!("compressed with {}", codec.name())),
                (Ok(_), None) if from != Device::CPU => {
                    (Verdict::Copied, "brought to the host to be written".into())
                }
                (Ok(_), None) => (Verdict::ZeroCopy, "written from where it lies".into()),
            };
            ColumnPlan { name: field.name().clone(), verdict, to: Device::CPU, reason }
        })
        .collect()
}
