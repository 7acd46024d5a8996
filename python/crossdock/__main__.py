"""`python -m crossdock` and the script `crossdock`: the command, with the plugins of the installed packages."""

import os
import sys

from ._plugins import folders

_COMMAND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "crossdock")
_PATH = "CROSSDOCK_PLUGIN_PATH"


def main() -> None:
    """Replaces this process by the command."""
    if not os.path.exists(_COMMAND):
        sys.exit(f"crossdock: the command is missing ({_COMMAND}): install the package again")
    paths = [path for path in (os.environ.get(_PATH), *folders()) if path]
    os.environ[_PATH] = os.pathsep.join(paths)
    os.execv(_COMMAND, ["crossdock", *sys.argv[1:]])


if __name__ == "__main__":
    main()
