"""What the device at hand reaches: its rate on a large product, its bandwidth on a large copy."""

from __future__ import annotations

import os
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from placegap.instances.io.costing import DeviceSpec
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.torch_models.op_times import (
    RUNS,
    WARM_UPS,
    timed,
)
from placegap.instances.torch_models.options import DeviceType, Dtype

SIDE = {"cpu": 1024, "cuda": 8192}
"""Rows of the square matrices that are multiplied."""

COPIED_BYTES = {"cpu": 1 << 27, "cuda": 1 << 30}


def calibrate(device: DeviceType, dtype: Dtype = "float32") -> DeviceSpec:
    """Rates of a device for one number type, as an entry of the catalogue would state them.

    Notes
    -----
    0.2 s on a CPU core; the median of 7 runs after 2 others.
    """
    side, copied = SIDE[device], COPIED_BYTES[device]
    square = torch.rand(side, side, device=device).to(getattr(torch, dtype))
    source = torch.rand(copied // 4, device=device)
    target, small = torch.empty_like(source), torch.zeros(1, device=device)
    product_ns = _median_ns(device, torch.mm, square, square)
    copy_ns = _median_ns(device, target.copy_, source)
    launch_ns = _median_ns(device, torch.neg, small)
    peak = max(1, round(2 * side**3 * NS_PER_S / max(1.0, product_ns)))
    return DeviceSpec(
        peak_flops_per_s=peak,
        peak_by_dtype={dtype: peak},
        bandwidth_bytes_per_s=max(1, round(2 * copied * NS_PER_S / max(1.0, copy_ns))),
        memory_bytes=_memory_bytes(device),
        launch_overhead_ns=round(launch_ns),
        source=f"measured: a {dtype} product of {side} x {side}, a copy of {copied} bytes",
    )


def _memory_bytes(device: DeviceType) -> int:
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _median_ns(device: DeviceType, call: Callable[..., Any], *args: Any) -> float:
    times = [timed(device, call, args) for _ in range(WARM_UPS + RUNS)]
    return median(end() for _, end in times[WARM_UPS:])
