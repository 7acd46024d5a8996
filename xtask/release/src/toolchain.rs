//! A compiler and linker for an older glibc, and the environment of reproducible builds.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::work::{Work, output, pinned, run, write};

/// Zig contains the symbols of every glibc. cargo-zigbuild translates the arguments of rustc and of
/// build scripts for it.
const TOOLS: [&str; 2] = ["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];
/// Writes the metadata of the wheel. The tests use it too.
const MATURIN: &str = "maturin";

/// The environment of builds.
pub struct Toolchain {
    variables: Vec<(String, OsString)>,
    /// The environments of Python in which the tools are installed.
    environments: Vec<PathBuf>,
}

/// The interpreters for which wheels are built: any for the stable ABI, and the free-threaded one,
/// which has no stable ABI.
const PYTHONS: [&str; 2] = ["python3", "python3.14t"];

impl Toolchain {
    /// Makes a command build for the older glibc.
    pub fn apply(&self, command: &mut Command) {
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
    }

    /// The Python interpreters in whose environments the tools are installed.
    pub fn pythons(&self) -> impl Iterator<Item = Command> {
        self.environments.iter().map(|folder| {
            let bin = folder.join("bin");
            let mut python = Command::new(bin.join("python"));
            let mut path = bin.into_os_string();
            path.push(":");
            path.push(std::env::var_os("PATH").unwrap_or_default());
            python.env("PATH", path);
            python
        })
    }
}

/// The name of this machine's target in the environment variables of Cargo.
fn target() -> Result<String> {
    let text = output(Command::new("rustc").arg("-vV"))?;
    let text = String::from_utf8(text)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV: no host")?;
    Ok(host.to_owned())
}

/// Installs the tools in virtual environments, unless this has been done.
pub fn prepare(work: &Work) -> Result<Toolchain> {
    let target = target()?;
    let cpu = match target.split_once('-') {
        Some((cpu @ ("x86_64" | "aarch64"), "unknown-linux-gnu")) => cpu,
        _ => bail!(
            "releases are built on x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu, not on {target}"
        ),
    };
    let mut environments = Vec::new();
    for python in PYTHONS {
        match environment(work, python)? {
            Some(environment) => environments.push(environment),
            None => eprintln!("{python} is not on the PATH: no wheel is built for it"),
        }
    }
    let folder = environments.first().context("python3 is not on the PATH")?.clone();
    let mut variables: Vec<(String, OsString)> = Vec::new();
    let upper = target.replace('-', "_").to_uppercase();
    for (tool, names) in [
        ("cc", vec![format!("CARGO_TARGET_{upper}_LINKER"), "CC".to_owned()]),
        ("c++", vec!["CXX".to_owned()]),
    ] {
        let script = wrapper(work, &folder, tool, cpu)?;
        variables.extend(names.into_iter().map(|name| (name, script.clone().into())));
    }
    variables.push(("CARGO_ENCODED_RUSTFLAGS".into(), rust_flags(work)?.into()));
    variables.push((
        "CFLAGS".into(),
        prefix_maps(work)?.map(|(from, to)| format!("-ffile-prefix-map={from}={to}")).join(" ").into(),
    ));
    variables.push(("CARGO_INCREMENTAL".into(), "0".into()));
    variables.push(("SOURCE_DATE_EPOCH".into(), commit_time(work)?.into()));
    variables.push(("ZIG_GLOBAL_CACHE_DIR".into(), folder.join("cache").into()));
    variables.push(("CARGO_TARGET_DIR".into(), work.target().into()));
    Ok(Toolchain { variables, environments })
}

/// A virtual environment of an interpreter with the tools, or `None` if there is no such
/// interpreter.
fn environment(work: &Work, python: &str) -> Result<Option<PathBuf>> {
    let Ok(version) = output(Command::new(python).arg("-VV")) else { return Ok(None) };
    let version = String::from_utf8_lossy(&version).into_owned();
    if python == PYTHONS[0] && version.contains("free-threading") {
        bail!(
            "{python} is {}, which has no stable ABI: put another Python first on the PATH",
            version.trim()
        );
    }
    let folder = work.root.join("target/release-tools").join(python);
    let stamp = folder.join("tools.txt");
    let maturin = pinned(work, MATURIN)?;
    let wanted = format!("{version}{}\n{maturin}", TOOLS.join("\n"));
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(Some(folder));
    }
    run(Command::new(python).args(["-m", "venv", "--clear"]).arg(&folder))?;
    let mut install = Command::new(folder.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(TOOLS).arg(maturin);
    run(&mut install)?;
    write(&stamp, wanted)?;
    Ok(Some(folder))
}

/// A script that calls Zig's compiler for the older glibc.
fn wrapper(work: &Work, folder: &std::path::Path, tool: &str, cpu: &str) -> Result<PathBuf> {
    let script = folder.join(format!("glibc-{}-{tool}", work.glibc));
    let bin = folder.join("bin");
    let text = format!(
        "#!/bin/sh\nPATH='{bin}':\"$PATH\" exec '{bin}/cargo-zigbuild' zig {tool} -- -target {cpu}-linux-gnu.{glibc} \"$@\"\n",
        bin = bin.display(),
        glibc = work.glibc,
    );
    write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// Folders of this machine, and the names that replace them in messages and debug information.
fn prefix_maps(work: &Work) -> Result<[(String, &'static str); 2]> {
    Ok([(work.root.display().to_string(), "crossdock"), (cargo_home()?, "cargo")])
}

/// The folder of Cargo's registry.
pub fn cargo_home() -> Result<String> {
    let home =
        std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    home.context("neither CARGO_HOME nor HOME is set")
}

fn rust_flags(work: &Work) -> Result<String> {
    let maps = prefix_maps(work)?.map(|(from, to)| format!("--remap-path-prefix={from}={to}"));
    Ok([maps.as_slice(), &["-Cstrip=symbols".to_owned()]].concat().join("\u{1f}"))
}

/// The time of the last commit, in seconds.
pub fn commit_time(work: &Work) -> Result<String> {
    let time = output(Command::new("git").current_dir(&work.root).args(["log", "-1", "--format=%ct"]))?;
    Ok(String::from_utf8(time)?.trim().to_owned())
}
