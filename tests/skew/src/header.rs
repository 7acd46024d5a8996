//! Headers of releases that are not there yet, or not any more, made from one that is.

use crossdock_plugin_api::{layout, sizes};

/// The header with four words more at the end of each struct that tells its size.
pub fn grown(header: &str) -> String {
    let mut n = 0;
    let grown = each_struct(header, |_, body| {
        let tells = body.contains("struct_size;");
        n += usize::from(tells);
        format!("{body}{}", if tells { "\n  uint64_t later[4];" } else { "" })
    });
    assert!(n > 20, "only {n} structs were found to grow");
    grown
}

/// The header with nothing in each struct but what today's host cannot do without.
pub fn shorter(header: &str) -> String {
    let mut n = 0;
    let least: Vec<_> = sizes::told().into_iter().filter(|(_, least, bytes)| least < bytes).collect();
    let layouts = layout::layouts();
    let shorter = each_struct(header, |name, body| {
        let Some((_, least, _)) = least.iter().find(|(told, ..)| *told == name) else { return body.into() };
        let layout = layouts.iter().find(|layout| layout.name == name).unwrap();
        let (first, _) = layout.fields.iter().find(|(_, offset)| offset == least).unwrap();
        let mut kept: Vec<&str> = body.split(';').collect();
        let declares =
            |text: &&str| text.contains(&format!(" {first}")) || text.contains(&format!("(*{first})"));
        // A release that has no such field is short enough.
        if let Some(at) = kept.iter().position(declares) {
            n += 1;
            kept.truncate(at);
            return kept.join(";") + ";";
        }
        body.into()
    });
    assert!(n > 8, "only {n} structs were found to cut");
    shorter
}

/// Gives each struct's name and fields, without comments, to `change`, and puts its answer in their place.
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
