"""Lines that somebody runs and has measured, by which the times of an instance are scaled."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from placegap.instances.costing.catalogue import is_cpu
from placegap.instances.costing.fitted import MEASURED_LINES
from placegap.instances.exporters.lines import gpus_and_host
from placegap.instances.exporters.read_lines import read_line
from placegap.instances.kernels.array_types import Floats
from placegap.instances.problem import Instance, Makespan
from placegap.instances.problem.cluster import slowed
from placegap.instances.problem.integers import NS_PER_S
from placegap.instances.reading.errors import InputError
from placegap.instances.referee.evaluate import evaluate

MOST_STEPS, CLOSE = 30, 1e-4  # steps of Newton's method, and how near to the measured time is met
LEAST, MOST = 0.01, 100.0  # factors beyond these are slips


def scaled_to(instance: Instance, measured: Sequence[tuple[str, float]]) -> Instance:
    """The instance whose times let one or two lines take as long as they were measured to."""
    # One line gives a factor for the ops on all cards. Two give another one: for ops on hosts if a
    # line has some there, else for transfers.
    parameters = instance.graph.provenance.parameters
    if len(measured) > 2:
        raise InputError(f"--measured-tokens is given {len(measured)} times; one or two are used")
    if not parameters.get("decode"):
        raise InputError("--measured-tokens is about decode steps: add --decode", instance.name)
    sequences = int(parameters.get("batch") or 1)
    for _, tokens in measured:
        if not (isfinite(tokens) and tokens > 0):
            raise InputError(f"--measured-tokens is tokens per second (got {tokens:g})")
    goal = np.array([sequences * NS_PER_S / tokens for _, tokens in measured])
    _, host = gpus_and_host(instance.cluster)
    plans = [read_line(instance, text).plan for text, _ in measured]
    second = "links" if host is None or all(host not in p.devices for p in plans) else "hosts"

    def take(factors: Floats) -> Floats:
        changed = _scaled(instance, second, *factors.tolist())
        read = [read_line(changed, text) for text, _ in measured]
        found = [evaluate(each.instance, each.plan, Makespan(memory="peak")) for each in read]
        return np.array([verdict.value_ns or np.nan for verdict in found])

    factors = np.ones(len(measured))
    for _ in range(MOST_STEPS):
        now = take(factors)
        if np.all(np.abs(now / goal - 1) < CLOSE):
            break
        steps = np.diag(0.02 * factors.clip(1.0))
        slope = np.stack([(take(factors + step) - now) / step.sum() for step in steps], axis=1)
        if not abs(np.linalg.det(slope / goal[:, None])) > CLOSE:
            raise InputError(
                f"the measured lines do not tell cards and {second} apart"
                if len(measured) > 1
                else "the measured line has no op on a card, so it says nothing of cards"
            )
        factors = (factors + np.linalg.solve(slope, goal - now)).clip(LEAST, MOST)
    else:
        raise InputError(
            f"no factor from {LEAST:g} to {MOST:g} of cards{f' and {second}' * (len(goal) - 1)}"
            " lets the measured lines take what was measured",
            instance.name,
        )
    words = [f"cards take {factors[0]:.3g}", *(f"{second} {each:.3g}" for each in factors[1:])]
    runs = " and ".join(f"{tokens:g} tokens/s of {text!r}" for text, tokens in measured)
    said = f"{runs}: {' and '.join(words)} times their estimate"
    changed = _scaled(instance, second, *factors.tolist())
    noted = {MEASURED_LINES: said, f"{MEASURED_LINES}.ns": round(goal[0])}
    provenance = changed.graph.provenance.noting(f"scaled to {said}", noted)
    graph = changed.graph.model_copy(update={"provenance": provenance})
    return changed.with_graph(graph, instance.name)


def _scaled(instance: Instance, second: str, cards: float, other: float = 1.0) -> Instance:
    """The instance whose ops on cards, and on hosts or links, take so many times as long."""
    hosts = {device.kind for device in instance.cluster.devices if is_cpu(device, instance.cluster)}
    of = dict.fromkeys(hosts, other if second == "hosts" else 1.0)
    ops = tuple(
        op.model_copy(
            update={"time_ns": {k: round(ns * of.get(k, cards)) for k, ns in op.time_ns.items()}}
        )
        for op in instance.graph.ops
    )
    changed = instance.with_graph(instance.graph.model_copy(update={"ops": ops}), instance.name)
    if second == "links" and other != 1:
        update = {"cluster": slowed(instance.cluster, other), "best_known": ()}
        changed = changed.model_copy(update=update)
    return changed
