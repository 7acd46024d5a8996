"""Packs and unpacks the fuzzer's seeds: inputs of earlier runs (one zip per target in fuzz/seeds) and the trees of the tests.

    python3 fuzz/seeds.py unpack FOLDER     write the seeds to FOLDER/TARGET/INPUT
    python3 fuzz/seeds.py pack FOLDER       replace the zips by FOLDER/TARGET/INPUT"""

import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEEDS = HERE / "seeds"
GOLDEN = HERE.parent / "tests" / "python" / "vortex" / "golden"
# The maximum number of bytes of a test's tree. Larger trees are skipped.
MAX_BYTES = 2048


def unpack(folder):
    for path in sorted(SEEDS.glob("*.zip")):
        extract(path, folder / path.stem, lambda _: True)
    for path in sorted(GOLDEN.glob("*.zip")):
        extract(
            path, folder / "encoded_tree", lambda info: info.filename.endswith(".cdenc") and info.file_size <= MAX_BYTES
        )


def extract(path, to, wanted):
    to.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path) as file:
        for info in filter(wanted, file.infolist()):
            (to / f"{path.stem}-{info.filename.replace('/', '-')}").write_bytes(file.read(info))


def pack(folder):
    SEEDS.mkdir(exist_ok=True)
    for target in sorted(path for path in folder.iterdir() if path.is_dir()):
        with zipfile.ZipFile(SEEDS / f"{target.name}.zip", "w", zipfile.ZIP_DEFLATED) as file:
            # The names are numbers and the entries have no timestamps, so that equal inputs result
            # in equal zip files.
            for number, data in enumerate(sorted(path.read_bytes() for path in target.iterdir())):
                info = zipfile.ZipInfo(f"{number:04}")
                info.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(info, data)


if __name__ == "__main__":
    commands = {"unpack": unpack, "pack": pack}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](Path(sys.argv[2]))
