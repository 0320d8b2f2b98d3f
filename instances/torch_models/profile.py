"""How long each op of a model takes on the device at hand, beside what costing says."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from placegap.instances.costing.catalogue import catalogue
from placegap.instances.costing.costing import roofline_ns
from placegap.instances.problem import DeviceSpec
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.fx_reader import read_fx_graph
from placegap.instances.torch_models.model import build_model
from placegap.instances.torch_models.options import DeviceType, Dtype, TraceOptions
from placegap.instances.torch_models.tracing import traced


@dataclass(frozen=True)
class OpTime:
    """Measured and modelled time of one op, in ns."""

    # `beside_ns` is the time of calls that are not ops (views, folded constants) and that it reads,
    # and of adding its gradient of a weight to those of other microbatches.
    name: str
    kind: str
    measured_ns: int
    roofline_ns: int
    beside_ns: int = 0


@dataclass(frozen=True)
class Profile:
    """A measured model."""

    model: str
    device_kind: str  # what the times are filed under
    spec: DeviceSpec  # what the roofline is made of: the catalogue's entry, or what was measured
    is_calibrated: bool  # whether the rates of `spec` were measured
    ops: tuple[OpTime, ...]  # in the order of the graph
    rest_ns: int  # time of all that is no op: views, folded constants, adding gradients
    module_ns: int | None = (
        None  # time of a call of the module as a whole; None: of a training step
    )


def profile_model(
    name: str,
    options: TraceOptions,
    device: DeviceType = "cpu",
    device_kind: str | None = None,
    *,
    runs: int | None = None,
    threads: int | None = None,
) -> Profile:
    """Trace a forward pass, or forward and backward, and measure it op by op."""
    # Weights and inputs are random. The gradient of a weight is added to the sum of the
    # microbatches before; the op that makes it has this time. Times are filed under `device_kind`,
    # whose entry of the catalogue makes the roofline; without an entry the rates of the device are
    # measured. `threads` of an op on a CPU holds for all that torch does from now on.
    if options.train and options.optimizer != "none":
        raise InputError("updates of weights are not measured; add --optimizer none", name)
    gradients: frozenset[str] = frozenset()
    if options.train and options.weights:
        raise InputError("ops of quantized weights are not measured; leave out --weights", name)
    if options.train:
        from placegap.instances.torch_models.training_graph import held_in
        from placegap.instances.torch_models.training_model import trace_step

        step = trace_step(name, options)
        graph, held, program = step.program.graph_module.graph, held_in(step.program), step.ops
        gradients = frozenset(step.program.gradient_of.values())
    else:
        model = build_model(name, options)
        if model.weights is not None:
            raise InputError("ops of quantized weights are not measured", name)
        graph, held = traced(name, model)
        try:
            program = read_fx_graph(graph, held)
        except ValueError as error:
            raise InputError(str(error), name) from None
    from placegap.instances.torch_models.op_times import (
        RUNS,
        calibrate,
        measure_module,
        measure_ops,
        use_threads,
    )

    if threads is not None:
        use_threads(threads)
    times = measure_ops(graph, held, program, device, runs or RUNS, gradients=gradients)
    filed = device_kind or device
    known = catalogue().get(filed)
    most = max(program.ops, key=lambda op: int(op["flops"]))["dtype"]
    main: Dtype = next((dtype for dtype in get_args(Dtype) if dtype == most), "float32")
    spec = calibrate(device, main) if known is None else known
    ops = tuple(
        OpTime(
            op["name"],
            op["kind"],
            round(times.of_op_ns[op["name"]]),
            roofline_ns(op["flops"], op["bytes_moved"], spec, dtype=op["dtype"]),
            round(times.beside_ns.get(op["name"], 0)),
        )
        for op in program.ops
    )
    module_ns = None
    if not options.train:
        inputs = (model.args, model.kwargs)
        module_ns = round(measure_module(model.module, inputs, device, runs or RUNS))
    return Profile(name, filed, spec, known is None, ops, round(times.rest_ns), module_ns)


def times_csv(profile: Profile) -> str:
    """The measured times as a CSV file that ``--times`` reads, calls beside ops included."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("name", "device_kind", "time_ns"))
    writer.writerows(
        (op.name, profile.device_kind, op.measured_ns + op.beside_ns) for op in profile.ops
    )
    return text.getvalue()


def by_kind(ops: Sequence[OpTime]) -> Mapping[str, tuple[int, int, int]]:
    """For each kind of op: how many, measured and modelled time; the slowest kind first."""
    sums: dict[str, tuple[int, int, int]] = {}
    for op in ops:
        count, measured_ns, modelled_ns = sums.get(op.kind, (0, 0, 0))
        sums[op.kind] = (count + 1, measured_ns + op.measured_ns, modelled_ns + op.roofline_ns)
    return dict(sorted(sums.items(), key=lambda item: (-item[1][1], item[0])))
