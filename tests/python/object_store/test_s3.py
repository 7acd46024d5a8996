"""URIs of an S3 server (moto) on this machine."""

import os
import re
import subprocess
import sys
import time
import urllib.request

import crossdock as cd
import pyarrow as pa
import pytest
from conftest import ipc_bytes, table
from separate_plugin import blocks_of


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory):
    """The address of the S3 server. CROSSDOCK_MOTO is the folder of its packages."""
    folder = os.environ.get("CROSSDOCK_MOTO")
    if not folder:
        pytest.skip("moto is not installed: CROSSDOCK_MOTO is not set")
    environment = os.environ | {"PYTHONPATH": folder, "AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
    # moto prints the port that the system chose.
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        until = time.monotonic() + 60
        while not (address := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
            assert process.poll() is None and time.monotonic() < until, f"moto did not start: {log.read_text()}"
            time.sleep(0.05)
        yield address.group()
    finally:
        process.kill()
        process.wait()


def put(address, content=b""):
    # With urllib's default type, moto would wait for a form. It replaces objects only for requests
    # that are signed in any way.
    headers = {"Content-Type": "application/octet-stream", "Authorization": "AWS any:any"}
    request = urllib.request.Request(address, data=content, method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=30).read()


@pytest.fixture
def bucket(endpoint, request):
    """A new bucket: its address, its URI, and the options for reading."""
    name = f"bucket-{abs(hash(request.node.name))}"
    put(f"{endpoint}/{name}")
    options = {
        "endpoint": endpoint,
        "allow_http": True,
        "region": "us-east-1",
        "access_key_id": "any",
        "secret_access_key": "any",
    }
    return f"{endpoint}/{name}", f"s3://{name}", options


def test_objects_are_read_as_one_table(session, bucket):
    address, uri, options = bucket
    for i in range(3):
        put(f"{address}/data/part {i}.arrow".replace(" ", "%20"), ipc_bytes(table(100, 100 * i)))
    uris = [f"{uri}/data/part%20{i}.arrow" for i in range(3)]
    scan = session.scan(uris, columns=["id"], storage_options=options)
    assert pa.table(scan.to_table())["id"].to_pylist() == list(range(300))
    assert pa.table(session.read(uris[1], storage_options=options)).equals(table(100, 100))


def test_large_object_is_read_in_parts(session, bucket):
    address, uri, options = bucket
    data = pa.table({"id": pa.array(range(500_000), pa.int64())})
    put(f"{address}/large.arrow", ipc_bytes(data, 500_000))
    options |= {"part_bytes": 300_000, "parallel": 8}
    assert pa.table(session.read(f"{uri}/large.arrow", storage_options=options)).equals(data)


def test_missing_objects_and_buckets_are_named(session, bucket):
    _, uri, options = bucket
    for missing in (f"{uri}/none.arrow", "s3://no-such-bucket/none.arrow"):
        with pytest.raises(OSError, match="does not exist"):
            session.read(missing, storage_options=options)


def test_replaced_object_is_noticed(session, bucket):
    address, uri, options = bucket
    data = pa.table({"id": pa.array(range(200_000), pa.int64())})
    put(f"{address}/a.arrow", ipc_bytes(data, 20_000))
    batches = iter(session.scan(f"{uri}/a.arrow", storage_options=options, prefetch=0))
    next(batches)
    put(f"{address}/a.arrow", ipc_bytes(table(200_000), 20_000))
    with pytest.raises(OSError, match="was changed while it was being read"):
        list(batches)


def test_credentials_come_from_the_environment(plugin, bucket):
    address, uri, options = bucket
    put(f"{address}/a.arrow", ipc_bytes(table()))
    program = """
import sys, crossdock as cd
print(cd.Session(plugins=[sys.argv[1]]).read(sys.argv[2]).num_rows)
"""
    environment = os.environ | {
        f"AWS_{key.upper()}": str(value).lower() if value is True else value for key, value in options.items()
    }
    command = [sys.executable, "-c", program, plugin, f"{uri}/a.arrow"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout == "1000\n", done.stderr


def test_error_contains_no_credentials(session, bucket):
    _, uri, options = bucket
    options |= {"secret_access_key": "the-secret-key", "token": "the-secret-token"}
    with pytest.raises(OSError) as raised:
        session.read(f"{uri}/none.arrow", storage_options=options)
    assert "secret" not in str(raised.value)


def test_programs_of_the_page_run(plugin, server, bucket):
    address, uri, options = bucket
    for name in ("a", "b", "flights"):
        data = table().append_column("carrier", pa.array(["UA"] * 1000))
        put(f"{address}/{name}.arrow", ipc_bytes(data))
    server.files["flights.arrow"] = ipc_bytes(table())
    first, second = (block for block in blocks_of("docs/python.md") if "libcrossdock_object_store_plugin.so" in block)
    program = first + "assert scan.to_table().num_rows == 2000\n" + second + "assert table.num_rows == 1000\n"
    for shown, used in [
        ('"libcrossdock_object_store_plugin.so"', repr(plugin)),
        ('"cuda:1"', '"cpu"'),
        ("https://example.com", server.uri("none", "").rstrip("/")),
        ("s3://bucket", uri),
        ('"region": "eu-central-1"', f"**{options!r}"),
    ]:
        assert shown in program, shown
        program = program.replace(shown, used)
    exec(program, {"cd": cd})
