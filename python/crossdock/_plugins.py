"""Finds the folders of installed plugins: of this package, and of packages with an entry point."""

import importlib.metadata
import importlib.util
import pathlib

GROUP = "crossdock.plugins"


def folders() -> list[str]:
    """Returns the plugin folder of this package, then the folders that the entry points of the group
    crossdock.plugins name. The entry point `name = "some_package.plugins"` names a folder with `*.so` files.
    Does not run code of the packages."""
    paths = [str(pathlib.Path(__file__).parent / "plugins")]
    for entry in importlib.metadata.entry_points(group=GROUP):
        package, *inner = entry.value.partition(":")[0].split(".")
        # find_spec of a subpackage would import its parent packages.
        spec = importlib.util.find_spec(package)
        locations = spec.submodule_search_locations if spec else None
        paths.extend(str(pathlib.Path(location, *inner)) for location in locations or [])
    return paths
