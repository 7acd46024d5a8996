//! Every function of the header, driven from C: the cases are in `c/`, one program. Here each is a test of its own, in a
//! process of its own, and then all of them run in one process under valgrind.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::support::{built_file, cc, library_folder, plugin_folder, run, sample};

struct Program {
    file: PathBuf,
    lib: PathBuf,
    plugins: PathBuf,
    _folder: tempfile::TempDir,
}

fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cases");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
        let mut sources: Vec<_> = std::fs::read_dir(sources).unwrap().map(|e| e.unwrap().path()).collect();
        sources.retain(|path| path.extension().is_some_and(|ending| ending == "c"));
        sources.sort();
        run(cc().arg("-pthread").args(&sources).arg("-o").arg(&file).arg(built_file("libcrossdock.so")));
        Program {
            file,
            lib: library_folder(folder.path()),
            plugins: plugin_folder(folder.path()),
            _folder: folder,
        }
    })
}

/// Runs cases, all if none is named; the names of those that held.
fn run_cases(mut command: Command, cases: &[&str]) -> Vec<String> {
    let program = program();
    let folder = tempfile::tempdir().unwrap();
    command.env("LD_LIBRARY_PATH", &program.lib).env_remove("CROSSDOCK_PLUGIN_PATH");
    command.env_remove("CROSSDOCK_POLICY");
    command.env("BAD_CITIZEN", built_file("libbad_citizen.so"));
    let out = run(command.arg(&program.plugins).arg(sample()).arg(folder.path()).args(cases));
    out.lines().map(str::to_owned).collect()
}

#[test]
fn the_policy_of_the_environment_holds() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("crossdock.toml");
    std::fs::write(&policy, "allow = []").unwrap();
    std::fs::set_permissions(&policy, std::fs::Permissions::from_mode(0o644)).unwrap();
    let program = program();
    let mut command = Command::new(&program.file);
    command.env("LD_LIBRARY_PATH", &program.lib).env("CROSSDOCK_POLICY", &policy);
    command.arg(&program.plugins).arg(sample()).arg(folder.path());
    let output = command.arg("settings_of_an_older_program_are_as_good").output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.contains("(not-allowed)"), "{words}");
}

macro_rules! cases {
    ($($case:ident)*) => {
        const CASES: &[&str] = &[$(stringify!($case)),*];
        $(
            #[test]
            fn $case() {
                let command = Command::new(&program().file);
                assert_eq!(run_cases(command, &[stringify!($case)]), [stringify!($case)]);
            }
        )*
    };
}

cases! {
    the_version_is_told_and_checked
    null_is_an_invalid_argument
    a_host_with_default_settings_looks_in_the_usual_places
    settings_of_an_older_program_are_as_good
    settings_that_make_no_sense_are_refused
    a_newer_program_is_told_what_this_library_does_not_know
    candidates_are_listed_with_what_became_of_them
    a_place_that_is_not_there_is_a_warning
    loading_by_name_says_why_not
    a_file_that_was_given_must_be_a_plugin_unless_the_caller_is_lenient
    the_log_hears_its_own_host_as_loudly_as_asked
    the_log_hears_the_warnings_of_plugins
    paths_are_any_bytes_but_nul
    the_memory_limit_holds
    the_ledger_and_the_leaks_tell_what_is_held
    null_sessions_are_invalid_arguments
    a_session_is_as_its_settings_say
    a_session_that_cannot_be_is_refused
    a_cancelled_session_stops_even_from_a_signal_handler
    a_path_becomes_batches
    the_end_stays_the_end
    null_is_an_invalid_argument_to_reading
    what_cannot_be_read_says_so
    a_calls_cancel_flag_stops_one_call
    progress_is_told_in_bytes
    lent_bytes_are_given_back_with_the_last_batch
    lent_bytes_are_given_back_on_failure
    a_source_of_the_callers_is_read_and_released
    a_source_in_memory_is_used_in_place
    a_source_without_a_length_is_read_in_order
    a_source_that_fails_is_heard
    a_source_is_taken_on_failure_too
    capsules_become_batches_in_place
    capsules_in_host_memory_arrive_on_the_session_s_device
    a_schema_of_the_callers_serves_capsules_without_one
    capsules_are_taken_on_failure_too
    a_file_appears_at_the_end_and_whole
    a_writer_that_is_released_early_leaves_nothing
    a_write_that_failed_abandons_the_file
    a_batch_may_bring_the_same_schema
    what_cannot_be_written_says_so
    a_sink_of_the_callers_gets_the_same_bytes_as_a_file
    a_sink_that_fails_is_heard
    a_sink_is_taken_on_failure_too
    capsules_come_out_in_place
    capsules_that_nobody_takes_are_released_with_their_list
    capsules_need_a_format_and_a_place
    a_plan_tells_each_columns_fate
    a_conversion_reports_its_stages
    an_older_report_gets_its_numbers
    a_conversion_that_fails_leaves_nothing
    everything_may_be_released_in_any_order
    what_is_left_still_works
    two_hosts_do_not_share_their_books
    threads_share_a_session
    each_thread_may_have_a_host
    a_batch_is_released_on_another_thread
    an_out_parameter_that_is_too_short_to_be_released_is_refused
    a_panic_in_a_plugin_is_an_error_and_no_more
    a_table_lives_on_a_device_that_the_host_may_not_touch
}

#[test]
fn every_case_of_the_program_is_a_test_and_all_of_them_are_clean_under_valgrind() {
    let name = "every_case_of_the_program_is_a_test_and_all_of_them_are_clean_under_valgrind";
    let command = crate::support::under_valgrind(name, &program().file);
    let mut command = command.unwrap_or_else(|| Command::new(&program().file));
    command.env("EVERY_NTH_ORDER", "7");
    let ran = run_cases(command, &[]);
    assert_eq!(ran, CASES);
}
