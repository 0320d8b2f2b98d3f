"""The split files of dnn-partitioning: which nodes are on which accelerator and CPU.

`importers.dnn_partitioning_split` reads them.
"""

from __future__ import annotations

import json
from typing import Any

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import Semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate

NS_PER_MS = 10**6


def write_split(instance: Instance, plan: Plan, semantics: Semantics) -> str:
    """A split file, with loads in ms as the program writes them.

    Raises
    ------
    InputError
        If ops have names that are no numbers, or are on several devices.

    Examples
    --------
    >>> from placegap.instances import MaxLoad, example
    >>> write_split(example(), Plan.on([0, 0, 0, 0]), MaxLoad())
    Traceback (most recent call last):
    placegap.instances.reading.errors.InputError: op 'op1' is no number, as the nodes of \
dnn-partitioning are; export csv
    """
    verdict = evaluate(instance, plan, semantics)
    nodes: list[list[int]] = [[] for _ in range(instance.num_devices)]
    for op, devices in zip(instance.graph.ops, plan.placement, strict=True):
        if not (op.name.isascii() and op.name.isdecimal()) or str(int(op.name)) != op.name:
            raise InputError(
                f"op {op.name!r} is no number, as the nodes of dnn-partitioning are; export csv"
            )
        if len(devices) > 1:
            raise InputError(f"op {op.name!r} is on {len(devices)} devices; leave out --replicas")
        nodes[devices[0]].append(int(op.name))
    content: dict[str, Any] = {"fpgas": [], "cpus": []}
    for k, spec in enumerate(instance.cluster.devices):
        stage: dict[str, Any] = {"nodes": nodes[k]}
        if verdict.uses:
            stage = {"load": verdict.uses[k].load_ns / NS_PER_MS, **stage}
        content["cpus" if spec.is_host else "fpgas"].append(stage)
    if semantics.objective == "max_load" and verdict.value_ns is not None:
        content["maxLoad"] = verdict.value_ns / NS_PER_MS
    return json.dumps(content, indent=2) + "\n"
