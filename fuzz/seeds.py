"""The trees that are kept for the tests, as seeds for the fuzzer."""

import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "tests" / "python" / "vortex" / "golden"
CORPUS = HERE / "corpus" / "encoded_tree"


def main():
    CORPUS.mkdir(parents=True, exist_ok=True)
    for path in sorted(GOLDEN.glob("*.zip")):
        with zipfile.ZipFile(path) as file:
            for name in file.namelist():
                if name.endswith(".cdenc"):
                    (CORPUS / f"{path.stem}-{name}").write_bytes(file.read(name))


if __name__ == "__main__":
    main()
