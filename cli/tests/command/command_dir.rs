//! The command in a directory without plugins.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A directory that contains only the command.
pub struct CommandDir(tempfile::TempDir);

impl CommandDir {
    pub fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // The command is a hard link, because a copy could still be open for writing in a child
        // process that another test has just forked.
        let built =
            std::env::var_os("CROSSDOCK_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_crossdock").into());
        std::fs::hard_link(built, directory.path().join("crossdock")).unwrap();
        Self(directory)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(self.path().join("crossdock"));
        command
            .current_dir(self.path())
            .env_remove("CROSSDOCK_PLUGIN_PATH")
            .env_remove("CROSSDOCK_LOG")
            .env_remove("CROSSDOCK_POLICY")
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env("XDG_STATE_HOME", self.path().join("state"))
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// Runs the command, which must fail and print one line on standard error. Returns the exit
    /// status and the line.
    pub fn fails(&self, args: &[&str]) -> (i32, String) {
        let output = self.run(args);
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(line.starts_with("error: ") && line.trim_end().lines().count() == 1, "{line}");
        (output.status.code().unwrap(), line)
    }
}

pub fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&stdout(output)).unwrap()
}
