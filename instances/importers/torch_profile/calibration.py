"""What the device at hand reaches: its rate on a large product, its bandwidth on a large copy."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import torch

from placegap.instances.costing.catalogue import DeviceSpec
from placegap.instances.importers.torch_profile.op_times import (
    RUNS,
    WARM_UPS,
    DeviceType,
    timed,
)
from placegap.instances.problem.integers import NS_PER_S

SIDE = {"cpu": 1024, "cuda": 8192}
"""Rows of the square matrices that are multiplied."""

COPIED_BYTES = {"cpu": 1 << 27, "cuda": 1 << 30}


def calibrate(device: DeviceType) -> DeviceSpec:
    """Rates of a device in float32, as an entry of the catalogue would state them.

    Notes
    -----
    0.2 s on a CPU core; the median of 7 runs after 2 others.
    """
    side, copied = SIDE[device], COPIED_BYTES[device]
    square = torch.rand(side, side, device=device)
    source = torch.rand(copied // 4, device=device)
    target, small = torch.empty_like(source), torch.zeros(1, device=device)
    product_ns = _median_ns(device, torch.mm, square, square)
    copy_ns = _median_ns(device, target.copy_, source)
    launch_ns = _median_ns(device, torch.neg, small)
    return DeviceSpec(
        peak_flops_per_s=max(1, round(2 * side**3 * NS_PER_S / max(1.0, product_ns))),
        bandwidth_bytes_per_s=max(1, round(2 * copied * NS_PER_S / max(1.0, copy_ns))),
        memory_bytes=1,
        launch_overhead_ns=round(launch_ns),
        source=f"measured: a product of {side} x {side}, a copy of {copied} bytes, one number",
    )


def _median_ns(device: DeviceType, call: Callable[..., Any], *args: Any) -> float:
    times = [timed(device, call, args) for _ in range(WARM_UPS + RUNS)]
    return median(end() for _, end in times[WARM_UPS:])
