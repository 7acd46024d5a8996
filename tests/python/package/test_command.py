"""The command as `python -m crossdock`."""

import os
import subprocess
import sys

import crossdock.__main__ as module


def run(*arguments, **environment):
    command = [sys.executable, "-m", "crossdock", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, check=False)


def test_command_finds_the_plugins_of_the_package(flights):
    shown = run("show", str(flights), "--rows", "1")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split()[:3] == ["year", "month", "day"]


def test_exit_code_and_errors_are_those_of_the_command(tmp_path):
    missing = run("show", str(tmp_path / "missing.arrow"))
    assert missing.returncode in (1, 2)
    assert "missing.arrow" in missing.stderr


def test_plugin_path_of_the_caller_comes_first(monkeypatch):
    started = []
    monkeypatch.setenv("CROSSDOCK_PLUGIN_PATH", "/given")
    monkeypatch.setattr(os, "execv", lambda *arguments: started.append(arguments))
    module.main()
    assert started[0][1][0] == "crossdock"
    first, second, *_ = os.environ["CROSSDOCK_PLUGIN_PATH"].split(":")
    assert (first, os.path.basename(second)) == ("/given", "plugins")


def test_missing_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_COMMAND", str(tmp_path / "crossdock"))
    try:
        module.main()
    except SystemExit as error:
        assert str(tmp_path) in str(error)
    else:
        raise AssertionError("the command is missing")
