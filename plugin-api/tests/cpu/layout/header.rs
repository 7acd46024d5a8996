//! Parses the declarations in `crossdock.h`.

pub const HEADER: &str = include_str!("../../../include/crossdock.h");

/// Returns the header without its comments.
pub fn code() -> String {
    let mut code = String::new();
    let mut rest = HEADER;
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code + rest
}

/// Returns the C types of all structs that have a body.
pub fn structs() -> Vec<String> {
    let mut names = Vec::new();
    for line in code().lines().filter(|line| line.ends_with('{')) {
        if let Some(name) = line.strip_prefix("typedef struct ") {
            names.push(name.trim_end_matches(['{', ' ']).to_owned());
        } else if line.starts_with("struct ") {
            names.push(line.trim_end_matches(['{', ' ']).to_owned());
        }
    }
    names
}

/// Returns the names of a struct's fields, in order.
pub fn fields(name: &str) -> Vec<String> {
    let code = code();
    let plain = name.trim_start_matches("struct ");
    let (_, body) = code.split_once(&format!("struct {plain} {{")).unwrap();
    let (body, _) = body.split_once("\n}").unwrap();
    body.split(';').map(str::trim).filter(|field| !field.is_empty()).map(field_name).collect()
}

/// Returns the name in a declaration such as `crossdock_code (*open)(...)`, `char name[64]` or
/// `const void** buffers`.
fn field_name(declaration: &str) -> String {
    let name = match declaration.split_once("(*") {
        Some((_, function)) => function.split_once(')').unwrap().0,
        None => declaration.split_once('[').map_or(declaration, |(name, _)| name),
    };
    name.rsplit([' ', '*']).next().unwrap().to_owned()
}

/// Returns the names and values of the macros whose value is a number or a string.
pub fn constants() -> Vec<(String, String)> {
    let code = code();
    let defines = code.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
    defines
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .filter(|(name, value)| {
            !name.contains('(')
                && (value.starts_with(|c: char| c.is_ascii_digit() || c == '"')
                    || value.starts_with("UINT64_C("))
        })
        .collect()
}

/// Returns the types in `CROSSDOCK_META_SIZES_INIT`, in order, without the keyword `struct`.
pub fn meta_sizes() -> Vec<String> {
    let code = code();
    let (_, list) = code.split_once("#define CROSSDOCK_META_SIZES_INIT").unwrap();
    let (list, _) = list.split_once('}').unwrap();
    let sizes = list.split("sizeof(").skip(1).map(|rest| rest.split_once(')').unwrap().0);
    sizes.map(|name| name.trim_start_matches("struct ").to_owned()).collect()
}

#[test]
fn parses_structs_fields_and_constants() {
    assert!(structs().contains(&"struct ArrowDeviceArray".to_owned()));
    assert!(structs().contains(&"crossdock_plugin_meta".to_owned()));
    assert_eq!(
        fields("struct ArrowDeviceArray"),
        ["array", "device_id", "device_type", "sync_event", "reserved"]
    );
    assert_eq!(field_name("void (*release)(struct ArrowArray*)"), "release");
    assert!(constants().contains(&("CROSSDOCK_BAD_DATA".to_owned(), "3".to_owned())));
    assert!(
        constants()
            .iter()
            .all(|(name, _)| name != "CROSSDOCK_EXPORT" && !name.starts_with("CROSSDOCK_GUARD"))
    );
}
