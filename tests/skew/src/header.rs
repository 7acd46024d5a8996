//! Derives headers of later and earlier releases from an existing header.

use crossdock_plugin_api::{layout, sizes};

/// The header of a later release: each sized struct has four more words at its end.
pub fn grown(header: &str) -> String {
    let mut n = 0;
    let grown = each_struct(header, |_, body| {
        let is_sized = body.contains("struct_size;");
        n += usize::from(is_sized);
        format!("{body}{}", if is_sized { "\n  uint64_t later[4];" } else { "" })
    });
    assert!(n > 20, "expected more than 20 sized structs, got {n}");
    grown
}

/// The header of an earlier release: each struct has only the fields that the current host
/// requires.
pub fn shorter(header: &str) -> String {
    let mut n = 0;
    let required: Vec<_> =
        sizes::sized_structs().into_iter().filter(|(_, required, bytes)| required < bytes).collect();
    let layouts = layout::layouts();
    let shorter = each_struct(header, |name, body| {
        let Some((_, required, _)) = required.iter().find(|(sized, ..)| *sized == name) else {
            return body.into();
        };
        let layout = layouts.iter().find(|layout| layout.name == name).unwrap();
        let (first, _) = layout.fields.iter().find(|(_, offset)| offset == required).unwrap();
        let mut fields: Vec<&str> = body.split(';').collect();
        let declares =
            |text: &&str| text.contains(&format!(" {first}")) || text.contains(&format!("(*{first})"));
        // If the header lacks the struct's first optional field, the struct has only required
        // fields.
        if let Some(at) = fields.iter().position(declares) {
            n += 1;
            fields.truncate(at);
            return fields.join(";") + ";";
        }
        body.into()
    });
    assert!(n > 8, "expected more than 8 structs with optional fields, got {n}");
    shorter
}

/// Replaces the body of each struct with the result of `change`. Its arguments are the name of the
/// struct, and its fields without comments.
fn each_struct(header: &str, mut change: impl FnMut(&str, &str) -> String) -> String {
    let (mut text, mut rest) = (String::new(), without_comments(header));
    while let Some(at) = rest.find("typedef struct crossdock_") {
        let Some((head, body)) = rest[at..].split_once('{').filter(|(head, _)| !head.contains(';')) else {
            let end = at + "typedef".len();
            text += &rest[..end];
            rest = rest.split_off(end);
            continue;
        };
        let name = head.trim_start_matches("typedef struct").trim();
        let (body, after) = body.split_once("\n}").unwrap();
        text += &format!("{}{head}{{{}\n}}", &rest[..at], change(name, body));
        rest = after.to_owned();
    }
    text + &rest
}

fn without_comments(header: &str) -> String {
    let (mut text, mut rest) = (String::new(), header);
    while let Some((before, comment)) = rest.split_once("/*") {
        text += before;
        rest = comment.split_once("*/").unwrap().1;
    }
    text + rest
}
