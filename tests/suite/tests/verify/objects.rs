//! How the plugin of `tests/bad-plugins` is built: once without a sin, and for each sin the files that know of it again.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What it is built of.
const FILES: [&str; 13] = [
    "plugin.c",
    "schema.c",
    "numbers.c",
    "device.c",
    "unowned.c",
    "rows_read.c",
    "rows_batch.c",
    "column.c",
    "driver.c",
    "rows_write.c",
    "tensors.c",
    "ipc.c",
    "encoding.c",
];

/// The files of the plugin without a sin, compiled.
pub struct Objects {
    folder: PathBuf,
}

impl Objects {
    /// Into this folder.
    pub fn compile(folder: &Path) -> Self {
        let objects = Self { folder: folder.to_path_buf() };
        FILES.iter().for_each(|file| _ = objects.object(file, None));
        objects
    }

    /// The plugin, with this sin or none.
    pub fn plugin(&self, sin: Option<&str>) -> PathBuf {
        let to = self.folder.join(format!("libcrossdock_{}_plugin.so", sin.unwrap_or("base")));
        let throws = sin.is_some_and(|sin| sin.starts_with("THROWS"));
        let mut link = compiler();
        link.arg("-shared").arg("-o").arg(&to);
        for file in FILES {
            let text = std::fs::read_to_string(source(file)).unwrap();
            // A file without the sin's name is compiled to the same with it. Macros may put the name together, and of
            // exceptions the header knows, for all files.
            let knows = |sin: &&str| throws || text.contains("##") || text.contains(*sin);
            link.arg(match sin.filter(knows) {
                Some(sin) => self.object(file, Some(sin)),
                None => self.path(file, None),
            });
        }
        if throws {
            let object = self.folder.join("throws.o");
            let mut cpp = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
            run(cpp.args(["-fPIC", "-c", "-o"]).arg(&object).arg(source("throws.cpp")));
            link.arg(object).arg("-lstdc++");
        }
        run(&mut link);
        to
    }

    fn path(&self, file: &str, sin: Option<&str>) -> PathBuf {
        self.folder.join(format!("{}-{file}.o", sin.unwrap_or("base")))
    }

    fn object(&self, file: &str, sin: Option<&str>) -> PathBuf {
        let to = self.path(file, sin);
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugin-api/include");
        let mut compile = compiler();
        compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-c"]);
        compile.arg("-I").arg(include).arg("-o").arg(&to);
        compile.args(sin.iter().flat_map(|sin| [format!("-DSIN={sin}"), format!("-DSIN_{sin}")]));
        run(compile.arg(source(file)));
        to
    }
}

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bad-plugins").join(file)
}

fn compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}
