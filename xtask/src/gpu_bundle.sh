#!/usr/bin/env bash
# Runs the test programs of this bundle and the tests of the Python package. Prints a table, and
# writes the same results to results.json in the folder of this script.
#   run.sh [NAME...]   runs only programs whose name, FOLDER/PROGRAM, begins with a NAME; python
#                      is the name of the tests of the Python package
#   PYTHON             the interpreter for the package; python3 by default
#   CROSSDOCK_WRAP     a command line to put before each program, such as
#                      "compute-sanitizer --tool memcheck --error-exitcode 99"
#   CROSSDOCK_RESULTS  the path of results.json
# If the bundle is inside a checkout, each program runs in the folder of its package.
set -uo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="$here/../.."
programs="$here/unpacked/release"
if [ ! -d "$here/unpacked" ]; then
  mkdir "$here/unpacked" && tar -C "$here/unpacked" -xJf "$here/programs.tar.xz" || exit 1
fi
results="${CROSSDOCK_RESULTS:-$here/results.json}"
export CROSSDOCK_BIN="$programs/crossdock"
logs="$(mktemp -d)"
# The test programs were compiled with this path as the folder for temporary files.
mkdir -p "$root/target/tmp"
failed=0
separator=""
printf '{"tests": [' > "$results"
printf '%-48s %8s %8s %8s %8s\n' program passed failed skipped seconds
while IFS=$'\t' read -r program folder; do
  # The title has the package's folder, because several packages have programs of the same name.
  title="$folder/${program%-*}"
  if [ $# -gt 0 ]; then
    wanted=""
    for name in "$@"; do case "$title" in "$name"*) wanted=1 ;; esac; done
    [ -n "$wanted" ] || continue
  fi
  log="$logs/$program"
  begin=$(date +%s%N)
  # shellcheck disable=SC2086 # the wrapper is a command line
  ( cd "$root/$folder" 2>/dev/null || cd "$here" || exit 1
    ${CROSSDOCK_WRAP:-} "$programs/deps/$program" --nocapture ) > "$log" 2>&1 < /dev/null
  code=$?
  seconds=$(( ($(date +%s%N) - begin) / 1000000 ))
  seconds="$((seconds / 1000)).$(printf %03d $((seconds % 1000)))"
  count() { grep -aoE "[0-9]+ $1" "$log" | awk '{ sum += $1 } END { print sum + 0 }'; }
  passed=$(count passed) bad=$(count failed) skipped=$(grep -ac '^skipped: ' "$log")
  # A test that skips itself prints a line and returns. The test harness counts it as passed.
  passed=$((passed > skipped ? passed - skipped : 0))
  [ "$code" = 0 ] || failed=1
  # If a program ended without printing the number of failed tests, it crashed and counts as failed.
  [ "$code" = 0 ] || [ "$bad" != 0 ] || bad="exit $code"
  printf '%-48s %8s %8s %8s %8s\n' "$title" "$passed" "$bad" "$skipped" "$seconds"
  printf '%s{"program": "%s", "exit": %d, "passed": %d, "failed": "%s", "skipped": %d, "seconds": %s}' \
    "$separator" "$title" "$code" "$passed" "$bad" "$skipped" "$seconds" >> "$results"
  separator=", "
  if [ "$code" != 0 ]; then grep -aE 'panicked at|^error|FAILED|ERROR SUMMARY|========= ' -A4 "$log" | head -60 | sed 's/^/    /'; fi
done < "$here/unpacked/tests.txt"
wanted=$([ $# = 0 ] && echo 1)
for name in "$@"; do case python in "$name"*) wanted=1 ;; esac; done
if [ -n "$wanted" ]; then
  export PYTHONPATH="$here/unpacked/python" PYTHONDONTWRITEBYTECODE=1
  # Uses the bundle's pytest if the machine has none. Tests that need other packages are skipped.
  "${PYTHON:-python3}" -c 'import pytest' 2>/dev/null || PYTHONPATH="$PYTHONPATH:$here/unpacked/runner"
  log="$logs/python"
  begin=$(date +%s%N)
  # shellcheck disable=SC2086 # the wrapper is a command line
  ( cd "$here/unpacked" && ${CROSSDOCK_WRAP:-} "${PYTHON:-python3}" -m pytest -q -rfEs --tb=short -p no:cacheprovider \
    --confcutdir=tests/python/package tests/python/package ) > "$log" 2>&1 < /dev/null
  code=$?
  seconds=$(( ($(date +%s%N) - begin) / 1000000 ))
  seconds="$((seconds / 1000)).$(printf %03d $((seconds % 1000)))"
  count() { tail -3 "$log" | grep -aoE "[0-9]+ ($1)" | awk '{ sum += $1 } END { print sum + 0 }'; }
  passed=$(count passed) bad=$(count 'failed|error') skipped=$(count skipped)
  [ "$code" = 0 ] || failed=1
  [ "$code" = 0 ] || [ "$bad" != 0 ] || bad="exit $code"
  printf '%-48s %8s %8s %8s %8s\n' python "$passed" "$bad" "$skipped" "$seconds"
  printf '%s{"program": "python", "exit": %d, "passed": %d, "failed": "%s", "skipped": %d, "seconds": %s}' \
    "$separator" "$code" "$passed" "$bad" "$skipped" "$seconds" >> "$results"
  if [ "$code" != 0 ]; then { grep -aE '^(FAILED|ERROR) ' "$log"; grep -aE '^E  ' "$log" || tail -5 "$log"; } | head -80 | sed 's/^/    /'; fi
  grep -a '^SKIPPED' "$log" | sed 's/^/    /'
fi
printf ']}\n' >> "$results"
cat "$logs"/* 2>/dev/null | grep -a '^skipped: ' | sort | uniq -c
rm -rf "$logs"
exit "$failed"
