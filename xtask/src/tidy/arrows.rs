//! Who may use whom.

use crate::cargo::{Dependency, Package};
use std::collections::HashMap;

/// From the bottom up: a folder, and the folders of ours that it may use.
const HOUSE: &[(&str, &[&str])] = &[
    ("plugin-api", &[]),
    ("memory/client", &["plugin-api"]),
    ("memory/backend", &["plugin-api", "memory/client"]),
    ("kernels", &["plugin-api", "memory/client"]),
    ("kernels/library", &["plugin-api", "memory/client", "kernels"]),
    ("arrays", &["plugin-api", "memory/client", "kernels"]),
    ("isolation", &["plugin-api", "memory/client", "arrays", "memory/backend"]),
    (
        "host",
        &[
            "plugin-api",
            "memory/client",
            "kernels",
            "kernels/library",
            "arrays",
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
];

/// What each carrier may use. Never the host, a sibling, or the owner of the memory or of the kernels.
const CARRIER: &[&str] = &["plugin-api", "memory/client", "kernels", "arrays"];

/// What the host owns and offers to plugins through interfaces.
const OWNERS: &[&str] = &["memory/backend", "kernels/library"];

/// They look at the whole house.
const INSPECTORS: &[&str] = &["tests", "benches"];

/// Third parties that belong to one folder: what they bring must not reach the others through a shared feature.
const CONFINED: &[(&str, &str)] = &[("cudarc", "memory/backend"), ("pyo3", "python")];

/// Third parties of the command and of plugins, without which the libraries for applications are built.
const NOT_IN_LIBRARIES: &[&str] = &["clap", "clap_complete", "indicatif", "arrow-ipc", "dlpark"];

/// The libraries for applications, and what they are made of.
const LIBRARIES: &[&str] = &[
    "plugin-api",
    "memory/client",
    "memory/backend",
    "kernels",
    "arrays",
    "isolation",
    "host",
    "capi",
    "python",
];

/// A complaint for every dependency against the arrows.
pub fn check(packages: &[Package]) -> Vec<String> {
    let folders: HashMap<&str, &str> =
        packages.iter().map(|p| (p.name.as_str(), p.folder.as_str())).collect();
    let mut complaints = Vec::new();
    for package in packages {
        let Some(allowed) = allowed(&package.folder) else {
            complaints.push(format!(
                "{}: the crate {} has no place in the house; give it one in tidy's table (arrows.rs)",
                package.folder, package.name
            ));
            continue;
        };
        for dependency in &package.dependencies {
            complaints.extend(complain(package, dependency, &folders, &allowed));
        }
    }
    complaints
}

enum Allowed {
    Everything,
    Folders(Vec<String>),
}

fn is_inspector(folder: &str) -> bool {
    INSPECTORS
        .iter()
        .any(|i| folder == *i || folder.strip_prefix(i).is_some_and(|rest| rest.starts_with('/')))
}

fn allowed(folder: &str) -> Option<Allowed> {
    if is_inspector(folder) {
        return Some(Allowed::Everything);
    }
    if let Some((_, below)) = HOUSE.iter().find(|(name, _)| *name == folder) {
        return Some(Allowed::Folders(below.iter().map(ToString::to_string).collect()));
    }
    let mut parts = folder.strip_prefix("plugins/")?.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(_), None, None) => Some(Allowed::Folders(CARRIER.iter().map(ToString::to_string).collect())),
        (Some(carrier), Some("plugin"), None) => {
            Some(Allowed::Folders(vec![format!("plugins/{carrier}"), "plugin-api".to_owned()]))
        }
        _ => None,
    }
}

fn complain(
    package: &Package,
    dependency: &Dependency,
    folders: &HashMap<&str, &str>,
    allowed: &Allowed,
) -> Option<String> {
    let Allowed::Folders(allowed) = allowed else { return None };
    if let Some((name, home)) = CONFINED.iter().find(|(name, _)| *name == dependency.name) {
        return (package.folder != *home).then(|| {
            format!("{}: {name} belongs to {home} alone, and {} uses it", package.folder, package.name)
        });
    }
    if LIBRARIES.contains(&&*package.folder)
        && NOT_IN_LIBRARIES.contains(&&*dependency.name)
        && !dependency.dev
    {
        return Some(format!(
            "{}: uses {}, which no library for applications may",
            package.folder, dependency.name
        ));
    }
    let to = *folders.get(dependency.name.as_str())?;
    // Tests below the host need the owners of memory and of kernels, and what all tests share. The thin cdylib has no tests.
    let for_tests = dependency.dev && (OWNERS.contains(&to) || is_inspector(to));
    if (for_tests && !package.folder.ends_with("/plugin"))
        || to == package.folder
        || allowed.iter().any(|a| a == to)
    {
        return None;
    }
    let may = if allowed.is_empty() { "nothing of ours".to_owned() } else { allowed.join(", ") };
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

    /// The table itself as crates, each named after its folder, and two carriers.
    fn house() -> Vec<Package> {
        let mut packages = Vec::new();
        for (folder, below) in HOUSE {
            let names: Vec<String> = below.iter().map(|b| b.replace('/', "-")).collect();
            packages.push(package(folder, &names.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        packages.push(package("plugins/ipc", &["arrays", "plugin-api"]));
        packages.push(package("plugins/ipc/plugin", &["plugins-ipc", "plugin-api"]));
        packages.push(package("plugins/dlpack", &["arrays"]));
        packages
    }

    fn complaints_with(extra: Package) -> Vec<String> {
        let mut packages = house();
        packages.retain(|p| p.folder != extra.folder);
        packages.push(extra);
        check(&packages)
    }

    #[test]
    fn a_house_built_along_the_arrows_draws_no_complaint() {
        assert_eq!(check(&house()), Vec::<String>::new());
    }

    #[test]
    fn the_plugin_api_may_use_nothing_of_ours() {
        let found = complaints_with(package("plugin-api", &["memory-client"]));
        assert_eq!(found, ["plugin-api: uses memory/client; it may use nothing of ours"]);
    }

    #[test]
    fn a_plugin_that_uses_host_sibling_or_backend_is_named_for_each() {
        let found = complaints_with(package("plugins/dlpack", &["host", "plugins-ipc", "memory-backend"]));
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("plugins/dlpack: uses host;"), "{found:?}");
        assert!(found[1].starts_with("plugins/dlpack: uses plugins/ipc;"), "{found:?}");
        assert!(found[2].starts_with("plugins/dlpack: uses memory/backend;"), "{found:?}");
    }

    #[test]
    fn rejects_a_plugin_or_arrays_with_the_library_of_kernels() {
        let found = complaints_with(package("plugins/dlpack", &["arrays", "kernels-library"]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("plugins/dlpack: uses kernels/library;"), "{found:?}");
        let found = complaints_with(package("arrays", &["kernels", "kernels-library"]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("arrays: uses kernels/library;"), "{found:?}");
    }

    #[test]
    fn the_thin_cdylib_may_use_its_own_library_and_the_plugin_api_only() {
        let found =
            complaints_with(package("plugins/ipc/plugin", &["plugins-ipc", "plugins-dlpack", "arrays"]));
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn a_host_that_links_a_plugin_is_refused_even_for_its_tests() {
        let mut host = package("host", &["arrays", "plugins-ipc"]);
        host.dependencies[1].dev = true;
        let found = complaints_with(host);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("host: uses plugins/ipc (dev);"), "{found:?}");
    }

    #[test]
    fn the_tests_of_a_lower_crate_may_use_the_backend_and_the_crate_itself_may_not() {
        let mut arrays = package("arrays", &["memory-backend"]);
        assert_eq!(complaints_with(arrays.clone()).len(), 1);
        arrays.dependencies[0].dev = true;
        assert_eq!(complaints_with(arrays), Vec::<String>::new());
    }

    #[test]
    fn what_the_tests_share_is_for_tests_alone() {
        let mut packages = house();
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
    fn the_inspector_may_use_everything() {
        let tests = package("tests", &["host", "plugins-ipc", "plugins-dlpack", "memory-backend"]);
        assert_eq!(complaints_with(tests), Vec::<String>::new());
    }

    #[test]
    fn cudarc_outside_the_backend_is_refused() {
        let found = complaints_with(package("kernels", &["memory-client", "cudarc"]));
        assert_eq!(found, ["kernels: cudarc belongs to memory/backend alone, and kernels uses it"]);
    }

    #[test]
    fn libraries_for_applications_do_without_what_the_command_uses() {
        let found = complaints_with(package("host", &["arrays", "clap"]));
        assert_eq!(found, ["host: uses clap, which no library for applications may"]);
        assert_eq!(complaints_with(package("cli", &["host", "clap"])), Vec::<String>::new());
    }

    #[test]
    fn a_crate_in_an_unknown_folder_has_no_place() {
        let found = complaints_with(package("utils", &[]));
        assert!(found[0].contains("has no place in the house"), "{found:?}");
    }
}
