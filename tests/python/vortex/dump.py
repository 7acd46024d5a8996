"""Prints trees as text: `python dump.py PICTURE...`, where a picture is a kind, or a file of Arrow's IPC format.

Each line is a node: its id, type and rows, its metadata, and (bytes, alignment, first bytes) of each buffer.
"""

import sys

import dtypes
import pyarrow as pa
from flat import bytes_of, export_of, flatten, paths


def lines(array, shown_bytes=16):
    nodes, capsules = flatten(array)
    left = iter(capsules)
    for node, path in zip(nodes, paths(nodes)):
        buffers = []
        for capsule in (next(left) for _ in range(node.n_buffers)):
            export, data = export_of(capsule), bytes_of(capsule)
            buffers.append(f"({export.len}, {export.alignment}, {data[:shown_bytes].hex()})")
        metadata = f" metadata {node.metadata.hex()}" if node.metadata else ""
        type = dtypes.dump(dtypes.read(node.dtype))
        yield f"{'  ' * len(path)}{node.id}: {type}, {node.length} rows{metadata} {' '.join(buffers)}".rstrip()


def pictures(name):
    """(name, array) of a kind at 1025 rows, or of a file's columns."""
    import trees

    if name in trees.KINDS:
        yield from trees.arrays(name, (1025,))
    else:
        with pa.ipc.open_file(name) as file:
            yield from trees.of_table(file.read_all())


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        for name, array in pictures(argument):
            print(name)
            for line in lines(array):
                print("  " + line)
