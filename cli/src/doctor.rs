//! `crossdock doctor`: checks the installation, and says what to do about problems.

use clap::Args;
use crossdock::api::abi::{ABI_MAJOR, ABI_MINOR};
use crossdock::discovery::{Candidate, PATH_VARIABLE};
use crossdock::isolation::Which;
use crossdock::load::FAILED;
use crossdock::memory::{Backend, CudaPresence, cuda};
use crossdock::{Error, Policy, Session, printable};
use crossdock_kernel_library::images;
use serde_json::json;

use crate::output::{Failure, write_output};
use crate::{options, text};

#[derive(Args)]
#[command(after_help = "\
Checks versions, devices, the policy, the plugins, whether plugins can run in separate processes, and environment
variables. A line is 'ok', a 'note' (a limit that may be intended), or a 'problem'. Below notes and problems, the output
says what to do. The exit status is 1 if there is a problem.")]
pub struct Doctor {
    #[command(flatten)]
    plugins: options::PluginArgs,
    /// Prints the checks as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    Note,
    Problem,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    subject: &'static str,
    status: Status,
    found: String,
    /// What to do.
    advice: Option<String>,
}

impl Finding {
    fn ok(subject: &'static str, found: impl Into<String>) -> Self {
        Self { subject, status: Status::Ok, found: found.into(), advice: None }
    }

    fn note(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, status: Status::Note, found: found.into(), advice: Some(advice.into()) }
    }

    fn problem(subject: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, status: Status::Problem, found: found.into(), advice: Some(advice.into()) }
    }
}

impl Doctor {
    pub fn run(self) -> Result<(), Failure> {
        let mut findings = vec![version()];
        findings.extend(cuda_devices());
        match self.plugins.policy() {
            Ok(policy) => findings.extend(self.plugins(policy)),
            Err(error) => findings.push(Finding::problem(
                "policy",
                error.one_line(),
                "correct the file: until then, no command runs (docs/security.md describes policies)",
            )),
        }
        findings
            .extend(environment(std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned())));
        let n_problems = findings.iter().filter(|finding| finding.status == Status::Problem).count();
        if self.json {
            let checks: Vec<_> = findings
                .iter()
                .map(|Finding { subject, status, found, advice }| {
                    json!({ "subject": subject, "status": status.name(), "found": found, "advice": advice })
                })
                .collect();
            write_output(&json!({ "checks": checks, "problems": n_problems }).to_string())?;
        } else {
            write_output(&report(&findings, n_problems))?;
        }
        if n_problems > 0 { Err(Failure::Negative) } else { Ok(()) }
    }

    fn plugins(&self, policy: Policy) -> Vec<Finding> {
        let mut findings = vec![match &policy.file {
            Some(file) => {
                Finding::ok("policy", format!("{} decides which plugins are loaded", file.display()))
            }
            None => Finding::ok("policy", "no policy file: every compatible plugin is loaded"),
        }];
        let mut isolated = policy.clone();
        isolated.isolation.which = Which::from_names(vec!["*".into()]);
        let host = self.plugins.host(policy).build_lenient();
        findings.extend(host.catalog().warnings.iter().map(|warning| {
            Finding::note(
                "plugins",
                warning,
                "correct the path, or remove it from the places that are searched",
            )
        }));
        let session = match host.session().open() {
            Ok(session) => session,
            Err(error) => {
                findings.push(Finding::problem(
                    "plugins",
                    error.one_line(),
                    "check the memory of this machine",
                ));
                return findings;
            }
        };
        let mut loaded = Vec::new();
        for candidate in &host.catalog().candidates {
            match load(&session, candidate) {
                Ok(name) => loaded.push(name),
                Err(finding) => findings.push(finding),
            }
        }
        match loaded.first() {
            None => findings.push(Finding::problem(
                "plugins",
                "no plugin can be loaded, so no format can be read or written",
                format!(
                    "install the plugins in ../lib/crossdock/plugins relative to the command, or name their folder \
                     with --plugins or {PATH_VARIABLE}"
                ),
            )),
            Some(first) => {
                let names = format!("{} loaded: {}", loaded.len(), loaded.join(", "));
                findings.push(Finding::ok("plugins", names));
                findings.push(self.isolation(isolated, first));
            }
        }
        findings
    }

    /// Checks whether the plugin `name` can run in a separate process.
    fn isolation(&self, policy: Policy, name: &str) -> Finding {
        let host = self.plugins.host(policy).build_lenient();
        let session = host.session().open();
        match session.and_then(|session| session.plugin(name).map(drop)) {
            Ok(()) => Finding::ok("isolation", "plugins can run in separate processes (--isolate)"),
            Err(error) => Finding::note(
                "isolation",
                format!("{name} cannot run in a separate process: {}", error.one_line()),
                "--isolate needs seccomp and processes with shared memory (docs/security.md); plugins in this process \
                 are not affected",
            ),
        }
    }
}

fn version() -> Finding {
    let program = std::env::current_exe().map_or_else(|_| "?".into(), |path| path.display().to_string());
    let (version, os, cpu) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    Finding::ok("version", format!("crossdock {version}, ABI {ABI_MAJOR}.{ABI_MINOR}, {cpu} {os}, {program}"))
}

fn cuda_devices() -> Vec<Finding> {
    match Backend::builder().build().cuda() {
        // The message contains the advice.
        Err(missing) => {
            vec![Finding::note("cuda", missing.to_string(), "without CUDA, the device cpu is available")]
        }
        Ok(cuda) => cuda_findings(cuda),
    }
}

fn cuda_findings(presence: &CudaPresence) -> Vec<Finding> {
    let (major, minor) = presence.driver_version;
    let mut findings = vec![Finding::ok("cuda", format!("driver for CUDA {major}.{minor}"))];
    for (function, cost) in &presence.lacks {
        let found = format!("the driver has no {function}: {cost}");
        findings.push(Finding::note("cuda", found, "install a newer NVIDIA driver"));
    }
    for device in &presence.devices {
        let name = format!("{}: {}, {}", device.device, device.name, text::bytes(device.memory_bytes));
        findings.push(match cuda::code_for(images(), device.compute_capability) {
            _ if !device.memory_pools => Finding::problem(
                "cuda",
                format!("{name}: the device does not support memory pools"),
                "use another device, or the device cpu",
            ),
            Err(error) => {
                let found = format!("{name}: cannot run kernels: {}", error.message());
                Finding::problem("cuda", found, "use another device, or the device cpu")
            }
            Ok(code) if code.starts_with("compute") => Finding::note(
                "cuda",
                format!("{name}: kernels are compiled from {code} at their first use"),
                "use a release with compiled code for this device, if there is one",
            ),
            Ok(code) => Finding::ok("cuda", format!("{name}, code for {code}")),
        });
    }
    findings
}

/// Loads a candidate. Returns the name of the plugin.
fn load(session: &Session, candidate: &Candidate) -> Result<String, Finding> {
    let refused = |refused: &crossdock::load::Refused| {
        let id = refused.reason.id();
        let found = format!("{} is not used ({id}): {}", candidate.label(), refused.reason);
        let status = if is_expected(id) { Status::Note } else { Status::Problem };
        Finding { subject: "plugins", status, found, advice: Some(advice(id).into()) }
    };
    let metadata = candidate.metadata.as_ref().map_err(|reason| refused(reason))?;
    match session.plugin(&metadata.name) {
        Ok(plugin) => Ok(plugin.name().to_owned()),
        Err(Error::Refused(reason)) => Err(refused(&reason)),
        Err(error) => {
            let found = format!("{} does not work: {}", candidate.label(), error.one_line());
            Err(Finding::problem("plugins", found, advice(FAILED)))
        }
    }
}

/// Whether files are often refused for this reason although the installation is correct.
fn is_expected(id: &str) -> bool {
    matches!(id, "shadowed" | "not-a-plugin" | "not-elf" | "not-allowed" | "not-locked" | "folder")
}

/// What to do about a plugin that is refused for the reason with this id (docs/security.md).
fn advice(id: &str) -> &'static str {
    match id {
        "missing" | "not-a-file" => "correct the path",
        "unreadable" => "permit this user to read the file",
        "owner" | "directory-owner" | "link-owner" => "change the owner to root or to this user (chown)",
        "writable" | "directory-mode" => "remove the write permission of others (chmod go-w)",
        "not-elf" | "not-a-plugin" => {
            "remove the file from the places that are searched, unless it should be a plugin"
        }
        "damaged" | "bad-metadata" | "no-entry" | "bad-entry" => {
            "install the plugin again; if the error remains, report it to the plugin's author"
        }
        "wrong-machine" => "install a build of the plugin for this kind of CPU",
        "abi-version" | "abi-range" | "missing-interface" | "struct-sizes" => {
            "install a release of the plugin that was built for this release of Crossdock, or the reverse"
        }
        "folder" | "not-allowed" | "unsigned" | "signature" | "not-locked" | "lock-hash" | "toolchain" => {
            "if the plugin should be used, change the policy, the signature or the lock file (crossdock lock)"
        }
        "panic-strategy" => "build the plugin with panic = \"unwind\", or isolate it",
        "needed-library" => "link the library statically, or name it in `libraries` of the policy",
        "search-path" => "build the plugin without an rpath",
        "executable-stack" => "link the plugin with -z noexecstack",
        "glibc" => "install a build of the plugin for an older glibc",
        "copy" => "make room in memory: a policy that checks the bytes of plugins copies them",
        "changed" => "run the command again after the installation of the plugin has ended",
        "quarantined" => {
            "a process crashed while it loaded the plugin: crossdock plugins --retry FILE tries it again"
        }
        "shadowed" => "remove one of the two files if they are not the same plugin on purpose",
        _ => "run crossdock verify FILE, and report the result to the plugin's author",
    }
}

/// The environment variables that Crossdock reads.
const VARIABLES: [&str; 6] = [
    PATH_VARIABLE,
    "CROSSDOCK_POLICY",
    crate::log::VARIABLE,
    "CROSSDOCK_TRACE",
    "CROSSDOCK_DEVICE",
    "CROSSDOCK_UNPICKLE_DEVICE",
];

fn environment(names: impl Iterator<Item = String>) -> Vec<Finding> {
    let mut names: Vec<_> = names.filter(|name| name.starts_with("CROSSDOCK_")).collect();
    names.sort();
    let of_tests =
        |name: &String| ["CROSSDOCK_TEST_", "CROSSDOCK_SIM_CUDA"].iter().any(|begin| name.starts_with(begin));
    let (known, unknown): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| VARIABLES.contains(&name.as_str()) || of_tests(name));
    let set = if known.is_empty() {
        "no variable of Crossdock is set".into()
    } else {
        format!("set: {}", known.join(", "))
    };
    let mut findings = vec![Finding::ok("environment", set)];
    findings.extend(unknown.into_iter().map(|name| {
        let expected = format!("the variables of Crossdock are {}", VARIABLES.join(", "));
        Finding::note("environment", format!("{name} is set, but Crossdock does not read it"), expected)
    }));
    findings
}

fn report(findings: &[Finding], n_problems: usize) -> String {
    let mut out = String::new();
    for Finding { subject, status, found, advice } in findings {
        out += &format!("{:<8} {subject:<12} {}\n", status.name(), printable(found));
        if let Some(advice) = advice {
            out += &format!("{:21} -> {}\n", "", printable(advice));
        }
    }
    out += &match n_problems {
        0 => "no problems\n".to_owned(),
        1 => "1 problem\n".to_owned(),
        n => format!("{n} problems\n"),
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossdock::api::Device;
    use crossdock::memory::CudaDevice;

    #[test]
    fn cuda_findings_distinguish_devices_that_work_from_those_that_do_not() {
        let device = |n, compute_capability, memory_pools| CudaDevice {
            device: Device::cuda(n),
            name: "a device".into(),
            memory_bytes: 1 << 30,
            compute_capability,
            memory_pools,
        };
        // All compiled code is too new for the second device, and too old for the third device.
        let devices = vec![
            device(0, (9, 0), true),
            device(1, (1, 0), true),
            device(2, (99, 0), true),
            device(3, (9, 0), false),
        ];
        let lacks = vec![("cuSomething", "copies are slower")];
        let findings = cuda_findings(&CudaPresence { driver_version: (13, 0), devices, lacks });
        let statuses: Vec<_> = findings.iter().map(|finding| finding.status).collect();
        use Status::{Note, Ok, Problem};
        assert_eq!(statuses, [Ok, Note, Ok, Problem, Note, Problem], "{findings:?}");
        assert!(
            findings[3].found.starts_with("cuda:1: a device, 1.0 GiB: cannot run kernels"),
            "{findings:?}"
        );
        assert!(findings[5].found.ends_with("memory pools"), "{findings:?}");
    }

    #[test]
    fn environment_names_variables_that_are_not_read() {
        let names =
            ["PATH", "CROSSDOCK_PLUGINS_PATH", "CROSSDOCK_LOG", "CROSSDOCK_TEST_X"].map(str::to_owned);
        let findings = environment(names.into_iter());
        assert_eq!(findings.len(), 2);
        assert_eq!(findings[0].found, "set: CROSSDOCK_LOG, CROSSDOCK_TEST_X");
        assert!(findings[1].found.starts_with("CROSSDOCK_PLUGINS_PATH is set"));
        assert!(findings[1].advice.as_ref().unwrap().contains("CROSSDOCK_PLUGIN_PATH"));
        assert_eq!(environment(std::iter::empty())[0].found, "no variable of Crossdock is set");
    }
}
