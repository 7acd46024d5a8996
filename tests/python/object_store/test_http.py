"""URIs of an HTTP server, which may fail in many ways."""

import json
import os
import subprocess
import sys
import time

import crossdock as cd
import pyarrow as pa
import pytest
from conftest import ipc_bytes, table

# Short limits, so that each failure is reported within a few seconds.
FAST = {"timeout": 1, "connect_timeout": 1, "max_retries": 1, "retry_timeout": 2}


@pytest.fixture
def content(server):
    """A file of 1000 rows on the server."""
    server.files["a.arrow"] = ipc_bytes(table())
    return server.files["a.arrow"]


def test_read_equals_the_content(session, server, content):
    for fault in ("none", "weak", "without-tag", "without-version", "slow"):
        read = session.read(server.uri(fault, "a.arrow"))
        assert pa.table(read).equals(table()), fault
    assert pa.table(session.read_ipc(server.uri("none", "a.arrow"))).equals(table())


def test_large_reads_are_split_into_parallel_parts(session, server):
    data = pa.table({"id": pa.array(range(300_000), pa.int64())})
    server.files["a.arrow"] = ipc_bytes(data, 300_000)
    options = {"part_bytes": 200_000, "parallel": 4}
    read = session.read(server.uri("slow", "a.arrow"), storage_options=options)
    assert pa.table(read).equals(data)
    assert 2 <= server.most_at_once <= 4
    sizes = []
    for wanted in server.ranges():
        first, last = wanted.removeprefix("bytes=").split("-")
        sizes.append(int(last) - int(first) + 1)
    assert max(sizes) == 200_000
    assert sum(sizes) < 1.2 * len(server.files["a.arrow"]), "no part is read twice"


def test_only_needed_bytes_are_read(session, server):
    data = pa.table({"id": pa.array(range(400_000), pa.int64()), "other": pa.array(range(400_000), pa.int64())})
    server.files["a.arrow"] = ipc_bytes(data, 100_000)
    scan = session.scan(server.uri("none", "a.arrow"), prefetch=0)
    server.sent = 0
    assert scan.head(5).num_rows == 5
    assert server.sent < 0.6 * len(server.files["a.arrow"])


def test_list_of_uris_is_one_table(session, server):
    for i in range(3):
        server.files[f"{i}.arrow"] = ipc_bytes(table(100, 100 * i))
    uris = [server.uri("none", f"{i}.arrow") for i in range(3)]
    scan = session.scan(uris, columns=["id"], rows=[(50, 150), (250, 1000)])
    expected = [*range(50, 150), *range(250, 300)]
    for _ in range(2):
        assert pa.table(scan.to_table())["id"].to_pylist() == expected
        assert [n for batch in scan for n in pa.table(batch)["id"].to_pylist()] == expected
    assert pa.table(session.read(uris)).num_rows == 300


def test_uris_and_paths_can_be_mixed_without_storage_options(session, server, content, tmp_path):
    path = tmp_path / "b.arrow"
    path.write_bytes(content)
    sources = [server.uri("none", "a.arrow"), str(path)]
    assert pa.table(session.read(sources)).num_rows == 2000
    with pytest.raises(cd.UsageError, match="'timeout' applies only to URIs"):
        session.read(sources, storage_options=FAST)


FAULTS = {
    "401": (OSError, r"accepts no request without valid credentials \(status 401\)"),
    "403": (OSError, r"the server denied access \(status 403\)"),
    "404": (OSError, r"a\.arrow' does not exist \(status 404\)"),
    "500": (OSError, "500 Internal Server Error"),
    "hangs": (OSError, "timed out|operation timed out"),
    "hangs-at-once": (OSError, "timed out|operation timed out"),
    "trickles": (OSError, "timed out|timeout|error decoding response body"),
    "drops": (OSError, "connection closed|error sending request"),
    "cuts": (OSError, "end of file before message length reached"),
    "ignores-range": (cd.UnsupportedError, "ignores the header Range: expected the status 206"),
    "other-range": (OSError, "Requested .*, got"),
    "grows": (OSError, "contradictory lengths: expected .* bytes, got"),
    "states-more": (OSError, "contradictory lengths|416|expected .* bytes"),
    "changes": (OSError, 'was changed while it was being read: expected the version "first", got "second"'),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_failure_is_one_clear_error_in_bounded_time(session, server, fault):
    data = pa.table({"id": pa.array(range(200_000), pa.int64())})
    server.files["a.arrow"] = ipc_bytes(data, 20_000)
    kind, message = FAULTS[fault]
    uri = server.uri(fault, "a.arrow")
    begin = time.monotonic()
    with pytest.raises(kind, match=message) as raised:
        session.read(uri, storage_options=FAST)
    assert time.monotonic() - begin < 10
    text = str(raised.value)
    assert uri in text and "object-store" in text and "\n" not in text
    count = len(server.requests)
    time.sleep(0.3)
    assert len(server.requests) == count, "no request follows the error"


def test_failed_requests_are_repeated(session, server, content):
    options = {"max_retries": 3, "retry_timeout": 20}
    assert pa.table(session.read(server.uri("503-twice", "a.arrow"), storage_options=options)).equals(table())
    server.requests.clear()
    with pytest.raises(OSError, match="503"):
        session.read(server.uri("503-twice", "a.arrow"), storage_options={"max_retries": 0})


def test_server_that_does_not_listen(session, server):
    server.files["a.arrow"] = b""
    uri = server.uri("none", "a.arrow")
    server.socket.close()
    begin = time.monotonic()
    with pytest.raises(OSError, match="(?i)error sending request.*refused|Connect"):
        session.read(uri, storage_options=FAST)
    assert time.monotonic() - begin < 10


def test_change_between_two_passes_is_an_error(session, server, content):
    scan = session.scan(server.uri("none", "a.arrow"))
    assert scan.to_table().num_rows == 1000
    server.tag = '"second"'
    with pytest.raises(OSError, match='has changed since the scan was created: expected the version "first"'):
        scan.to_table()


@pytest.mark.parametrize("fault", ["none", "ignores-if-match"])
def test_change_during_a_scan_is_an_error(session, server, fault):
    data = pa.table({"id": pa.array(range(200_000), pa.int64())})
    server.files["a.arrow"] = ipc_bytes(data, 20_000)
    batches = iter(session.scan(server.uri(fault, "a.arrow"), prefetch=0))
    assert next(batches).num_rows == 20_000
    server.tag = '"second"'
    with pytest.raises(OSError, match="was changed while it was being read"):
        for _ in batches:
            pass
    assert list(batches) == []


def test_dropped_scan_stops_reading_ahead(session, server):
    data = pa.table({"id": pa.array(range(400_000), pa.int64())})
    server.files["a.arrow"] = ipc_bytes(data, 20_000)
    batches = iter(session.scan(server.uri("slow", "a.arrow"), prefetch=2))
    assert next(batches).num_rows == 20_000
    batches.close()
    count = len(server.requests)
    time.sleep(0.5)
    assert len(server.requests) == count
    assert server.sent < len(server.files["a.arrow"])


def test_malformed_options_and_uris_are_usage_errors(session, server, content):
    uri = server.uri("none", "a.arrow")
    wrong = [
        (uri, {"timeuot": 1}, "HTTP has no option 'timeuot'; expected one of timeout"),
        (uri, {"timeout": "soon"}, "option 'timeout': expected a number of seconds"),
        (uri + "?signature=secret", {}, "expected no query"),
        (uri.replace("http://", "http://me:secret@"), {}, "a user name or a password"),
        ("http://", {}, "not a URI"),
        ("s3://bucket", {}, "expected the name of an object"),
    ]
    for source, options, message in wrong:
        with pytest.raises(cd.UsageError, match=message) as raised:
            session.read(source, storage_options=options)
        assert "secret" not in str(raised.value)
    assert server.requests == []


def test_error_without_plugin_says_which_one_to_install(server, content):
    with cd.Session() as session:
        with pytest.raises(cd.UsageError, match="no plugin opens http:// URIs: install the plugin 'object-store'"):
            session.read(server.uri("none", "a.arrow"))


def test_interrupted_open_ends_at_once(plugin, server):
    # Sets the handler, because SIGINT is ignored if the tests were started in the background.
    program = f"""
import os, signal, threading, time, crossdock as cd
signal.signal(signal.SIGINT, signal.default_int_handler)
session = cd.Session(plugins=[{plugin!r}])
threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    session.read({server.uri("hangs-at-once", "a.arrow")!r})
except KeyboardInterrupt:
    print(time.monotonic() - begin)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert float(done.stdout) < 5, done.stderr


def test_pickled_scan_of_uris_is_opened_in_another_process(plugin, server, content):
    program = """
import pickle, sys, crossdock as cd
scan = cd.default_session().scan(sys.argv[1], columns=["id"], storage_options={"timeout": 5})
copy = pickle.loads(pickle.dumps(scan))
print(copy.to_table().num_rows)
"""
    environment = os.environ | {"CROSSDOCK_PLUGIN_PATH": plugin}
    command = [sys.executable, "-c", program, server.uri("none", "a.arrow")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout == "1000\n", done.stderr


@pytest.fixture
def run_with_plugin(run, plugin):
    return lambda *arguments: run(*arguments, "--plugins", plugin)


def test_command_shows_converts_and_plans_uris(run_with_plugin, server, content, tmp_path):
    uri = server.uri("none", "a.arrow")
    shown = run_with_plugin("show", uri, "--rows", "2", "--json")
    assert json.loads(shown.stdout)["rows"] == [{"id": 0, "name": "name 0"}, {"id": 1, "name": "name 1"}], shown.stderr
    to = tmp_path / "out.arrow"
    done = run_with_plugin("convert", uri, to, "--quiet", "--storage-option", "parallel=2")
    assert done.returncode == 0, done.stderr
    assert pa.ipc.open_file(to).read_all().equals(table())
    assert run_with_plugin("plan", uri, "--to", "arrow-ipc-file").returncode == 0
    missing = run_with_plugin("convert", server.uri("404", "a.arrow"), tmp_path / "none.arrow")
    assert missing.returncode != 0 and b"does not exist (status 404)" in missing.stderr
    assert not (tmp_path / "none.arrow").exists()


def test_command_lists_the_schemes(run_with_plugin):
    listed = run_with_plugin("plugins").stdout.decode()
    assert "opens: s3://, s3a://, gs://" in listed
    plugins = json.loads(run_with_plugin("plugins", "--json").stdout)["plugins"]
    (opens,) = (plugin["opens"] for plugin in plugins if plugin.get("metadata", {}).get("name") == "object-store")
    assert {"s3", "http", "https"} <= set(opens)


def test_isolated_plugin_is_refused(run_with_plugin, server, content):
    done = run_with_plugin("show", server.uri("none", "a.arrow"), "--isolate=object-store")
    assert done.returncode != 0
    assert b"runs in a process of its own, which has no access to the network" in done.stderr, done.stderr
    assert server.requests == []


def test_isolated_importer_reads_uris(run_with_plugin, server, content):
    done = run_with_plugin("show", server.uri("none", "a.arrow"), "--json", "--isolate=arrow-ipc")
    assert len(json.loads(done.stdout)["rows"]) == 10, done.stderr


def test_plugin_follows_the_rules_of_openers(run, plugin, server, content):
    sample = ["--sample", server.uri("none", "a.arrow")]
    done = run("verify", plugin, "--json", "--strict", "--seeds", "1", "--device", "cpu", *sample)
    report = json.loads(done.stdout)
    bad = [case for case in report["cases"] if case["outcome"] not in ("passed", "skipped")]
    assert bad == []
    passed = {case["name"] for case in report["cases"] if case["outcome"] == "passed"}
    assert {"opener.reads", "opener.concurrent_reads", "opener.version", "opener.releases"} <= passed
