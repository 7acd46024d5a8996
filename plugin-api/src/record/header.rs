//! Compares the types of fields, the signatures of functions, and the values of constants in two
//! versions of the header. The parser supports only the part of C that the header uses.

/// Constants whose values may change between releases: the parts of the version, and the length of
/// a list to which a release may append.
const VARIABLE: &[&str] = &[
    "CROSSDOCK_ABI_MAJOR",
    "CROSSDOCK_ABI_MINOR",
    "CROSSDOCK_ABI_PATCH",
    "CROSSDOCK_API_RANGE",
    "CROSSDOCK_META_N_SIZES",
];

pub(super) fn compare(released: &str, current: &str, breaks: &mut Vec<String>, appends: &mut Vec<String>) {
    let (released, current) = (code(released), code(current));
    let new_bodies = bodies(&current);
    for (name, old) in bodies(&released) {
        // This function does not report removed structs and appended fields, because
        // `table::compare` reports them.
        let Some((_, new)) = new_bodies.iter().find(|(n, _)| *n == name) else { continue };
        for (i, old) in old.iter().enumerate() {
            if new.get(i) != Some(old) {
                let new = new.get(i).map_or("nothing", String::as_str);
                breaks.push(format!("struct {name}: '{new}', was '{old}'"));
            }
        }
    }
    let (old_constants, new_constants) = (constants(&released), constants(&current));
    for (name, old) in &old_constants {
        match new_constants.iter().find(|(n, _)| n == name) {
            _ if VARIABLE.contains(&name.as_str()) => {}
            Some((_, new)) if new == old || (new.starts_with(old) && old.starts_with("{ sizeof")) => {}
            Some((_, new)) => breaks.push(format!("{name}: '{new}', was '{old}'")),
            None => breaks.push(format!("{name} was removed")),
        }
    }
    let is_new = |name: &String| old_constants.iter().all(|(old, _)| old != name);
    let added = new_constants.iter().filter(|(name, _)| is_new(name));
    appends.extend(added.map(|(name, _)| format!("{name} is new")));
    let new_typedefs = typedefs(&current);
    let removed = typedefs(&released).into_iter().filter(|old| !new_typedefs.contains(old));
    breaks.extend(removed.map(|old| format!("'{old}' was removed")));
}

/// Compares which structs the headers define, whether fields were appended, and the declarations of
/// functions. For a header with a layout table, `table::compare` does the first two.
pub(super) fn compare_declarations(
    released: &str,
    current: &str,
    breaks: &mut Vec<String>,
    appends: &mut Vec<String>,
) {
    let (released, current) = (code(released), code(current));
    let (old_bodies, new_bodies) = (bodies(&released), bodies(&current));
    for (name, old) in &old_bodies {
        let Some((_, new)) = new_bodies.iter().find(|(n, _)| n == name) else {
            breaks.push(format!("struct {name} was removed"));
            continue;
        };
        for field in new.iter().skip(old.len()) {
            let is_sized = old.first().is_some_and(|field| field == "size_t struct_size");
            let to = if is_sized { &mut *appends } else { &mut *breaks };
            to.push(format!("struct {name}: '{field}' was appended"));
        }
    }
    let is_new = |name: &String| old_bodies.iter().all(|(old, _)| old != name);
    appends
        .extend(new_bodies.iter().filter(|(name, _)| is_new(name)).map(|(name, _)| format!("{name} is new")));
    let (old_functions, new_functions) = (functions(&released), functions(&current));
    let differs = |old: &&String| !new_functions.contains(old);
    breaks.extend(old_functions.iter().filter(differs).map(|old| format!("'{old}' was removed")));
    let is_new = |new: &&String| !old_functions.contains(new);
    appends.extend(new_functions.iter().filter(is_new).map(|new| format!("'{new}' is new")));
}

/// Returns the declarations of functions, which begin at the start of a line.
fn functions(code: &str) -> Vec<String> {
    let is_begin = |line: &str| {
        line.starts_with(|c: char| c.is_ascii_alphabetic())
            && line.contains('(')
            && !["typedef ", "static ", "extern "].iter().any(|word| line.starts_with(word))
    };
    let mut functions = Vec::new();
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if !is_begin(line) {
            continue;
        }
        let mut declaration = line.to_owned();
        while !declaration.contains(';') {
            let Some(more) = lines.next() else { break };
            declaration = declaration + " " + more;
        }
        functions.push(squeeze(&declaration));
    }
    functions
}

/// Removes comments from the header and joins continued lines.
fn code(text: &str) -> String {
    let (mut code, mut rest) = (String::new(), text);
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    (code + rest).replace("\\\n", " ")
}

fn squeeze(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the name of each struct of the header, and the declarations of its fields.
fn bodies(code: &str) -> Vec<(String, Vec<String>)> {
    let mut bodies = Vec::new();
    let mut rest = code;
    while let Some((head, after)) = rest.split_once(" {\n") {
        rest = after;
        let line = head.rsplit('\n').next().unwrap_or_default();
        let Some(name) = line.strip_prefix("typedef struct ").or_else(|| line.strip_prefix("struct ")) else {
            continue;
        };
        let body = after.split_once("\n}").map_or("", |(body, _)| body);
        let fields = body.split(';').map(squeeze).filter(|field| !field.is_empty()).collect();
        bodies.push((name.to_owned(), fields));
    }
    bodies
}

/// Returns the names and values of the macros that have a value and no parameters.
fn constants(code: &str) -> Vec<(String, String)> {
    let defines = code.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
    defines
        .map(|(name, value)| (name.to_owned(), squeeze(value).trim_end_matches(['}', ' ']).to_owned()))
        .filter(|(name, _)| !name.contains('(') && name != "CROSSDOCK_EXPORT")
        .collect()
}

/// Returns the typedefs of scalar types, such as `typedef int32_t crossdock_code;`
fn typedefs(code: &str) -> Vec<String> {
    let lines = code.lines().map(squeeze);
    lines.filter(|line| line.starts_with("typedef ") && line.ends_with(';')).collect()
}
