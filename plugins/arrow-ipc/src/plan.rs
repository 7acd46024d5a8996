//! Plans how each column is written.

use arrow_schema::{Schema, SchemaRef};
use crossdock_plugin_api::{ColumnPlan, Device, Verdict};

use crate::codec::Codec;
use crate::wire;

/// Returns a verdict for each column of `schema`. The data is on device `from`.
pub fn plan(schema: &Schema, from: Device, codec: Option<Codec>) -> Vec<ColumnPlan> {
    schema
        .fields()
        .iter()
        .map(|field| {
            let single = SchemaRef::new(Schema::new(vec![field.clone()]));
            let (verdict, reason) = match (wire::Schema::assign_ids(single), codec) {
                (Err(error), _) => (Verdict::Unsupported, error.message().to_string()),
                (Ok(_), Some(codec)) => (Verdict::Converted, format!("compressed with {}", codec.name())),
                (Ok(_), None) if from != Device::CPU => (Verdict::Copied, "copied to the host".into()),
                (Ok(_), None) => (Verdict::ZeroCopy, "written from the buffers".into()),
            };
            ColumnPlan { name: field.name().clone(), verdict, to: Device::CPU, reason }
        })
        .collect()
}
