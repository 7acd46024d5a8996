//! Layout tables against each other: where everything lies.

struct Struct<'a> {
    name: &'a str,
    size: usize,
    align: usize,
    /// (name, offset)
    fields: Vec<(&'a str, usize)>,
}

impl Struct<'_> {
    /// Only what tells its size may grow.
    fn tells_size(&self) -> bool {
        self.fields.iter().any(|(name, _)| *name == "struct_size")
    }
}

/// The structs of a table; lines that are none are passed over, for the tables are compared as texts elsewhere.
fn structs(text: &str) -> Vec<Struct<'_>> {
    let mut structs: Vec<Struct<'_>> = Vec::new();
    for line in text.lines().skip(1) {
        if let Some((offset, name)) = line.strip_prefix("  ").and_then(|field| field.trim().split_once(' ')) {
            if let (Some(last), Ok(offset)) = (structs.last_mut(), offset.parse()) {
                last.fields.push((name, offset));
            }
        } else if let Some((name, rest)) = line.split_once(": size ")
            && let Some((size, align)) = rest.split_once(" align ")
            && let (Ok(size), Ok(align)) = (size.parse(), align.parse())
        {
            structs.push(Struct { name, size, align, fields: Vec::new() });
        }
    }
    structs
}

pub(super) fn compare(released: &str, today: &str, breaks: &mut Vec<String>, appends: &mut Vec<String>) {
    let (before, now) = (structs(released), structs(today));
    for old in &before {
        match now.iter().find(|new| new.name == old.name) {
            Some(new) => compare_struct(old, new, breaks, appends),
            None => breaks.push(format!("{} is gone", old.name)),
        }
    }
    let new = now.iter().filter(|new| before.iter().all(|old| old.name != new.name));
    appends.extend(new.map(|new| format!("{} is new", new.name)));
}

fn compare_struct(old: &Struct<'_>, new: &Struct<'_>, breaks: &mut Vec<String>, appends: &mut Vec<String>) {
    let name = old.name;
    if old.align != new.align {
        breaks.push(format!("{name}: aligned to {} bytes, was to {}", new.align, old.align));
    }
    for (i, (field, offset)) in old.fields.iter().enumerate() {
        match new.fields.get(i) {
            Some(found) if *found == (*field, *offset) => {}
            Some((found, at)) => {
                breaks.push(format!("{name}: '{found}' at {at}, where '{field}' was at {offset}"));
            }
            None => breaks.push(format!("{name}: '{field}' is gone")),
        }
    }
    let appended = new.fields.get(old.fields.len()..).unwrap_or_default();
    if appended.is_empty() && old.size != new.size {
        breaks.push(format!(
            "{name}: {} bytes, was {}, and no field was appended: one of its fields has changed its size",
            new.size, old.size
        ));
    }
    for (field, offset) in appended {
        if !old.tells_size() {
            breaks.push(format!("{name}: '{field}' was appended, and it has no struct_size that would tell"));
        } else if *offset < old.size {
            // Whoever was built before fills nothing in there, and its struct_size covers it all the same.
            breaks.push(format!(
                "{name}: '{field}' at {offset} lies in what was padding of {} bytes: put a reserved field before it",
                old.size
            ));
        } else {
            appends.push(format!("{name}: '{field}' was appended"));
        }
    }
}
