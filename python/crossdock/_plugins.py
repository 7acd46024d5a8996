"""Where plugins are installed: in this package, and in others that say so."""

import importlib.metadata
import importlib.util
import pathlib

GROUP = "crossdock.plugins"


def folders() -> list[str]:
    """This package's own folder of plugins, then those of the packages that entry points of the group crossdock.plugins
    name: `name = "some_package.plugins"` means the `*.so` files that lie in that folder. None of its code is run."""
    found = [str(pathlib.Path(__file__).parent / "plugins")]
    for entry in importlib.metadata.entry_points(group=GROUP):
        package, *inner = entry.value.partition(":")[0].split(".")
        # Asking for a package inside of another one would import the other one.
        spec = importlib.util.find_spec(package)
        locations = spec.submodule_search_locations if spec else None
        found.extend(str(pathlib.Path(location, *inner)) for location in locations or [])
    return found
