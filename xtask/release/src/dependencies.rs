//! Lists the crates of other authors that a program or library contains.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::work::{Work, cargo, output};

/// A crate of another author.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    pub name: String,
    pub version: String,
    /// The SPDX expression of the licence.
    pub licence: String,
    pub authors: Vec<String>,
    /// The SHA-256 of the package in the registry.
    pub sha256: Option<String>,
    /// The folder of the sources.
    pub folder: PathBuf,
}

/// The crates that the crates `roots` contain, without crates that only run during the build.
pub fn of(work: &Work, roots: &[&str]) -> Result<Vec<Dependency>> {
    let mut metadata = cargo();
    metadata.current_dir(&work.root).args([
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
    ]);
    metadata.arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    let metadata: Value = serde_json::from_slice(&output(&mut metadata)?).context("cargo metadata")?;
    let lock = std::fs::read_to_string(work.root.join("Cargo.lock")).context("Cargo.lock")?;
    closure(&metadata, &checksums(&lock), roots)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn closure(
    metadata: &Value,
    checksums: &HashMap<(String, String), String>,
    roots: &[&str],
) -> Result<Vec<Dependency>> {
    let packages: HashMap<String, &Value> =
        list(&metadata["packages"]).map(|p| (text(&p["id"]), p)).collect();
    let nodes: HashMap<String, &Value> =
        list(&metadata["resolve"]["nodes"]).map(|n| (text(&n["id"]), n)).collect();
    let id_of = |root: &&str| {
        let package = packages.iter().find(|(_, package)| package["name"] == **root);
        package.map(|(id, _)| id.clone()).with_context(|| format!("cargo metadata has no crate {root}"))
    };
    let mut waiting = roots.iter().map(id_of).collect::<Result<Vec<_>>>()?;
    let (mut seen, mut found) = (HashSet::new(), BTreeMap::new());
    while let Some(id) = waiting.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        let package = packages.get(&id).with_context(|| format!("cargo metadata has no package {id}"))?;
        let is_macro = list(&package["targets"]).any(|t| list(&t["kind"]).any(|kind| kind == "proc-macro"));
        if is_macro {
            continue;
        }
        if !package["source"].is_null() {
            let (name, version) = (text(&package["name"]), text(&package["version"]));
            let manifest = PathBuf::from(text(&package["manifest_path"]));
            let dependency = Dependency {
                licence: text(&package["license"]).replace('/', " OR "),
                authors: list(&package["authors"]).map(text).collect(),
                sha256: checksums.get(&(name.clone(), version.clone())).cloned(),
                folder: manifest.parent().context("a manifest without a folder")?.to_owned(),
                name: name.clone(),
                version: version.clone(),
            };
            found.insert((name, version), dependency);
        }
        let node = nodes.get(&id).with_context(|| format!("cargo metadata has no node {id}"))?;
        let linked = |dependency: &&Value| list(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
        waiting.extend(list(&node["deps"]).filter(linked).map(|dependency| text(&dependency["pkg"])));
    }
    Ok(found.into_values().collect())
}

/// The checksums of a lock file, by name and version.
fn checksums(lock: &str) -> HashMap<(String, String), String> {
    let mut checksums = HashMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")))?;
            Some(line.trim_matches('"').to_owned())
        };
        if let (Some(name), Some(version), Some(checksum)) =
            (value("name"), value("version"), value("checksum"))
        {
            checksums.insert((name, version), checksum);
        }
    }
    checksums
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn package(name: &str, source: Option<&str>, kind: &str) -> Value {
        json!({
            "id": name, "name": name, "version": "1.0.0", "source": source, "license": "MIT/Apache-2.0",
            "authors": [], "manifest_path": format!("/{name}/Cargo.toml"), "targets": [{ "kind": [kind] }],
        })
    }

    fn node(name: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<_> = dependencies
            .iter()
            .map(|(name, kind)| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] }))
            .collect();
        json!({ "id": name, "deps": dependencies })
    }

    #[test]
    fn closure_has_linked_crates_and_no_macros_or_build_dependencies() {
        let registry = Some("registry");
        let metadata = json!({
            "packages": [
                package("root", None, "bin"), package("member", None, "lib"), package("direct", registry, "lib"),
                package("nested", registry, "lib"), package("derive", registry, "proc-macro"),
                package("of-macro", registry, "lib"), package("build-tool", registry, "lib"),
            ],
            "resolve": { "nodes": [
                node("root", &[("member", None), ("derive", None), ("build-tool", Some("build"))]),
                node("member", &[("direct", None)]), node("direct", &[("nested", None)]), node("nested", &[]),
                node("derive", &[("of-macro", None)]), node("of-macro", &[]), node("build-tool", &[]),
            ] },
        });
        let lock = "[[package]]\nname = \"direct\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"ab\"\n";
        let found = closure(&metadata, &checksums(lock), &["root"]).unwrap();
        let names: Vec<_> = found.iter().map(|dependency| dependency.name.as_str()).collect();
        assert_eq!(names, ["direct", "nested"]);
        assert_eq!(found[0].sha256.as_deref(), Some("ab"));
        assert_eq!(found[0].licence, "MIT OR Apache-2.0");
        assert!(closure(&metadata, &HashMap::new(), &["absent"]).is_err());
    }
}
