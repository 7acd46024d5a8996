"""Prints trees as text: `python dump.py SOURCE...`. A source is the id of an encoding, or the path of an
Arrow IPC file.

Each line is a node: its id, type, number of rows and metadata, and (size, alignment, first bytes) of each
buffer.
"""

import sys

import dtypes
import pyarrow as pa
from flat import bytes_of, export_of, flatten, paths


def lines(array, shown_bytes=16):
    nodes, capsules = flatten(array)
    remaining = iter(capsules)
    for node, path in zip(nodes, paths(nodes)):
        buffers = []
        for capsule in (next(remaining) for _ in range(node.n_buffers)):
            export, data = export_of(capsule), bytes_of(capsule)
            buffers.append(f"({export.len}, {export.alignment}, {data[:shown_bytes].hex()})")
        metadata = f" metadata {node.metadata.hex()}" if node.metadata else ""
        type = dtypes.dump(dtypes.read(node.dtype))
        yield f"{'  ' * len(path)}{node.id}: {type}, {node.length} rows{metadata} {' '.join(buffers)}".rstrip()


def arrays_of(name):
    """Yields (name, array) of each array of 1025 rows of an encoding, or of each column of a file."""
    import trees

    if name in trees.KINDS:
        yield from trees.arrays(name, (1025,))
    else:
        with pa.ipc.open_file(name) as file:
            yield from trees.of_table(file.read_all())


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        for name, array in arrays_of(argument):
            print(name)
            for line in lines(array):
                print("  " + line)
