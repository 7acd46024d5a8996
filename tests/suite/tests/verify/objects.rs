//! Builds the plugin of `tests/bad-plugins`. All files are compiled once without a bug. For each
//! bug, only the files that mention the bug are compiled again.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The plugin's source files.
const FILES: [&str; 16] = [
    "plugin.c",
    "schema.c",
    "numbers.c",
    "device.c",
    "unowned.c",
    "rows_read.c",
    "fragments.c",
    "rows_batch.c",
    "column.c",
    "driver.c",
    "rows_write.c",
    "tensors.c",
    "ipc.c",
    "encoding.c",
    "encoder.c",
    "opener.c",
];

/// The object files of the plugin without a bug.
pub struct Objects {
    folder: PathBuf,
}

impl Objects {
    /// Compiles the files into this folder.
    pub fn compile(folder: &Path) -> Self {
        let objects = Self { folder: folder.to_path_buf() };
        FILES.iter().for_each(|file| _ = objects.object(file, None));
        objects
    }

    /// Links the plugin with this bug, or without a bug.
    pub fn plugin(&self, bug: Option<&str>) -> PathBuf {
        let to = self.folder.join(format!("libcrossdock_{}_plugin.so", bug.unwrap_or("base")));
        let throws = bug.is_some_and(|bug| bug.starts_with("THROWS"));
        let mut link = compiler();
        link.arg("-shared").arg("-o").arg(&to);
        for file in FILES {
            let text = std::fs::read_to_string(source(file)).unwrap();
            // A file depends on the bug only if it contains the bug's name, or `##` in a macro that
            // may compose the name. A bug that throws an exception also changes the header, which
            // every file includes.
            let depends = |bug: &&str| throws || text.contains("##") || text.contains(*bug);
            link.arg(match bug.filter(depends) {
                Some(bug) => self.object(file, Some(bug)),
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

    fn path(&self, file: &str, bug: Option<&str>) -> PathBuf {
        self.folder.join(format!("{}-{file}.o", bug.unwrap_or("base")))
    }

    fn object(&self, file: &str, bug: Option<&str>) -> PathBuf {
        let to = self.path(file, bug);
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugin-api/include");
        let mut compile = compiler();
        compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-c"]);
        compile.arg("-I").arg(include).arg("-o").arg(&to);
        compile.args(bug.iter().flat_map(|bug| [format!("-DBUG={bug}"), format!("-DBUG_{bug}")]));
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
