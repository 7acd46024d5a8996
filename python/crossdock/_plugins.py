"""Where plugins are installed: in this package, and in others that say so."""

import importlib.metadata
import importlib.util
import pathlib

GROUP = "crossdock.plugins"


def folders() -> list[str]:
    """This package's own folder of plugins, then those of the packages that entry points of the group crossdock.plugins
    name: `name = "some_package"` means the `*.so` files that lie in that package's folder. None of its code is run."""
    found = [str(pathlib.Path(__file__).parent / "plugins")]
    for entry in importlib.metadata.entry_points(group=GROUP):
        spec = importlib.util.find_spec(entry.value.partition(":")[0])
        found.extend(spec.submodule_search_locations or [] if spec else [])
    return found
