"""Compares batches for training: crossdock.torch.Loader, datasets of Hugging Face, Ray Data, and tensors in memory.

    PYTHONPATH=$(cargo xtask python --release) python benches/training.py [--runs 7] [--mib 64]

Needs torch and datasets, and `ray[train]` for Ray Data. All read the same rows in batches of 256 on the CPU, from the Arrow
files of the dataset unless they are in memory: columns of numbers of --mib together, and lists of four times as many
bytes. The programs run in turn in one process; each figure is a median. A run begins after the first batch, and ends
after 2 s at the latest."""

import argparse
import os
import statistics
import tempfile
import time

import datasets
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

try:
    import ray
    import ray.data
except ImportError:
    ray = None

import crossdock as cd
from crossdock.torch import Loader, scan_of

BATCH = 256
SECONDS = 2


def numbers(mib):
    rng = np.random.default_rng(0)
    rows = mib * 2**20 // 12
    return {name: rng.standard_normal(rows, np.float32) for name in "abc"}


def tokens(mib):
    rng = np.random.default_rng(0)
    return {"tokens": rng.integers(0, 50_000, (mib * 2**20 // 512, 128), np.int32)}


def dataset_of(arrays, folder):
    length = next(iter(arrays.values())).shape[1:]
    kinds = {name: str(array.dtype) for name, array in arrays.items()}
    feature = {
        name: datasets.List(datasets.Value(kind)) if length else datasets.Value(kind) for name, kind in kinds.items()
    }

    def rows():
        step = 50_000
        for i in range(0, len(next(iter(arrays.values()))), step):
            yield {name: array[i : i + step] for name, array in arrays.items()}

    parts = [datasets.Dataset.from_dict(part, datasets.Features(feature)) for part in rows()]
    datasets.concatenate_datasets(parts).save_to_disk(folder)
    return datasets.load_from_disk(folder)


def programs(arrays, dataset, shuffle):
    """The programs by their names: each returns an iterator over batches."""
    scan = scan_of(dataset, cd.default_session())
    loader = Loader(scan, batch_size=BATCH, shuffle=shuffle, seed=1)
    formatted = dataset.with_format("torch")
    in_memory = TensorDataset(*(torch.from_numpy(array) for array in arrays.values()))
    found = {
        "crossdock.torch.Loader": lambda: iter(loader),
        "datasets, DataLoader": lambda: iter(DataLoader(formatted, BATCH, shuffle=shuffle)),
        "tensors in memory, DataLoader": lambda: iter(DataLoader(in_memory, BATCH, shuffle=shuffle)),
    }
    if not shuffle:
        found["datasets, `iter(256)`"] = lambda: formatted.iter(BATCH)
        if ray is not None:
            blocks = ray.data.from_arrow(dataset.data.table)
            found["Ray Data, `iter_torch_batches`"] = lambda: iter(blocks.iter_torch_batches(batch_size=BATCH))
    return found


def us_per_batch(program):
    batches = program()
    # A sampler orders all rows before the first batch.
    next(batches)
    begin = time.perf_counter()
    n = 0
    for _ in batches:
        n += 1
        if time.perf_counter() - begin > SECONDS:
            break
    return (time.perf_counter() - begin) / n * 1e6


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--runs", type=int, default=7)
    arguments.add_argument("--mib", type=int, default=64)
    options = arguments.parse_args()
    datasets.disable_progress_bars()
    if ray is None:
        print("skipped: Ray is not installed")
    else:
        ray.init(log_to_driver=False, include_dashboard=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
    print(
        f"{os.cpu_count()} cores, crossdock {cd.__version__}, torch {torch.__version__}, datasets {datasets.__version__}"
    )
    print("| batches of 256 rows | program | µs per batch | rows per second | ratio |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, arrays in [("3 × float32", numbers(options.mib)), ("list<int32>[128]", tokens(4 * options.mib))]:
            dataset = dataset_of(arrays, f"{folder}/{name[0]}")
            for shuffle in (False, True):
                found = programs(arrays, dataset, shuffle)
                times = {program: [] for program in found}
                for _ in range(options.runs):
                    for program, run in found.items():
                        times[program].append(us_per_batch(run))
                medians = {program: statistics.median(of_program) for program, of_program in times.items()}
                ours = next(iter(medians.values()))
                for program, us in medians.items():
                    case = f"{name}{', shuffled' if shuffle else ''}"
                    print(f"| {case} | {program} | {us:,.1f} | {BATCH / us * 1e6:,.0f} | {us / ours:.1f} |", flush=True)


if __name__ == "__main__":
    main()
