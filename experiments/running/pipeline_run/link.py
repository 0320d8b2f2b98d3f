"""How fast tensors go from one process of this machine to another."""

from __future__ import annotations

import time
from statistics import median

import torch
from torch import distributed

from placegap.experiments.running.pipeline_run import ProcessesFailed, run_together
from placegap.experiments.running.pipeline_stage import join_group
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.torch_models.options import DeviceType

SMALL_BYTES, LARGE_BYTES = 1 << 12, 1 << 22
WARM_UPS, RUNS = 3, 21


def ping_pong(device: DeviceType, store: str, rank: int) -> tuple[int, int]:
    """Median time in ns of a small and of a large message, half of there and back."""
    own = join_group(device, store, rank, 2)
    found = []
    for size in (SMALL_BYTES, LARGE_BYTES):
        message = torch.zeros(size, dtype=torch.uint8, device=own)
        taken = []
        for _ in range(WARM_UPS + RUNS):
            begin = time.perf_counter_ns()
            for sender in (0, 1):
                (distributed.send if rank == sender else distributed.recv)(message, 1 - rank)
            if device == "cuda":
                torch.cuda.synchronize()
            taken.append((time.perf_counter_ns() - begin) // 2)
        found.append(round(median(taken[WARM_UPS:])))
    distributed.barrier()
    distributed.destroy_process_group()
    return found[0], found[1]


def machine_cluster(count: int, device: DeviceType = "cpu", limit_s: float = 120.0) -> str:
    """A cluster file of so many processes of this machine, with the link between two measured.

    Its devices are of the kind "cpu" or "cuda", under which ``placegap profile`` files times.

    Raises
    ------
    ProcessesFailed
        If the processes cannot reach each other, or what was measured is no link's rate.
    """
    small_ns, large_ns = run_together(ping_pong, (device,), 2, limit_s)[0]
    return cluster_text(count, device, small_ns, large_ns)


FASTEST_BYTES_PER_S = 10**13
"""No link and no memory of a device moves more; what seems to was disturbed."""


def cluster_text(count: int, kind: str, small_ns: int, large_ns: int) -> str:
    """A cluster file from the times of the two messages.

    Raises
    ------
    ProcessesFailed
        If they are those of no link: the large one takes hardly longer.

    Examples
    --------
    4 MiB less 4 KiB more take 4,190,208 ns more, at a byte per ns:

    >>> print(cluster_text(2, "cpu", 50_000, 4_240_208), end="")
    # measured: messages of 4096 and 4194304 bytes between two processes
    name: this-machine
    devices: [{name: process, count: 2, kind: cpu, memory_bytes: null}]
    links: [{all_to_all: all, bandwidth_bytes_per_s: 1000000000, latency_ns: 50000}]
    """
    rate = (LARGE_BYTES - SMALL_BYTES) * NS_PER_S // max(1, large_ns - small_ns)
    if rate > FASTEST_BYTES_PER_S:
        raise ProcessesFailed(
            f"no link is so fast: {LARGE_BYTES} bytes took {large_ns} ns, {SMALL_BYTES} bytes"
            f" {small_ns} ns; measure again while the machine does nothing else"
        )
    return (
        f"# measured: messages of {SMALL_BYTES} and {LARGE_BYTES} bytes between two processes\n"
        "name: this-machine\n"
        f"devices: [{{name: process, count: {count}, kind: {kind}, memory_bytes: null}}]\n"
        f"links: [{{all_to_all: all, bandwidth_bytes_per_s: {rate}, latency_ns: {small_ns}}}]\n"
    )
