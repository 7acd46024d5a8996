"""Compares tables of Crossdock and pyarrow that are passed between processes: pickle, Ray and Dask.

    PYTHONPATH=$(cargo xtask python --release) python benches/engines.py FLIGHTS.arrow

Ray and Dask are left out if they are not installed. Each figure is a median; the two libraries run in turn. With the option
--cuda, measures only Dask workers on GPUs that communicate by UCX, next to an array of cupy with as many bytes, and to a
DataFrame of cuDF if it is installed."""

import importlib.util
import os
import pickle
import resource
import statistics
import sys
import time

import pyarrow as pa

import crossdock as cd

RUNS = 101
ENGINE_RUNS = 9


def tables(path, copies=1):
    """The same rows in four batches: as a table of Crossdock and of pyarrow, each with its own buffers."""
    with pa.memory_map(path) as file:
        whole = pa.ipc.open_file(file).read_all()
    whole = pa.concat_tables([whole] * copies).combine_chunks()
    rows = -(-len(whole) // 4)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, whole.schema) as writer:
        for i in range(0, len(whole), rows):
            writer.write_table(whole.slice(i, rows))
    data = sink.getvalue()
    return cd.default_session().read_ipc(data), pa.ipc.open_file(data).read_all()


def median_us(runs, *functions):
    """The median time of each function in microseconds."""
    times = [[] for _ in functions]
    for _ in range(runs):
        for function, of_function in zip(functions, times, strict=True):
            begin = time.perf_counter_ns()
            function()
            of_function.append(time.perf_counter_ns() - begin)
    return [statistics.median(of_function) / 1000 for of_function in times]


def dumps(table):
    buffers = []
    return pickle.dumps(table, 5, buffer_callback=buffers.append), [pickle.PickleBuffer(buffer) for buffer in buffers]


def row(name, ours, theirs, unit="µs"):
    print(f"| {name} | {ours:,.0f} {unit} | {theirs:,.0f} {unit} | {ours / theirs:.2f} |", flush=True)


def pickles(path):
    for copies in (1, 20):
        pair = tables(path, copies)
        name = f"{pair[1].num_columns} columns × 4 batches, {pair[1].nbytes / 1e6:.0f} MB"
        row(f"dumps, {name}", *median_us(RUNS, *(lambda table=table: dumps(table) for table in pair)))
        pickled = [dumps(table) for table in pair]
        loads = (lambda data=data, buffers=buffers: pickle.loads(data, buffers=buffers) for data, buffers in pickled)
        row(f"loads, {name}", *median_us(RUNS, *loads))
        parts = [table.slice(1000, 1000) for table in pair]
        row(f"pickled slice of 1,000 rows, {name}", *(len(pickle.dumps(part, 5)) for part in parts), unit="bytes")
        row(
            "dumps and loads of the slice",
            *median_us(RUNS, *(lambda p=p: pickle.loads(pickle.dumps(p, 5)) for p in parts)),
        )


def cpu_us(runs, *functions):
    """The CPU times of this process for each function in microseconds."""
    times = [[] for _ in functions]
    for _ in range(runs):
        for function, of_function in zip(functions, times, strict=True):
            begin = time.process_time_ns()
            function()
            of_function.append((time.process_time_ns() - begin) / 1000)
    return times


def with_ray(path):
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=1_000_000_000)
    pair = tables(path, 5)
    name = f"{pair[1].nbytes / 1e6:.0f} MB"
    # The store has memory for nine objects. Until they exist, the system provides new pages.
    puts = cpu_us(4 + ENGINE_RUNS, *(lambda table=table: ray.put(table) for table in pair))
    row(f"ray.put, {name}, new memory of the store, CPU", *(statistics.median(costs[:4]) for costs in puts))
    row(f"ray.put, {name}, CPU", *(statistics.median(costs[4:]) for costs in puts))
    refs = [ray.put(table) for table in pair]
    gets = cpu_us(ENGINE_RUNS, *(lambda ref=ref: ray.get(ref) for ref in refs))
    row(f"ray.get, {name}, CPU", *map(statistics.median, gets))
    ray.shutdown()


def pid_and_cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def with_dask(path):
    from distributed import Client, LocalCluster

    pair = tables(path, 5)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, preload=["crossdock.dask"]) as cluster,
        Client(cluster) as client,
    ):
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        costs = [[], []]
        for _ in range(ENGINE_RUNS):
            for table, of_table in zip(pair, costs, strict=True):
                sent = client.scatter(table, workers=workers[:1], hash=False)
                before = sum(client.run(pid_and_cpu).values())
                client.submit(len, sent, workers=workers[1:], pure=False).result()
                of_table.append((sum(client.run(pid_and_cpu).values()) - before) * 1e6)
                del sent
        name = f"{pair[1].nbytes / 1e6:.0f} MB"
        row(f"Dask, from worker to worker, {name}, CPU of both", *(statistics.median(cost) for cost in costs))


def table_of_worker(path):
    """The flights 20 times, 424 MB in one batch on the worker's GPU."""
    whole = pa.concat_tables([pa.ipc.open_file(path).read_all()] * 20).combine_chunks()
    return cd.Session("cuda:0").from_arrow(whole)


def array_of_worker(table):
    import cupy

    return cupy.zeros(table.nbytes, "u1")


def frame_of_worker(table):
    import cudf

    return cudf.DataFrame.from_arrow(table.to_pyarrow())


def copy_of(thing):
    """The same memory as another object, which Dask has not sent yet."""
    return thing[:]


def with_dask_on_gpus(path):
    from distributed import Client, Nanny, Scheduler, SpecCluster, wait

    from crossdock.cuda import get_num_devices

    ucx = {"protocol": "ucx", "host": "127.0.0.1", "dashboard": False}
    scheduler = {"cls": Scheduler, "options": {**ucx, "port": 0}}

    def worker(gpu):
        options = {"nthreads": 1, "preload": ["crossdock.dask"], "env": {"CUDA_VISIBLE_DEVICES": str(gpu)}}
        return {"cls": Nanny, "options": {**ucx, **options}}

    for gpu in range(min(get_num_devices(), 2)):
        workers = {0: worker(0), 1: worker(gpu)}
        with SpecCluster(workers=workers, scheduler=scheduler) as cluster, Client(cluster) as client:
            client.wait_for_workers(2)
            first, second = list(client.scheduler_info(n_workers=-1)["workers"])
            table = client.submit(table_of_worker, path, workers=[first])
            things = [table, client.submit(array_of_worker, table, workers=[first])]
            if importlib.util.find_spec("cudf"):
                things.append(client.submit(frame_of_worker, table, workers=[first]))
            n_bytes = client.submit(lambda table: table.nbytes, table, workers=[first]).result()
            times = [[] for _ in things]
            for _ in range(ENGINE_RUNS + 1):
                for thing, of_thing in zip(things, times, strict=True):
                    sent = client.submit(copy_of, thing, workers=[first], pure=False)
                    wait(sent)
                    begin = time.perf_counter_ns()
                    client.submit(len, sent, workers=[second], pure=False).result()
                    of_thing.append((time.perf_counter_ns() - begin) / 1000)
                    del sent
            name = f"Dask with UCX, {n_bytes / 1e6:.0f} MB, from cuda:0 to cuda:{gpu}"
            for what, of_others in zip(("cupy, bytes only", "cuDF"), times[1:], strict=False):
                row(f"{name}, first, {what}", times[0][0], of_others[0])
                row(f"{name}, {what}", *(statistics.median(costs[1:]) for costs in (times[0], of_others)))


def main():
    *options, path = sys.argv[1:]
    if options == ["--cuda"]:
        print("| | crossdock | other | ratio |\n|---|---|---|---|")
        return with_dask_on_gpus(path)
    print(f"{os.cpu_count()} cores, crossdock {cd.__version__}, pyarrow {pa.__version__}")
    print("| | crossdock | pyarrow | ratio |\n|---|---|---|---|")
    pickles(path)
    for library, run in (("ray", with_ray), ("distributed", with_dask)):
        try:
            __import__(library)
        except ImportError as error:
            print(f"skipped: {error}", file=sys.stderr)
            continue
        run(path)


if __name__ == "__main__":
    main()
