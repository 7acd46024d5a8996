//! Compares two layout tables.

struct Struct<'a> {
    name: &'a str,
    size: usize,
    align: usize,
    /// The name and the offset in bytes of each field.
    fields: Vec<(&'a str, usize)>,
}

impl Struct<'_> {
    /// Whether the struct may grow in later releases.
    fn has_struct_size(&self) -> bool {
        self.fields.iter().any(|(name, _)| *name == "struct_size")
    }
}

/// Parses the structs of a table. Skips lines that cannot be parsed, because another test compares
/// the whole text.
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

pub(super) fn compare(released: &str, current: &str, breaks: &mut Vec<String>, appends: &mut Vec<String>) {
    let (released, current) = (structs(released), structs(current));
    for old in &released {
        match current.iter().find(|new| new.name == old.name) {
            Some(new) => compare_struct(old, new, breaks, appends),
            None => breaks.push(format!("{} was removed", old.name)),
        }
    }
    let added = current.iter().filter(|new| released.iter().all(|old| old.name != new.name));
    appends.extend(added.map(|new| format!("{} is new", new.name)));
}

fn compare_struct(old: &Struct<'_>, new: &Struct<'_>, breaks: &mut Vec<String>, appends: &mut Vec<String>) {
    let name = old.name;
    if old.align != new.align {
        breaks.push(format!("{name}: the alignment is {} bytes, was {}", new.align, old.align));
    }
    for (i, (field, offset)) in old.fields.iter().enumerate() {
        match new.fields.get(i) {
            Some(new) if *new == (*field, *offset) => {}
            Some((new, new_offset)) => {
                breaks.push(format!("{name}: '{new}' at {new_offset}, was '{field}' at {offset}"));
            }
            None => breaks.push(format!("{name}: '{field}' was removed")),
        }
    }
    let appended = new.fields.get(old.fields.len()..).unwrap_or_default();
    if appended.is_empty() && old.size != new.size {
        breaks.push(format!(
            "{name}: the size is {} bytes, was {}, but no field was appended: the size of a field has changed",
            new.size, old.size
        ));
    }
    for (field, offset) in appended {
        if !old.has_struct_size() {
            breaks.push(format!("{name}: '{field}' was appended to a struct without a struct_size"));
        } else if *offset < old.size {
            // Builds of the old release include this padding in their struct_size, but do not set
            // it. New builds would read undefined bytes as the value of the field.
            breaks.push(format!(
                "{name}: '{field}' at {offset} is in the former padding of {} bytes: put a reserved field before it",
                old.size
            ));
        } else {
            appends.push(format!("{name}: '{field}' was appended"));
        }
    }
}
