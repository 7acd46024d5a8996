//! Checks that the modules of a crate do not import each other in a cycle.
//!
//! A module is a file below `src`. It imports a module if a `use` declaration or a path names an
//! item that is defined there. Re-exported names (`pub use`) are followed to their definition. Two
//! things are not imports: the declaration of a child module, and a re-export of a name that the
//! module itself does not use.
//!
//! The check does not cover methods of a type whose `impl` is in another module, names that macros
//! compose, modules with a `#[path]`, files outside of `src`, and test code.

mod exceptions;
mod imports;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::text::Text;
use crate::cargo::Package;
use exceptions::{EXCEPTIONS, Exception};
use imports::Imports;

type Path = Vec<String>;
/// The imports of each module. The keys are module paths as in Rust source.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns a violation for each group of modules that import each other, and for each exception
/// whose modules have no cycle.
pub fn check(packages: &[Package], texts: &[Text]) -> Vec<String> {
    packages.iter().flat_map(|package| check_crate(&package.folder, texts, EXCEPTIONS)).collect()
}

fn check_crate(folder: &str, texts: &[Text], exceptions: &[Exception]) -> Vec<String> {
    let mut graph = edges(&modules(folder, texts));
    let mut violations = Vec::new();
    for (_, group, _) in exceptions.iter().filter(|(of, ..)| *of == folder) {
        if !take_out(&mut graph, group) {
            let group = group.join(", ");
            violations.push(format!(
                "{folder}: {group}: no cycle any more; remove it from xtask/src/tidy/cycles/exceptions.rs"
            ));
        }
    }
    violations.extend(cycles(&graph).into_iter().map(|(cycle, size)| {
        let cycle = cycle.join(" -> ");
        let among = if size > 1 { format!(", one of several among {size} modules") } else { String::new() };
        format!("{folder}: modules import each other: {cycle}{among}")
    }));
    violations
}

/// Removes the imports between the modules of a group from the graph. Returns whether these imports
/// had a cycle.
fn take_out(graph: &mut Graph, group: &[&str]) -> bool {
    let is_in = |module: &str| {
        group.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => module.starts_with(prefix) || Some(module) == prefix.strip_suffix("::"),
            None => module == *pattern,
        })
    };
    let mut within = Graph::new();
    for (module, imported) in graph.iter_mut().filter(|(module, _)| is_in(module)) {
        within.insert(module.clone(), imported.extract_if(.., |to| is_in(to)).collect());
    }
    !cycles(&within).is_empty()
}

/// The modules of a crate by their paths. The path of the root is empty.
fn modules(folder: &str, texts: &[Text]) -> BTreeMap<Path, Imports> {
    let src = format!("{folder}/src/");
    let has_lib = texts.iter().any(|text| text.path == format!("{src}lib.rs"));
    let mut modules = BTreeMap::new();
    for text in texts {
        let Some(file) = text.path.strip_prefix(&src).and_then(|file| file.strip_suffix(".rs")) else {
            continue;
        };
        let mut path: Path = file.split('/').map(str::to_owned).collect();
        match file {
            "lib" => path.clear(),
            "main" if !has_lib => path.clear(),
            _ if path.last().is_some_and(|last| last == "mod") => drop(path.pop()),
            _ => {}
        }
        modules.insert(path, Imports::parse(&text.content));
    }
    let tests: Vec<Path> = modules
        .iter()
        .flat_map(|(path, imports)| imports.for_tests.iter().map(|name| child(path, name)))
        .collect();
    modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
    modules
}

fn child(path: &[String], name: &str) -> Path {
    [path, &[name.to_owned()]].concat()
}

fn show(path: &[String]) -> String {
    if path.is_empty() { "crate".to_owned() } else { path.join("::") }
}

fn edges(modules: &BTreeMap<Path, Imports>) -> Graph {
    let imported = |(path, imports): (&Path, &Imports)| {
        let uses =
            imports.uses.iter().filter(|used| !used.is_public || used.is_mentioned).map(|used| &used.path);
        let all = uses.chain(&imports.paths).filter_map(|to| resolve(modules, path, to, 0));
        (show(path), all.filter(|to| to != path).map(|to| show(&to)).collect())
    };
    modules.iter().map(imported).collect()
}

/// Resolves a path in the module `from`. Returns the module that defines the item, or `None` if the
/// item is not defined in the crate.
fn resolve(modules: &BTreeMap<Path, Imports>, from: &Path, path: &[String], depth: usize) -> Option<Path> {
    // The number of steps is bounded, because re-exports may form a cycle.
    const MAX_DEPTH: usize = 16;
    if depth > MAX_DEPTH {
        return None;
    }
    let (mut at, rest) = match path.first()?.as_str() {
        "crate" => (Path::new(), &path[1..]),
        "self" => (from.clone(), &path[1..]),
        "super" => {
            let supers = path.iter().take_while(|segment| *segment == "super").count();
            (from.get(..from.len().checked_sub(supers)?)?.to_vec(), &path[supers..])
        }
        name if modules.contains_key(&child(from, name)) => (from.clone(), path),
        _ => return None,
    };
    for (i, segment) in rest.iter().enumerate() {
        let below = child(&at, segment);
        if modules.contains_key(&below) {
            at = below;
            continue;
        }
        let module = modules.get(&at)?;
        if module.items.contains(segment) {
            return Some(at);
        }
        let named = module.uses.iter().find(|used| used.name.as_ref() == Some(segment));
        if let Some(named) = named {
            // An item of another crate counts as defined in the module that re-exports it.
            let to = [&named.path[..], &rest[i + 1..]].concat();
            return Some(resolve(modules, &at, &to, depth + 1).unwrap_or(at));
        }
        let all = module.uses.iter().filter(|used| used.name.is_none());
        let defined = all
            .filter_map(|used| resolve(modules, &at, &used.path, depth + 1))
            .find(|module| modules.get(module).is_some_and(|module| module.items.contains(segment)));
        return Some(defined.unwrap_or(at));
    }
    Some(at)
}

/// Returns a shortest cycle for each group of modules that reach each other, and the size of the
/// group. The size is 1 if the cycle contains the whole group.
fn cycles(graph: &Graph) -> Vec<(Vec<&str>, usize)> {
    let mut grouped = BTreeSet::new();
    let mut cycles = Vec::new();
    for start in graph.keys() {
        if grouped.contains(start.as_str()) {
            continue;
        }
        let after = reached(graph, start);
        let group: Vec<&str> =
            after.iter().copied().filter(|to| reached(graph, to).contains(start.as_str())).collect();
        if group.is_empty() {
            continue;
        }
        grouped.extend(group.iter().copied());
        let shortest = group.iter().filter_map(|start| shortest(graph, start)).min_by_key(Vec::len);
        if let Some(cycle) = shortest {
            let size = if group.len() + 1 > cycle.len() { group.len() } else { 1 };
            cycles.push((cycle, size));
        }
    }
    cycles
}

fn reached<'a>(graph: &'a Graph, start: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = graph.get(start).into_iter().flatten().map(String::as_str).collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(graph.get(next).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}

/// A shortest path from a module to itself, with the module at both ends.
fn shortest<'a>(graph: &'a Graph, start: &'a str) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::new();
    let mut open = VecDeque::from([vec![start]]);
    while let Some(way) = open.pop_front() {
        for next in graph.get(*way.last()?).into_iter().flatten() {
            let longer = [&way[..], &[next.as_str()]].concat();
            if next == start {
                return Some(longer);
            }
            if seen.insert(next) {
                open.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::text::text;
    use super::*;

    fn violations(files: &[(&str, &str)]) -> Vec<String> {
        let texts: Vec<_> =
            files.iter().map(|(path, content)| text(&format!("a/src/{path}"), content)).collect();
        check_crate("a", &texts, &[])
    }

    #[test]
    fn rejects_two_modules_that_import_each_other() {
        let violations = violations(&[
            ("lib.rs", "mod x; mod y;"),
            ("x.rs", "use crate::y::Y; pub struct X;"),
            ("y.rs", "pub struct Y(crate::x::X);"),
        ]);
        assert_eq!(violations, ["a: modules import each other: x -> y -> x"]);
    }

    #[test]
    fn reports_one_shortest_cycle_if_several_modules_import_each_other() {
        let violations = violations(&[
            ("lib.rs", "mod x; mod y; mod z;"),
            ("x.rs", "use crate::y::Y; pub struct X;"),
            ("y.rs", "use super::{x, z::Z}; pub struct Y;"),
            ("z.rs", "use crate::x::X; pub struct Z;"),
        ]);
        assert_eq!(violations, ["a: modules import each other: x -> y -> x, one of several among 3 modules"]);
    }

    #[test]
    fn accepts_imports_in_one_direction_between_parent_and_child() {
        let child_first =
            [("lib.rs", "mod x;"), ("x/mod.rs", "mod y; pub struct X;"), ("x/y.rs", "use super::X;")];
        let parent_first =
            [("lib.rs", "mod x;"), ("x/mod.rs", "mod y; use y::Y;"), ("x/y.rs", "pub struct Y;")];
        assert_eq!(violations(&child_first), Vec::<String>::new());
        assert_eq!(violations(&parent_first), Vec::<String>::new());
    }

    #[test]
    fn rejects_a_parent_and_a_child_that_import_each_other() {
        let violations = violations(&[
            ("lib.rs", "mod x;"),
            ("x/mod.rs", "mod y; pub struct X; fn f() { y::g() }"),
            ("x/y.rs", "use super::X; pub fn g() {}"),
        ]);
        assert_eq!(violations, ["a: modules import each other: x -> x::y -> x"]);
    }

    #[test]
    fn follows_re_exports_to_the_definition() {
        let files = |z: &'static str| {
            [
                ("lib.rs", "mod x; pub use x::{Y, Z};"),
                ("x/mod.rs", "mod y; mod z; pub use y::*; pub use z::Z;"),
                ("x/y.rs", "use crate::Z; pub struct Y;"),
                ("x/z.rs", z),
            ]
        };
        assert_eq!(violations(&files("pub struct Z;")), Vec::<String>::new());
        let violations = violations(&files("use crate::x::Y; pub struct Z;"));
        assert_eq!(violations, ["a: modules import each other: x::y -> x::z -> x::y"]);
    }

    #[test]
    fn re_export_that_the_module_uses_is_an_import() {
        let files = |root: &'static str| [("lib.rs", root), ("x.rs", "use crate::Own; pub struct X;")];
        assert_eq!(violations(&files("mod x; pub use x::X; pub struct Own;")), Vec::<String>::new());
        let violations = violations(&files("mod x; pub use x::X; pub struct Own(X);"));
        assert_eq!(violations, ["a: modules import each other: crate -> x -> crate"]);
    }

    #[test]
    fn ignores_imports_of_tests() {
        let violations = violations(&[
            ("lib.rs", "mod x; mod y;"),
            ("x.rs", "pub struct X; #[cfg(test)] mod tests;"),
            ("x/tests.rs", "use crate::y::Y; use super::X;"),
            ("y.rs", "use crate::x::X; pub struct Y; #[cfg(test)] mod tests { use crate::x; }"),
        ]);
        assert_eq!(violations, Vec::<String>::new());
    }

    #[test]
    fn accepts_needed_exceptions_and_rejects_unneeded_exceptions() {
        let texts = [
            text("a/src/lib.rs", "mod x; mod y;"),
            text("a/src/x.rs", "use crate::y::Y; pub struct X;"),
            text("a/src/y.rs", "use crate::x::X; pub struct Y;"),
        ];
        let excepted = |group| check_crate("a", &texts, &[("a", group, "a reason")]);
        assert_eq!(excepted(&["x", "y"]), Vec::<String>::new());
        assert_eq!(excepted(&["*"]), Vec::<String>::new());
        let violations = excepted(&["x::*"]);
        let unneeded = "a: x::*: no cycle any more; remove it from xtask/src/tidy/cycles/exceptions.rs";
        assert_eq!(violations, [unneeded, "a: modules import each other: x -> y -> x"]);
        assert_eq!(check_crate("a", &texts, &[("b", &["x", "y"], "a reason")]).len(), 1);
    }
}
