"""Run a traced graph call by call on a device, with a timer around each.

Weights and inputs are random: times of dense kernels do not depend on values. Whole passes are
repeated, so that an op finds the caches as it does in use; the first ones warm up, and the median
of the others counts.

`calibrate` measures what the device reaches: its rate on a large product, its bandwidth on a large
copy.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

from placegap.instances.problem import DeviceSpec
from placegap.instances.problem.integers import NS_PER_MS, NS_PER_S
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.fx_nodes import is_check, tensors_in
from placegap.instances.torch_models.fx_reader import FxProgram, Held
from placegap.instances.torch_models.options import DeviceType, Dtype

WARM_UPS = 2
RUNS = 7
ADDED = "added: "  # in no name of a call
SPREAD = 0.02  # standard deviation of random weights: sums over thousands of them stay small


@dataclass(frozen=True)
class OpTimes:
    """What a pass was measured to take."""

    of_op_ns: Mapping[str, float]  # median time of every op that was run, by its name
    #: Median time of calls that are not ops (views, folded constants), by the op that reads what
    #: they return first, or else the op that they read; and of adding a gradient to that of the
    #: microbatches before, by the op that makes it.
    beside_ns: Mapping[str, float]

    @property
    def rest_ns(self) -> float:
        """Time of all that is no op."""
        return sum(self.beside_ns.values())


def measure_ops(
    graph: fx.Graph,
    held: Mapping[str, Held],
    program: FxProgram,
    device: DeviceType,
    runs: int = RUNS,
    *,
    gradients: Collection[str] = (),
) -> OpTimes:
    """Measure the ops of a program that was read from a traced graph."""
    # `runs` passes count, after `WARM_UPS` others. `gradients` are calls that return gradients of
    # weights: autograd adds each to the sum of the microbatches before, as soon as it is made.
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: torch finds no GPU here; measure on cpu")
    try:
        with torch.no_grad():
            inputs = _inputs(graph, held, device)
            sums = {
                node.name: torch.zeros(
                    node.meta["val"].shape, dtype=node.meta["val"].dtype, device=device
                )
                for node in graph.nodes
                if node.op == "call_function" and node.name in gradients
            }
            passes = [_one_pass(graph, inputs, sums, device) for _ in range(WARM_UPS + runs)][
                WARM_UPS:
            ]
    except (RuntimeError, IndexError, NotImplementedError) as error:  # out of memory included
        raise InputError(f"--device {device}: {str(error).partition(chr(10))[0]}") from None
    of_op: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(passes))
    beside: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(passes))
    nearest = _nearest_ops(graph, program)
    for number, times in enumerate(passes):
        for name, taken in times.items():
            if name.startswith(ADDED):
                name = name.removeprefix(ADDED)
                beside[program.op_of.get(name) or nearest[name]][number] += taken
            elif name in program.op_of:
                of_op[program.op_of[name]][number] += taken
            elif name in nearest:
                beside[nearest[name]][number] += taken
    own, others = (
        {name: median(found) for name, found in sums.items()} for sums in (of_op, beside)
    )
    return OpTimes(own, others)


def measure_module(module: Any, inputs: tuple[Any, Any], device: DeviceType, runs: int) -> float:
    """Median time of a call of a module on the meta device, which moves to `device`, in ns."""
    # `inputs` are its arguments and keywords. Weights and inputs are random, as those of ops.
    generator = torch.Generator(device).manual_seed(0)

    def made(leaf: Any) -> Any:
        is_tensor = isinstance(leaf, torch.Tensor)
        return _random_like(leaf, device, generator) if is_tensor else leaf

    with torch.no_grad():
        module.to_empty(device=device)
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.copy_(made(tensor))
        args, kwargs = tree_map(made, inputs)
        calls = [timed(device, module, args, kwargs)[1] for _ in range(WARM_UPS + runs)]
    return median(call() for call in calls[WARM_UPS:])


def _nearest_ops(graph: fx.Graph, program: FxProgram) -> dict[str, str]:
    """For each call that is no op, the first op that reads what it returns, or what it reads."""
    calls = [node for node in graph.nodes if node.op == "call_function"]
    found = dict(program.op_of)
    for node in reversed(calls):  # readers come first
        readers = (found[user.name] for user in node.users if user.name in found)
        first = found.get(node.name) or next(readers, None)
        if first is not None:
            found[node.name] = first
    for node in calls:
        sources = (found[each.name] for each in node.all_input_nodes if each.name in found)
        first = found.get(node.name) or next(sources, None)
        if first is not None:
            found[node.name] = first
    return {name: op for name, op in found.items() if name not in program.op_of}


def use_threads(threads: int) -> None:
    """Set the number of threads of torch's ops on a CPU."""
    torch.set_num_threads(threads)


def _inputs(graph: fx.Graph, held: Mapping[str, Held], device: DeviceType) -> dict[fx.Node, Any]:
    """Random tensors for inputs and weights; tied weights are one tensor."""
    generator = torch.Generator(device).manual_seed(0)
    by_name: dict[str, Any] = {}
    found = {}
    for node in graph.nodes:
        if node.op not in ("placeholder", "get_attr"):
            continue
        name = held[node.name].name if node.name in held else f"input {node.name}"
        if name not in by_name:
            shapes = tensors_in(node)
            value = _random_like(shapes[0], device, generator) if shapes else node.meta.get("val")
            by_name[name] = value
        found[node] = by_name[name]
    return found


def _random_like(like: Any, device: DeviceType, generator: torch.Generator) -> torch.Tensor:
    """A tensor of the shape and type of another: small numbers, or zeros and ones."""
    if like.dtype.is_floating_point:
        values = torch.rand(like.shape, generator=generator, device=device) * SPREAD
        return values.to(like.dtype)
    # 0 and 1 are positions in every table
    values = torch.randint(0, 2, like.shape, generator=generator, device=device)
    return values.to(like.dtype)


def _one_pass(
    graph: fx.Graph,
    inputs: Mapping[fx.Node, Any],
    sums: Mapping[str, torch.Tensor],
    device: DeviceType,
) -> dict[str, float]:
    """Time of every call in ns, by the name of its node."""
    # With `ADDED` before the name, of adding what it returns to its sum.
    values = dict(inputs)
    last_user = {source: node for node in graph.nodes for source in node.all_input_nodes}
    ends: dict[str, Callable[[], float]] = {}
    for node in graph.nodes:
        if node.op == "call_function" and not is_check(node):
            args, kwargs = (
                fx.map_arg(part, values.__getitem__) for part in (node.args, node.kwargs)
            )
            kwargs = dict(_moved(kwargs, device))
            values[node], ends[node.name] = timed(device, node.target, args, kwargs)
            if node.name in sums:
                both = (sums[node.name], values[node])
                ends[ADDED + node.name] = timed(device, torch.Tensor.add_, both)[1]
        for source in node.all_input_nodes:
            if last_user[source] is node:
                del values[source]
    return {name: end() for name, end in ends.items()}


def _moved(kwargs: Mapping[str, Any], device: DeviceType) -> Iterator[tuple[str, Any]]:
    """Tensors that the graph makes are made on the device that is measured."""
    for name, value in kwargs.items():
        yield name, torch.device(device) if isinstance(value, torch.device) else value


def timed(
    device: DeviceType,
    target: Callable[..., Any],
    args: Any,
    kwargs: Mapping[str, Any] | None = None,
) -> tuple[Any, Callable[[], float]]:
    """What a call returns, and a function that says how long it took, in ns."""
    # On a GPU the queue is emptied first, so that the two events enclose this call alone.
    kwargs = kwargs or {}
    if device == "cpu":
        # the time of one thread leaves out what other programs take of its core
        clock = time.thread_time_ns if torch.get_num_threads() == 1 else time.perf_counter_ns
        start = clock()
        value = target(*args, **kwargs)
        taken = float(clock() - start)
        return value, lambda: taken
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    value = target(*args, **kwargs)
    last.record()
    return value, lambda: _elapsed_ns(first, last)


def _elapsed_ns(first: Any, last: Any) -> float:
    last.synchronize()
    return float(first.elapsed_time(last)) * NS_PER_MS


SIDE = {"cpu": 1024, "cuda": 8192}  # rows of the square matrices that are multiplied

COPIED_BYTES = {"cpu": 1 << 27, "cuda": 1 << 30}


def calibrate(device: DeviceType, dtype: Dtype = "float32") -> DeviceSpec:
    """Rates of a device for one number type, as an entry of the catalogue would state them."""
    # It takes 0.2 s on a CPU core: the median of 7 runs after 2 others.
    side, copied = SIDE[device], COPIED_BYTES[device]
    square = torch.rand(side, side, device=device).to(getattr(torch, dtype))
    source = torch.rand(copied // 4, device=device)
    target, small = torch.empty_like(source), torch.zeros(1, device=device)
    product_ns = _median_ns(device, torch.mm, square, square)
    copy_ns = _median_ns(device, target.copy_, source)
    launch_ns = _median_ns(device, torch.neg, small)
    peak = max(1, round(2 * side**3 * NS_PER_S / max(1.0, product_ns)))
    return DeviceSpec(
        peak_flops_per_s={dtype: peak},
        bandwidth_bytes_per_s=max(1, round(2 * copied * NS_PER_S / max(1.0, copy_ns))),
        memory_bytes=None,  # no roofline asks for it
        launch_overhead_ns=round(launch_ns),
        source=f"measured: a {dtype} product of {side} x {side}, a copy of {copied} bytes",
    )


def _median_ns(device: DeviceType, call: Callable[..., Any], *args: Any) -> float:
    times = [timed(device, call, args) for _ in range(WARM_UPS + RUNS)]
    return median(end() for _, end in times[WARM_UPS:])
