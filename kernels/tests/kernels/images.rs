//! Tests that the images, their sources and the table agree, without a device. The headers of the
//! images show whether the oldest supported driver can load them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crossdock_kernels::NumberType;
use crossdock_kernels::table::{Kind, TABLE, check_launch};
use crossdock_plugin_api::abi;
use object::{Object, ObjectSymbol};

/// The newest version that the driver of CUDA 12.2 accepts.
const PTX_VERSION: (u32, u32) = (8, 2);

/// The package's folder. This is the folder in which the package was built or, if the test was
/// copied elsewhere, the current folder.
fn folder() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    if built.exists() { built } else { PathBuf::from(".") }
}

/// The kind, architecture and bytes of each image.
fn images() -> Vec<(u32, u32, Vec<u8>)> {
    let set = crossdock_kernel_library::images();
    let word = |at: usize| u64::from_le_bytes(set[at..at + 8].try_into().unwrap()) as usize;
    assert_eq!(word(0) as u64, abi::IMAGE_SET_MAGIC);
    assert_eq!(word(8), set.len());
    (0..word(16))
        .map(|i| {
            let row = size_of::<abi::ImageSet>() + i * size_of::<abi::Image>();
            let (kind, architecture) = (word(row) as u32, (word(row) >> 32) as u32);
            (kind, architecture, set[word(row + 8)..][..word(row + 16)].to_vec())
        })
        .collect()
}

/// The CUDA sources with kernels, concatenated.
fn sources() -> String {
    let files = fs::read_dir(folder().join("cuda")).unwrap().map(|file| file.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|e| e == "cu"));
    sources.map(|path| fs::read_to_string(path).unwrap()).collect()
}

fn names() -> BTreeSet<String> {
    TABLE.iter().map(|row| row.name.to_str().unwrap().to_owned()).collect()
}

#[test]
fn images_have_exactly_the_kernels_of_the_table() {
    let images = images();
    let architectures: Vec<(u32, u32)> = images.iter().map(|(kind, sm, _)| (*kind, *sm)).collect();
    assert_eq!(
        architectures,
        [(abi::IMAGE_CUBIN, 70), (abi::IMAGE_CUBIN, 80), (abi::IMAGE_CUBIN, 90), (abi::IMAGE_PTX, 70)]
    );
    for (kind, architecture, image) in &images {
        let entries: BTreeSet<String> = if *kind == abi::IMAGE_CUBIN {
            let elf = object::File::parse(image.as_slice()).unwrap();
            let functions = elf.symbols().filter(|s| s.is_global() && s.is_definition());
            let names = functions.map(|s| s.name().unwrap().to_owned());
            names.filter(|name| name.starts_with("crossdock_")).collect()
        } else {
            let (nul, text) = image.split_last().unwrap();
            assert_eq!(*nul, 0, "PTX ends in a NUL");
            let entries = std::str::from_utf8(text).unwrap().split(".visible .entry ").skip(1);
            entries.map(|rest| rest.split('(').next().unwrap().to_owned()).collect()
        };
        assert_eq!(entries, names(), "{architecture}");
    }
}

#[test]
fn images_load_on_driver_of_cuda_12_2() {
    for (kind, architecture, image) in images() {
        if kind == abi::IMAGE_CUBIN {
            // Checks e_ident[EI_OSABI], e_ident[EI_ABIVERSION], the architecture in e_flags, and
            // the toolkit version in e_version. The expected values are the ones that toolkits up
            // to 12.x write.
            assert_eq!(&image[..4], b"\x7fELF");
            assert_eq!((image[7], image[8]), (0x33, 7), "sm_{architecture}: the ABI of CUDA 12's cubins");
            let flags = u32::from_le_bytes(image[48..52].try_into().unwrap());
            assert_eq!(flags & 0xff, architecture, "e_flags {flags:#x}");
            let toolkit = u32::from_le_bytes(image[20..24].try_into().unwrap());
            assert!(toolkit <= 122, "sm_{architecture}: compiled by toolkit {toolkit}");
        } else {
            let text = String::from_utf8_lossy(&image).into_owned();
            let version = text.lines().find_map(|line| line.strip_prefix(".version ")).unwrap();
            let (major, minor) = version.trim().split_once('.').unwrap();
            let version: (u32, u32) = (major.parse().unwrap(), minor.parse().unwrap());
            assert!(version <= PTX_VERSION, "PTX {version:?}");
            assert!(text.contains(&format!(".target sm_{architecture}\n")));
        }
    }
}

#[test]
fn sources_and_table_have_the_same_argument_names() {
    let sources = sources();
    let (mut kernels, mut shared) = (BTreeSet::new(), "");
    // KERNEL(name) or KERNEL_BLOCKS(name, blocks).
    for kernel in sources.split("\nKERNEL").skip(1) {
        let (head, rest) = kernel.split_once(')').unwrap();
        let name = head.split(['(', ',']).nth(1).unwrap();
        // A kernel without a list of argument names calls the preceding function of the source, and
        // has the argument names of that function.
        let list = rest.split("PARAMS(").nth(1).unwrap_or(shared);
        shared = rest.rsplit_once("PARAMS(").map_or(shared, |(_, last)| last);
        let (list, _) = list.split_once(')').unwrap();
        let listed: Vec<String> = list.split(',').map(|name| name.trim().to_lowercase()).collect();
        let row = TABLE.iter().find(|row| row.name.to_str() == Ok(name));
        let row = row.unwrap_or_else(|| panic!("{name} has no row in the table"));
        let params: Vec<&str> = row.params.iter().map(|param| param.name).collect();
        // The last name is the name of the first repeatable argument.
        let names_of_params =
            if row.tail.is_empty() { listed.as_slice() } else { listed.split_last().unwrap().1 };
        assert_eq!(names_of_params, params, "{name}");
        kernels.insert(name.to_owned());
    }
    assert_eq!(kernels, names());
}

#[test]
fn kernel_accepts_only_complete_groups_of_repeatable_arguments() {
    let gather = TABLE.iter().find(|row| row.name == c"crossdock_gather").unwrap();
    assert!(gather.accepts(4) && !gather.accepts(5) && gather.accepts(8) && !gather.accepts(3));
    assert_eq!(
        [gather.kind(0), gather.kind(3), gather.kind(9)],
        [Some(Kind::Read), Some(Kind::Write), Some(Kind::Value)]
    );
    let count = TABLE.iter().find(|row| row.name == c"crossdock_null_count").unwrap();
    assert!(count.accepts(4) && !count.accepts(5));
    assert_eq!(count.kind(4), None);
}

#[test]
fn check_launch_rejects_jobs_that_do_not_match_table() {
    let arg = |kind, value| abi::Arg { value, bytes: 0, kind, reserved: 0 };
    let (value, read, write) = (abi::ARG_VALUE, abi::ARG_READ, abi::ARG_WRITE);
    let job = |n: u64, end: u64| [arg(value, n << 32 | end), arg(read, 0), arg(value, 0), arg(write, 0)];
    let check = |blocks, args: &[abi::Arg]| check_launch(c"crossdock_pack_bytes", blocks, args).unwrap();
    assert_eq!(check(3, &[job(4, 1), job(4, 3)].concat()), Ok(()));
    assert_eq!(check_launch(c"crossdock_unheard_of", 1, &[]), None);
    let assert_rejected = |blocks, args: &[abi::Arg], what: &str| {
        let error = check(blocks, args).unwrap_err();
        assert!(error.starts_with("crossdock_pack_bytes: ") && error.contains(what), "{error}");
    };
    assert_rejected(4, &job(4, 3), "the launch has 4 blocks, but the jobs have 3 blocks");
    assert_rejected(2, &job(4, 3), "a job has blocks 0..3, but the launch has 2 blocks");
    assert_rejected(3, &job(3, 3), "a job has 3 of the remaining 4 arguments");
    assert_rejected(3, &job(5, 3), "a job has 5 of the remaining 4 arguments");
    assert_rejected(
        3,
        &[arg(value, 4 << 32 | 3), arg(write, 0), arg(value, 0), arg(write, 0)],
        "argument 0 is of kind 2",
    );
}

/// Removes comments and normalizes white space.
fn plain(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code += rest;
    code.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn sources_and_header_have_the_same_types() {
    let header = plain(&fs::read_to_string(folder().join("../plugin-api/include/crossdock.h")).unwrap());
    let source = plain(&fs::read_to_string(folder().join("cuda/crossdock.cuh")).unwrap());
    for (from, to) in [
        ("typedef struct crossdock_arg {", "} crossdock_arg;"),
        ("typedef struct crossdock_kernel_args {", "} crossdock_kernel_args;"),
        ("typedef uint32_t crossdock_arg_kind;", "#define CROSSDOCK_ARG_WRITE 2u"),
        ("#define CROSSDOCK_MAX_KERNEL_ARGS", "168"),
    ] {
        let cut = |text: &str| {
            let begin = text.find(from).unwrap_or_else(|| panic!("`{from}` is missing"));
            text[begin..][..text[begin..].find(to).unwrap() + to.len()].to_owned()
        };
        assert_eq!(cut(&source), cut(&header));
    }
}

#[test]
fn sources_and_launchers_have_the_same_number_types() {
    let source = fs::read_to_string(folder().join("cuda/numbers.cuh")).unwrap();
    let (_, rows) = source.split_once("#define NUMBER_TYPES(X)").unwrap();
    let rows =
        rows.lines().map_while(|line| line.trim().strip_prefix("X(").or((line == " \\").then_some("")));
    let types: Vec<String> = rows.filter(|row| !row.is_empty()).map(|row| row.replace(' ', "")).collect();
    assert_eq!(types.len(), NumberType::ALL.len());
    for (i, (row, number_type)) in types.iter().zip(NumberType::ALL).enumerate() {
        assert!(row.starts_with(&format!("{i},{},", number_type.name())), "{row}");
        assert_eq!(*number_type as usize, i);
    }
}
