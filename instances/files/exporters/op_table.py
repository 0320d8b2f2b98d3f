"""CSV with one row per op: where it runs, and when, for spreadsheets and scripts."""

from __future__ import annotations

import csv
from io import StringIO

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import PipelineIteration, Semantics
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.referee.stages import plan_stages

COLUMNS = (
    "name",
    "kind",
    "module",
    "backward",
    "device",
    "device_kind",
    "stage",
    "time_ns",
    "start_ns",
    "end_ns",
    "resident_bytes",
    "parameter_bytes",
)


def write_op_table(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """The table of a plan; an op of a replicated stage has a row for each of its devices.

    ``stage`` is empty but under pipeline_iteration, ``start_ns`` and ``end_ns`` are where the
    value has no schedule of ops.

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> print(write_op_table(example(), Plan.on([0, 0, 0, 0]), MaxLoad()).splitlines()[1])
    op1,op,,0,gpu0,gpu,,5,,,0,0
    """
    text = StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    schedule = evaluate(instance, plan, semantics).schedule
    stage: list[int] = []
    if isinstance(semantics, PipelineIteration):
        stages = plan_stages(instance, plan, semantics)
        last = 2 * stages.num_stages - 1
        stage = [min(step, last - step) for step in stages.step.tolist()]
    for i, (op, devices) in enumerate(zip(instance.graph.ops, plan.placement, strict=True)):
        when = ("", "") if schedule is None else (schedule.start_ns[i], schedule.end_ns[i])
        for k in devices:
            spec = instance.cluster.devices[k]
            table.writerow(
                (
                    op.name,
                    op.kind,
                    op.module or "",
                    int(op.backward),
                    spec.name,
                    spec.kind,
                    stage[i] if stage else "",
                    int(instance.arrays.time_ns[i, k]),
                    *when,
                    op.resident_bytes,
                    op.parameter_bytes,
                )
            )
    return text.getvalue()
