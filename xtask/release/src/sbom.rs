//! The list of components in the format CycloneDX 1.6.

use serde_json::{Value, json};

use crate::dependencies::Dependency;

/// The list of components of the artefact `name`.
pub fn text(name: &str, dependencies: &[Dependency]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let component = |dependency: &Dependency| {
        let Dependency { name, version, licence, sha256, .. } = dependency;
        let url = format!("pkg:cargo/{name}@{version}");
        let mut component = json!({
            "type": "library",
            "bom-ref": url,
            "name": name,
            "version": version,
            "scope": "required",
            "licenses": [{ "expression": licence }],
            "purl": url,
        });
        if let Some(sha256) = sha256 {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
        }
        component
    };
    let reference = format!("crossdock:{name}@{version}");
    let depends_on: Vec<Value> =
        dependencies.iter().map(|d| json!(format!("pkg:cargo/{}@{}", d.name, d.version))).collect();
    let bom = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": reference,
                "name": name,
                "version": version,
                "licenses": [{ "license": { "id": "Apache-2.0" } }],
            },
        },
        "components": dependencies.iter().map(component).collect::<Vec<_>>(),
        "dependencies": [{ "ref": reference, "dependsOn": depends_on }],
    });
    format!("{bom:#}\n")
}
