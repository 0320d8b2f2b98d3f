"""The link between two processes of this machine, measured with torch, as a cluster's file."""

from __future__ import annotations

import os
import socket
import time
from datetime import timedelta

import torch
from torch import distributed

from placegap.experiments.running.process_group import ProcessesFailed, run_together
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.torch_models.options import DeviceType

PATIENCE = timedelta(hours=1)
"""The parent ends processes that wait for too long; this must not come first."""

LOOPBACKS = ("lo", "lo0")


def loopback() -> str | None:
    """Name of the network interface that leads from this machine to itself, if it has one."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in LOOPBACKS if name in names), None)


def join_group(device: str, store: str, rank: int, count: int) -> torch.device:
    """Make this process one of a group: one thread, its own device, gloo or NCCL between them."""
    torch.set_num_threads(1)
    name = loopback()
    if name is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
    own = torch.device("cpu") if device == "cpu" else torch.device("cuda", rank)
    if device == "cuda":
        torch.cuda.set_device(own)
    distributed.init_process_group(
        "gloo" if device == "cpu" else "nccl",
        init_method=f"file://{store}",
        rank=rank,
        world_size=count,
        timeout=PATIENCE,
    )
    return own


SMALL_BYTES, LARGE_BYTES = 1 << 12, 1 << 22
FIRST_MESSAGES, RUNS = 3, 21


def ping_pong(device: DeviceType, store: str, rank: int) -> tuple[int, int]:
    """Least time in ns of a small and of a large message, half of there and back.

    What other programs add is no property of the link: medians of a busy machine may say that the
    large message is the faster one.
    """
    own = join_group(device, store, rank, 2)
    found = []
    for size in (SMALL_BYTES, LARGE_BYTES):
        message = torch.zeros(size, dtype=torch.uint8, device=own)
        taken = []
        for _ in range(FIRST_MESSAGES + RUNS):
            begin = time.perf_counter_ns()
            for sender in (0, 1):
                (distributed.send if rank == sender else distributed.recv)(message, 1 - rank)
            if device == "cuda":
                torch.cuda.synchronize()
            taken.append((time.perf_counter_ns() - begin) // 2)
        found.append(min(taken[FIRST_MESSAGES:]))
    distributed.barrier()
    distributed.destroy_process_group()
    return found[0], found[1]


def machine_cluster(devices: str, device: DeviceType = "cpu", limit_s: float = 120.0) -> str:
    """A cluster file of processes of this machine, with the link between two measured.

    Its devices are those of an entry that is written already (`profile.device_entry`).
    """
    small_ns, large_ns = run_together(ping_pong, (device,), 2, limit_s)[0]
    return cluster_text(devices, small_ns, large_ns)


FASTEST_BYTES_PER_S = 10**13
"""No link and no memory of a device moves more; what seems to was disturbed."""


def cluster_text(devices: str, small_ns: int, large_ns: int) -> str:
    """A cluster file from the times of the two messages."""
    rate = (LARGE_BYTES - SMALL_BYTES) * NS_PER_S // max(1, large_ns - small_ns)
    if rate > FASTEST_BYTES_PER_S:
        raise ProcessesFailed(
            f"no link is so fast: {LARGE_BYTES} bytes took {large_ns} ns, {SMALL_BYTES} bytes"
            f" {small_ns} ns; measure again while the machine does nothing else"
        )
    return (
        f"# measured: messages of {SMALL_BYTES} and {LARGE_BYTES} bytes between two processes\n"
        "name: this-machine\n"
        f"devices: [{devices}]\n"
        f"links: [{{all_to_all: all, bandwidth_bytes_per_s: {rate}, latency_ns: {small_ns}}}]\n"
    )
