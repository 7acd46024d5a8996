//! Checks the layering: which crates each crate may use.

use crate::cargo::{Dependency, Package};
use std::collections::HashMap;

/// The layers from the bottom up: a crate's folder, and the folders of the workspace that it may
/// use.
const LAYERS: &[(&str, &[&str])] = &[
    ("plugin-api", &[]),
    ("memory/client", &["plugin-api"]),
    ("memory/backend", &["plugin-api", "memory/client"]),
    ("kernels", &["plugin-api", "memory/client"]),
    ("kernels/library", &["plugin-api", "memory/client", "kernels"]),
    ("arrays", &["plugin-api", "memory/client", "kernels"]),
    ("arrays/vortex", &["plugin-api", "arrays"]),
    ("arrays/parts", &["plugin-api", "memory/client", "arrays"]),
    ("arrow", &["plugin-api", "memory/client", "arrays"]),
    ("isolation", &["plugin-api", "memory/client", "arrays", "arrays/parts", "memory/backend"]),
    (
        "host",
        &[
            "plugin-api",
            "memory/client",
            "kernels",
            "kernels/library",
            "arrays",
            "arrays/parts",
            "memory/backend",
            "isolation",
        ],
    ),
    (
        "cli",
        &["plugin-api", "memory/client", "kernels", "kernels/library", "arrays", "memory/backend", "host"],
    ),
    ("capi", &["plugin-api", "memory/client", "kernels", "arrays", "memory/backend", "host"]),
    ("python", &["plugin-api", "memory/client", "kernels", "arrays", "memory/backend", "host"]),
    ("xtask", &["plugin-api"]),
    ("xtask/compare", &[]),
    ("xtask/release", &[]),
];

/// The folders whose crates the library of a plugin may use. A plugin must never use the host,
/// another plugin, or the crates that own memory or kernels.
const PLUGIN_LIBRARY: &[&str] =
    &["plugin-api", "memory/client", "kernels", "arrays", "arrays/vortex", "arrow"];

/// Crates that plugins may use only through interfaces of the host.
const OWNERS: &[&str] = &["memory/backend", "kernels/library"];

/// Folders whose crates may use every crate.
const TEST_FOLDERS: &[&str] = &["tests", "benches"];

/// Dependencies that only one folder may use, so that they do not enable features for other crates.
const CONFINED: &[(&str, &str)] = &[("cudarc", "memory/backend"), ("pyo3", "python")];

/// Dependencies that the libraries for applications must not use. The command and plugins may use
/// them.
const NOT_IN_LIBRARIES: &[&str] = &["clap", "clap_complete", "indicatif", "arrow-ipc", "dlpark"];

/// The libraries for applications, and the crates that they contain.
const LIBRARIES: &[&str] = &[
    "plugin-api",
    "memory/client",
    "memory/backend",
    "kernels",
    "arrays",
    "arrays/parts",
    "isolation",
    "host",
    "capi",
    "python",
];

/// Returns a violation for each dependency that the layers do not allow.
pub fn check(packages: &[Package]) -> Vec<String> {
    let folders: HashMap<&str, &str> =
        packages.iter().map(|p| (p.name.as_str(), p.folder.as_str())).collect();
    let mut violations = Vec::new();
    for package in packages {
        let Some(allowed) = allowed(&package.folder) else {
            violations.push(format!(
                "{}: the crate {} has no layer; add it to LAYERS in xtask/src/tidy/layering.rs",
                package.folder, package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            violations.extend(violation(package, dependency, &folders, &allowed));
        }
    }
    violations
}

enum Allowed {
    Everything,
    Folders(Vec<String>),
}

fn is_test_folder(folder: &str) -> bool {
    TEST_FOLDERS
        .iter()
        .any(|i| folder == *i || folder.strip_prefix(i).is_some_and(|rest| rest.starts_with('/')))
}

fn allowed(folder: &str) -> Option<Allowed> {
    if is_test_folder(folder) {
        return Some(Allowed::Everything);
    }
    if let Some((_, below)) = LAYERS.iter().find(|(name, _)| *name == folder) {
        return Some(Allowed::Folders(below.iter().map(ToString::to_string).collect()));
    }
    let mut parts = folder.strip_prefix("plugins/")?.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(_), None, None) => {
            Some(Allowed::Folders(PLUGIN_LIBRARY.iter().map(ToString::to_string).collect()))
        }
        (Some(carrier), Some("plugin"), None) => {
            Some(Allowed::Folders(vec![format!("plugins/{carrier}"), "plugin-api".to_owned()]))
        }
        _ => None,
    }
}

fn violation(
    package: &Package,
    dependency: &Dependency,
    folders: &HashMap<&str, &str>,
    allowed: &Allowed,
) -> Option<String> {
    let Allowed::Folders(allowed) = allowed else { return None };
    if let Some((name, home)) = CONFINED.iter().find(|(name, _)| *name == dependency.name) {
        return (package.folder != *home)
            .then(|| format!("{}: {} uses {name}, which only {home} may use", package.folder, package.name));
    }
    if LIBRARIES.contains(&&*package.folder)
        && NOT_IN_LIBRARIES.contains(&&*dependency.name)
        && !dependency.dev
    {
        return Some(format!(
            "{}: uses {}, which libraries for applications may not use",
            package.folder, dependency.name
        ));
    }
    let to = *folders.get(dependency.name.as_str())?;
    // Tests of lower crates may use the crates that own memory and kernels, and the shared test
    // support. The cdylib crate of a plugin has no tests, so this exception does not apply to it.
    let for_tests = dependency.dev && (OWNERS.contains(&to) || is_test_folder(to));
    if (for_tests && !package.folder.ends_with("/plugin"))
        || to == package.folder
        || allowed.iter().any(|a| a == to)
    {
        return None;
    }
    let may = if allowed.is_empty() { "no crate of the workspace".to_owned() } else { allowed.join(", ") };
    let kind = if dependency.dev { " (dev)" } else { "" };
    Some(format!("{}: uses {to}{kind}; it may use {may}", package.folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, uses: &[&str]) -> Package {
        let dependencies =
            uses.iter().map(|name| Dependency { name: name.to_string(), dev: false }).collect();
        Package {
            name: folder.replace('/', "-"),
            folder: folder.to_owned(),
            dependencies,
            cdylibs: Vec::new(),
        }
    }

    /// A workspace that follows the table: one crate for each folder in the table, named after the
    /// folder, and two plugins.
    fn layered_packages() -> Vec<Package> {
        let mut packages = Vec::new();
        for (folder, below) in LAYERS {
            let names: Vec<String> = below.iter().map(|b| b.replace('/', "-")).collect();
            packages.push(package(folder, &names.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        packages.push(package("plugins/ipc", &["arrays", "plugin-api"]));
        packages.push(package("plugins/ipc/plugin", &["plugins-ipc", "plugin-api"]));
        packages.push(package("plugins/dlpack", &["arrays"]));
        packages
    }

    fn violations_with(extra: Package) -> Vec<String> {
        let mut packages = layered_packages();
        packages.retain(|p| p.folder != extra.folder);
        packages.push(extra);
        check(&packages)
    }

    #[test]
    fn accepts_crates_that_follow_the_layering() {
        assert_eq!(check(&layered_packages()), Vec::<String>::new());
    }

    #[test]
    fn rejects_dependencies_of_the_plugin_api() {
        let violations = violations_with(package("plugin-api", &["memory-client"]));
        assert_eq!(violations, ["plugin-api: uses memory/client; it may use no crate of the workspace"]);
    }

    #[test]
    fn rejects_plugins_that_use_the_host_another_plugin_or_the_backend() {
        let violations =
            violations_with(package("plugins/dlpack", &["host", "plugins-ipc", "memory-backend"]));
        assert_eq!(violations.len(), 3, "{violations:?}");
        assert!(violations[0].starts_with("plugins/dlpack: uses host;"), "{violations:?}");
        assert!(violations[1].starts_with("plugins/dlpack: uses plugins/ipc;"), "{violations:?}");
        assert!(violations[2].starts_with("plugins/dlpack: uses memory/backend;"), "{violations:?}");
    }

    #[test]
    fn rejects_plugins_and_arrays_that_use_the_kernel_library() {
        let violations = violations_with(package("plugins/dlpack", &["arrays", "kernels-library"]));
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].starts_with("plugins/dlpack: uses kernels/library;"), "{violations:?}");
        let violations = violations_with(package("arrays", &["kernels", "kernels-library"]));
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].starts_with("arrays: uses kernels/library;"), "{violations:?}");
    }

    #[test]
    fn plugin_cdylib_may_use_only_its_library_and_the_plugin_api() {
        let violations =
            violations_with(package("plugins/ipc/plugin", &["plugins-ipc", "plugins-dlpack", "arrays"]));
        assert_eq!(violations.len(), 2, "{violations:?}");
    }

    #[test]
    fn rejects_a_host_that_links_a_plugin_even_for_tests() {
        let mut host = package("host", &["arrays", "plugins-ipc"]);
        host.dependencies[1].dev = true;
        let violations = violations_with(host);
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert!(violations[0].starts_with("host: uses plugins/ipc (dev);"), "{violations:?}");
    }

    #[test]
    fn only_tests_of_a_lower_crate_may_use_the_backend() {
        let mut arrays = package("arrays", &["memory-backend"]);
        assert_eq!(violations_with(arrays.clone()).len(), 1);
        arrays.dependencies[0].dev = true;
        assert_eq!(violations_with(arrays), Vec::<String>::new());
    }

    #[test]
    fn only_tests_may_use_the_test_support() {
        let mut packages = layered_packages();
        packages.push(package("tests/support", &["memory-backend"]));
        packages
            .iter_mut()
            .find(|p| p.folder == "arrays")
            .unwrap()
            .dependencies
            .push(Dependency { name: "tests-support".to_owned(), dev: true });
        assert_eq!(check(&packages), Vec::<String>::new());
        packages.iter_mut().flat_map(|p| &mut p.dependencies).for_each(|d| d.dev = false);
        assert_eq!(check(&packages).len(), 1);
    }

    #[test]
    fn test_crates_may_use_everything() {
        let tests = package("tests", &["host", "plugins-ipc", "plugins-dlpack", "memory-backend"]);
        assert_eq!(violations_with(tests), Vec::<String>::new());
    }

    #[test]
    fn rejects_cudarc_outside_of_the_backend() {
        let violations = violations_with(package("kernels", &["memory-client", "cudarc"]));
        assert_eq!(violations, ["kernels: kernels uses cudarc, which only memory/backend may use"]);
    }

    #[test]
    fn rejects_libraries_that_depend_on_command_line_crates() {
        let violations = violations_with(package("host", &["arrays", "clap"]));
        assert_eq!(violations, ["host: uses clap, which libraries for applications may not use"]);
        assert_eq!(violations_with(package("cli", &["host", "clap"])), Vec::<String>::new());
    }

    #[test]
    fn rejects_a_crate_in_an_unknown_folder() {
        let violations = violations_with(package("utils", &[]));
        assert!(violations[0].contains("has no layer"), "{violations:?}");
    }
}
