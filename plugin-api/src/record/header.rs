//! Headers against each other: the types of fields, the signatures of functions, the values of constants. As much
//! reading of C as this one header needs; what it means is the C compiler's to say.

/// Constants that follow from others, or say what is compared here.
const FREE: &[&str] = &["CROSSDOCK_ABI_MAJOR", "CROSSDOCK_ABI_MINOR", "CROSSDOCK_META_N_SIZES"];

pub(super) fn compare(released: &str, today: &str, breaks: &mut Vec<String>, appends: &mut Vec<String>) {
    let (before, now) = (code(released), code(today));
    let bodies = bodies(&now);
    for (name, old) in self::bodies(&before) {
        // The layout tables tell of structs that are gone, and of fields that were appended.
        let Some((_, new)) = bodies.iter().find(|(n, _)| *n == name) else { continue };
        for (i, old) in old.iter().enumerate() {
            if new.get(i) != Some(old) {
                let new = new.get(i).map_or("nothing", String::as_str);
                breaks.push(format!("struct {name}: '{new}', was '{old}'"));
            }
        }
    }
    let constants = constants(&now);
    for (name, old) in self::constants(&before) {
        match constants.iter().find(|(n, _)| *n == name) {
            _ if FREE.contains(&name.as_str()) => {}
            Some((_, new)) if *new == old || (new.starts_with(&old) && old.starts_with("{ sizeof")) => {}
            Some((_, new)) => breaks.push(format!("{name}: '{new}', was '{old}'")),
            None => breaks.push(format!("{name} is gone")),
        }
    }
    let names: Vec<_> = self::constants(&before).into_iter().map(|(name, _)| name).collect();
    appends.extend(
        constants.iter().filter(|(n, _)| !names.contains(n)).map(|(name, _)| format!("{name} is new")),
    );
    let typedefs = typedefs(&now);
    let gone = self::typedefs(&before).into_iter().filter(|old| !typedefs.contains(old));
    breaks.extend(gone.map(|old| format!("'{old}' is gone")));
}

/// Without comments, and with lines that go on joined.
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

/// Each struct's name and the declarations of its fields.
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

/// `#define NAME VALUE` of everything that is a value: (name, value).
fn constants(code: &str) -> Vec<(String, String)> {
    let defines = code.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
    defines
        .map(|(name, value)| (name.to_owned(), squeeze(value).trim_end_matches(['}', ' ']).to_owned()))
        .filter(|(name, _)| !name.contains('(') && name != "CROSSDOCK_EXPORT")
        .collect()
}

/// `typedef int32_t crossdock_code;`
fn typedefs(code: &str) -> Vec<String> {
    let lines = code.lines().map(squeeze);
    lines.filter(|line| line.starts_with("typedef ") && line.ends_with(';')).collect()
}
