"""HEFT beside saga's: the same makespans, and how long each takes.

``python -m placegap.experiments.bench.saga`` needs saga (``pip install anrg-saga``). Devices have
speeds, as saga knows no others, links are equal, and all times are whole numbers, so that saga's
floating-point sums are exact.

saga's ranks are not the paper's: its mean transfer counts each device's link to itself, at no
time, and is (K - 1) / (K + 1) of the mean over pairs of different devices for K devices. So it is
compared with placegap's kernels on ranks from saga's means, and with the method ``heft`` as it is.
Where two ranks or two finish times tie, saga's choice depends on the hash seed: its range over ten
seeds is what a makespan is compared with.
"""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from placegap.experiments.research.bench.measuring import cpu_s, least_cpu_s
from placegap.instances.corpus.generate import layered
from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.instance import Cluster, Device, Edge, Graph, Instance, Link, Op
from placegap.instances.problem.semantics import Makespan
from placegap.solvers import solve
from placegap.solvers.placers.insertion import idle_devices, schedule_by_insertion
from placegap.solvers.placers.list_problem import (
    admission_of,
    levels,
    mean_costs,
    order_by,
    problem_of,
)

FREE = Makespan(channels="free", transfers="per_edge")
HASH_SEEDS = range(10)
DISTINCT, TWO_SPEEDS = (1, 2, 4, 8), (1, 1, 2, 2)
GRAPHS, LARGEST = 50, 40
TIMED = 1_000


def related(seed: int, num_ops: int, speeds: Sequence[int], largest: int) -> Instance:
    """A layered graph between a source and a sink, on devices of these speeds.

    Times on a device of speed 1 are multiples of 8 ns up to `largest`, transfers whole ns.
    """
    rng = random.Random(f"saga {seed}")
    shape = layered(rng, num_ops - 2, 5, 0.3)
    fed, feeding = {b for _, b in shape.pairs}, {a for a, _ in shape.pairs}
    source, sink = num_ops - 2, num_ops - 1
    pairs = [
        *shape.pairs,
        *((source, i) for i in range(source) if i not in fed),
        *((i, sink) for i in range(source) if i not in feeding),
    ]
    steps = max(1, largest // 8)
    ops = []
    for i in range(num_ops):
        cost = 8 * rng.randint(1, steps)
        ops.append(Op(name=f"t{i}", time_ns={f"s{s}": cost // s for s in sorted(set(speeds))}))
    edges = tuple(
        Edge(producer=f"t{a}", consumer=f"t{b}", bytes=rng.randint(1, largest)) for a, b in pairs
    )
    devices = tuple(Device(name=f"n{k}", kind=f"s{s}") for k, s in enumerate(speeds))
    links = tuple(
        Link(source=a.name, target=b.name, bandwidth_bytes_per_s=10**9)
        for a in devices
        for b in devices
        if a != b
    )
    cluster = Cluster(name="related", devices=devices, links=links)
    graph = Graph(name="related", ops=tuple(ops), edges=edges)
    return Instance(name=f"related-{seed}", graph=graph, cluster=cluster)


def makespan_by(instance: Instance, rank: Ints) -> int:
    """HEFT's makespan, placing by these ranks."""
    arrays = instance.arrays
    times = schedule_by_insertion(
        problem_of(arrays),
        admission_of(arrays),
        order_by(rank, arrays),
        idle_devices(instance.num_devices, instance.num_ops),
        np.empty((0, 0), np.int64),
        1,
    )
    return int(times.end_ns.max())


def saga_ranks(instance: Instance) -> Ints:
    """Upward ranks with saga's means, as integers."""
    costs, k = mean_costs(instance.arrays), instance.num_devices
    return levels(problem_of(instance.arrays), costs.op * (k + 1), costs.tensor * (k - 1))


def has_ties(instance: Instance, rank: Ints) -> bool:
    """Whether two ranks are equal, or two devices finish an op first at the same time.

    A replay of HEFT on lists, which shares nothing with the kernels.
    """
    arrays, num_ops = instance.arrays, instance.num_ops
    if len(np.unique(rank)) < num_ops:
        return True
    index = arrays.index
    busy: list[list[tuple[int, int]]] = [[] for _ in range(instance.num_devices)]
    device, end = [0] * num_ops, [0] * num_ops
    for op in order_by(rank, arrays).tolist():
        finishes = []
        for k, own in enumerate(busy):
            at, duration = 0, int(arrays.time_ns[op, k])
            for e in index.pred_edge[index.pred_ptr[op] : index.pred_ptr[op + 1]].tolist():
                before, u = int(index.producer[e]), int(index.tensor[e])
                moved = arrays.transfer_ns[u, arrays.link_class[device[before], k]]
                at = max(at, end[before] + int(moved))
            for begin, until in own:
                if at + duration <= begin:
                    break
                at = max(at, until)
            finishes.append((at + duration, k))
        first, second = sorted(finishes)[:2]
        if first[0] == second[0]:
            return True
        end[op], device[op] = first
        busy[first[1]] = sorted(
            [*busy[first[1]], (end[op] - arrays.time_ns[op, first[1]], end[op])]
        )
    return False


def saga_parts(instance: Instance) -> tuple[Any, Any]:
    """Network and task graph of saga."""
    saga = import_module("saga")
    speed = [int(device.kind[1:]) for device in instance.cluster.devices]
    names = [device.name for device in instance.cluster.devices]
    slowest = f"s{min(speed)}"
    network = saga.Network.create(
        nodes=list(zip(names, map(float, speed), strict=True)),
        edges=[(a, b, 1.0) for i, a in enumerate(names) for b in names[i + 1 :]],
    )
    tasks = [(op.name, float(op.time_ns[slowest] * min(speed))) for op in instance.graph.ops]
    edges = [(edge.producer, edge.consumer, float(edge.bytes)) for edge in instance.graph.edges]
    return network, saga.TaskGraph.create(tasks=tasks, dependencies=edges)


def saga_makespan(instance: Instance) -> float:
    """Makespan of saga's HEFT, in ns."""
    scheduler = import_module("saga.schedulers.heft").HeftScheduler()
    return float(scheduler.schedule(*saga_parts(instance)).makespan)


def cases() -> dict[str, list[Instance]]:
    """Instances with few ties, and with many."""
    sizes = [10 + seed % LARGEST for seed in range(GRAPHS)]
    return {
        "distinct speeds, large times": [
            related(s, n, DISTINCT, 80_000) for s, n in enumerate(sizes)
        ],
        "two speeds, small times": [related(s, n, TWO_SPEEDS, 40) for s, n in enumerate(sizes)],
    }


def over_seeds() -> list[dict[str, list[float]]]:
    """Makespans by saga of all cases, for each hash seed in a process of its own."""
    command = [sys.executable, "-m", "placegap.experiments.bench.saga", "--worker"]
    found = []
    for seed in HASH_SEEDS:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        found.append(json.loads(done.stdout))
    return found


def compare() -> None:
    """Print how many makespans agree."""
    found = over_seeds()
    for label, instances in cases().items():
        ties = equal = inside = ours_inside = same_as_heft = 0
        for number, instance in enumerate(instances):
            seen = [makespans[label][number] for makespans in found]
            rank = saga_ranks(instance)
            value = makespan_by(instance, rank)
            heft = solve(instance, FREE, "heft").value_ns
            assert heft is not None
            tied = has_ties(instance, rank)
            ties += tied
            equal += not tied and min(seen) == value == max(seen)
            inside += tied and min(seen) <= value <= max(seen)
            ours_inside += min(seen) <= heft <= max(seen)
            same_as_heft += heft == value
        print(
            f"{label}: {len(instances) - ties} instances without ties, {equal} of them with saga's"
            f" makespan; {ties} with ties, {inside} of them within its range over"
            f" {len(found)} hash seeds.\n  With the paper's mean transfers: {same_as_heft}"
            f" makespans are the same, {ours_inside} are within saga's range."
        )


def compare_speed() -> None:
    """Print CPU seconds of both on the same instance."""
    instance = related(0, TIMED, DISTINCT, 80_000)
    solve(instance, FREE, "heft")
    own_s = least_cpu_s(lambda: solve(instance, FREE, "heft"))
    began = cpu_s()
    makespan = saga_makespan(instance)
    saga_s = cpu_s() - began
    value = makespan_by(instance, saga_ranks(instance))
    print(
        f"{TIMED} tasks, 4 devices: placegap {own_s:.4f} s, saga {saga_s:.2f} s of CPU"
        f" ({saga_s / own_s:.0f} times as long); makespans {value} and {makespan:.0f}"
    )


def main(arguments: Sequence[str]) -> int:
    """Compare, or compute saga's makespans for one hash seed."""
    try:
        import_module("saga")
    except ImportError:
        print("this needs saga: pip install anrg-saga", file=sys.stderr)
        return 1
    logging.disable(logging.WARNING)  # that it adds a source and a sink
    if "--worker" in arguments:
        print(json.dumps({k: [saga_makespan(i) for i in own] for k, own in cases().items()}))
        return 0
    compare()
    compare_speed()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
