//! Tests all functions of the header from C. The program in `c/` contains the cases. Each case is
//! one test, which runs in a separate process. Another test runs all cases in one process, under
//! valgrind.

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
        sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
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

/// Runs the given cases, or all cases if `cases` is empty. Returns the names of the cases that
/// succeeded.
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
fn policy_in_environment_variable_is_enforced() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("crossdock.toml");
    std::fs::write(&policy, "allow = []").unwrap();
    std::fs::set_permissions(&policy, std::fs::Permissions::from_mode(0o644)).unwrap();
    let program = program();
    let mut command = Command::new(&program.file);
    command.env("LD_LIBRARY_PATH", &program.lib).env("CROSSDOCK_POLICY", &policy);
    command.arg(&program.plugins).arg(sample()).arg(folder.path());
    let output = command.arg("accepts_shorter_settings_of_older_programs").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("(not-allowed)"), "{stderr}");
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
    reports_and_checks_the_version
    rejects_null_arguments
    default_settings_search_standard_places
    accepts_shorter_settings_of_older_programs
    rejects_invalid_host_settings
    rejects_unknown_settings_of_newer_programs
    lists_candidates_with_status_and_reason
    missing_plugin_folder_is_a_warning
    loading_reports_why_a_plugin_is_refused
    create_rejects_invalid_plugin_files_unless_lenient
    log_receives_messages_of_its_own_host_and_level
    log_receives_warnings_of_plugins
    paths_may_contain_any_bytes_but_nul
    memory_limit_is_enforced
    ledger_and_leaks_report_unreleased_memory
    rejects_null_sessions
    session_accepts_settings
    rejects_invalid_session_settings
    session_can_be_cancelled_in_a_signal_handler
    read_path_returns_all_batches
    get_next_returns_the_end_again
    reading_rejects_null_arguments
    reports_why_an_input_cannot_be_read
    cancel_flag_of_a_call_cancels_that_call_only
    progress_reports_bytes
    only_requested_columns_and_rows_are_read
    bytes_are_released_with_the_last_batch
    bytes_are_released_on_failure
    source_is_read_and_released
    mapped_source_is_not_copied
    source_without_length_is_read_in_order
    error_of_a_source_is_returned
    source_is_released_on_failure
    capsules_are_read_without_a_copy
    capsules_in_host_memory_are_moved_to_the_device_of_the_session
    settings_provide_the_schema_of_capsules
    capsules_are_released_on_failure
    scan_reads_files_one_after_another
    scan_selects_columns_and_rows_of_all_files_together
    stream_of_a_scan_may_outlive_the_session
    scan_reports_why_files_cannot_be_read
    table_is_rebuilt_from_its_parts
    damaged_parts_are_released_and_rejected
    read_path_reads_uris
    scan_reads_uris_and_paths
    conversion_reads_a_uri
    reports_why_a_uri_cannot_be_opened
    scan_reports_why_a_later_input_cannot_be_opened
    storage_options_apply_only_to_uris
    path_may_look_like_a_uri
    outputs_are_no_uris
    file_appears_complete_when_finish_succeeds
    writer_released_early_leaves_no_file
    failed_write_abandons_the_file
    batch_may_have_the_same_schema
    batch_has_its_number_of_rows_on_the_device
    reports_why_an_output_cannot_be_written
    sink_receives_the_same_bytes_as_a_file
    error_of_a_sink_is_returned
    sink_is_released_on_failure
    capsules_are_written_without_a_copy
    list_releases_the_capsules_that_remain_in_it
    write_capsules_requires_format_and_out
    plan_has_a_verdict_for_each_column
    conversion_reports_its_stages
    conversion_fills_in_report_and_accepts_null_report
    failed_conversion_leaves_no_file
    objects_may_be_released_in_any_order
    streams_and_writers_outlive_their_session_and_host
    each_host_has_its_own_ledger
    threads_may_share_a_session
    each_thread_may_have_a_host
    batch_may_be_released_on_another_thread
    rejects_out_parameters_that_are_too_short
    panic_in_a_plugin_is_an_error
    reads_and_writes_on_the_untouchable_device
    number_of_rows_stays_on_the_device_if_it_is_requested
}

#[test]
fn every_c_test_passes_under_valgrind() {
    let name = "every_c_test_passes_under_valgrind";
    let command = crate::support::under_valgrind(name, &program().file);
    let mut command = command.unwrap_or_else(|| Command::new(&program().file));
    command.env("EVERY_NTH_ORDER", "7");
    assert_eq!(run_cases(command, &[]), CASES);
}
