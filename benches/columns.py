"""Operations on columns of a GPU, next to torch and to a copy on the device.

    PYTHONPATH=$(cargo xtask python --release) python benches/columns.py [--millions 100]

Needs torch and a CUDA device. Each figure is a median, after a first call; memory comes from warm pools on both sides."""

import argparse
import statistics
import time

import numpy as np
import pyarrow as pa
import torch

import crossdock as cd


def median_of(function, session, runs=5):
    function()
    times = []
    for _ in range(runs):
        session.synchronize()
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        session.synchronize()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--millions", type=int, default=100, help="number of rows")
    n = parser.parse_args().millions * 1_000_000
    session = cd.Session("cuda:0")
    numbers = torch.arange(n, device="cuda", dtype=torch.float32)
    target = torch.empty_like(numbers)
    copied = 8 * n / median_of(lambda: target.copy_(numbers), session)
    print(
        f"{torch.cuda.get_device_name(0)}, {n} float32 numbers, a copy moves {copied / 1e9:.0f} GB/s (read and written)"
    )
    valid = torch.rand(n, device="cuda") < 0.9
    order = torch.randperm(n, device="cuda", dtype=torch.int32)
    zero, long_order = torch.zeros((), device="cuda"), order.long()
    column, indices = session.from_dlpack(numbers), session.from_dlpack(order)
    nullable, mask = session.from_dlpack(numbers, masks=~valid), session.from_dlpack(valid, bools="bits")
    cases = [
        ("fill_null", lambda: nullable.fill_null(0), lambda: torch.where(valid, numbers, zero), 8.125),
        ("cast to float64", lambda: column.cast("float64"), lambda: numbers.double(), 12),
        ("cast to int32, checked", lambda: column.cast("int32"), lambda: numbers.int(), 8),
        ("take, random order", lambda: column.take(indices), lambda: numbers[long_order], 12),
        ("filter, 90 % of the rows", lambda: column.filter(mask), lambda: numbers[valid], 7.725),
    ]
    for name, ours, theirs, bytes_per_row in cases:
        seconds, peer = median_of(ours, session), median_of(theirs, session)
        part = bytes_per_row * n / seconds / copied
        print(f"{name}: {seconds * 1e3:.2f} ms, {part:.0%} of the copy's rate; torch {peer * 1e3:.2f} ms")
    few = session.from_dlpack(np.arange(1_000_000) % 1000)
    texts = session.from_arrow(pa.array([f"v{i % 5000}" for i in range(2_000_000)]))
    for name, values in (("1 M integers, 1,000 distinct", few), ("2 M texts, 5,000 distinct", texts)):
        print(f"dictionary_encode of {name}: {median_of(values.dictionary_encode, session) * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
