"""Why a plan leaves devices unused, and what to ask instead: a sentence below the result."""

from __future__ import annotations

import numpy as np

from placegap.instances.problem.instance import Instance
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.instances.problem.plan import Evaluation
from placegap.instances.problem.semantics import (
    LoadSemantics,
    PipelineIteration,
    Semantics,
    has_two_levels,
    memory_rule,
    plan_class,
)
from placegap.solvers.core.registry import METHODS
from placegap.solvers.core.result import Result

MOST_NAMES = 4
"""More devices are counted, not named."""

PIPELINE = "for the throughput of a pipeline over all devices ask --objective max_load"


def plan_notes(instance: Instance, result: Result) -> tuple[str, ...]:
    """Sentences about a result's plan, for people who expected all devices to be used.

    Parameters
    ----------
    instance : Instance
        The one of the plan: the finer one, where the method split ops.
    result : Result

    Examples
    --------
    >>> from placegap.instances import Makespan, example
    >>> from placegap.solvers import solve
    >>> result = solve(example(), Makespan(), "single-device")
    >>> plan_notes(example(), result)[0].partition(":")[0]
    'the plan uses gpu0 alone'
    """
    verdict = result.evaluation
    if result.plan is None or verdict is None:
        return ()
    return (*_no_state(instance, result.semantics), *_idle(instance, result, verdict))


def _no_state(instance: Instance, semantics: Semantics) -> tuple[str, ...]:
    """Formats that give one number for an op's memory say nothing of what stays."""
    sizes = instance.memory_arrays
    stated = sizes.state_bytes.any() or len(sizes.shared_bytes)
    if memory_rule(semantics) == "sum" or stated or not instance.arrays.resident_bytes.any():
        return ()
    return (
        "no op states parameter_bytes, state_bytes or shared_state: the peaks count tensors and"
        " workspace alone; --memory sum counts the resident bytes",
    )


def _idle(instance: Instance, result: Result, verdict: Evaluation) -> tuple[str, ...]:
    """Why the plan leaves devices unused, if it does."""
    if not verdict.idle_devices:
        return ()
    cluster, time_ns = instance.cluster, instance.arrays.time_ns
    idle = [cluster.device_index[name] for name in verdict.idle_devices]
    runs_none = (time_ns == UNSUPPORTED).all(axis=0)
    if runs_none[idle].all():
        return (f"{_unused(verdict)}: no op of this model can run there",)
    if runs_none.any():
        names = tuple(cluster.devices[k].name for k in np.flatnonzero(runs_none).tolist())
        return (
            f"no op of this model can run on {_names(names)}",
            *_chosen(instance, result, verdict),
        )
    return _chosen(instance, result, verdict)


def _chosen(instance: Instance, result: Result, verdict: Evaluation) -> tuple[str, ...]:
    """Why a plan leaves devices unused that it could use."""
    cluster = instance.cluster
    idle = [cluster.device_index[name] for name in verdict.idle_devices]
    if all(cluster.devices[k].is_host for k in idle):
        return (f"{_unused(verdict)}: a host",)
    if isinstance(result.semantics, LoadSemantics):
        return (_stages(verdict, result),)
    if isinstance(result.semantics, PipelineIteration):
        return (_fewer_stages(instance, verdict, result, result.semantics),)
    return (_one_pass(instance, verdict, result),)


def _one_pass(instance: Instance, verdict: Evaluation, result: Result) -> str:
    """Makespan and latency: the end of one pass."""
    used = [use.device for use in verdict.uses if use.num_ops]
    proven = result.status == "optimal"
    if len(used) == 1 and proven and result.value_ns:
        from placegap.solvers.bounds.cheap_bounds import path_ns  # loads a solver

        share = path_ns(instance, transfers=False) / result.value_ns
        return (
            f"{used[0]} alone is optimal for one pass: {share:.0%} of its time are ops of one path,"
            f" each of which waits for the one before, and the rest gains less from another device"
            f" than transfers cost; {PIPELINE}"
        )
    if len(used) == 1 and proven:
        what = f"{used[0]} alone is optimal for one pass"
    elif len(used) == 1:
        what = f"the plan uses {used[0]} alone"
    else:
        what = _unused(verdict)
    why = "only ops that wait for no other gain from more devices, and transfers cost time"
    if not proven:
        why = f"no better plan over more devices was found: {why}"
    return f"{what}: {why}; {PIPELINE}"


def _fewer_stages(
    instance: Instance, verdict: Evaluation, result: Result, semantics: PipelineIteration
) -> str:
    """pipeline_iteration: another stage delays the first microbatch, or does not fit the rounds."""
    rounds = semantics.schedule == "interleaved" and semantics.microbatches % instance.num_devices
    if rounds:
        return (
            f"{_unused(verdict)}: {semantics.microbatches} microbatches are no multiple of"
            f" {instance.num_devices} devices, as interleaved asks; choose --microbatches so"
        )
    from placegap.instances.problem.nets import gradient_tie  # loads networkx

    tie = gradient_tie(instance)
    if tie is not None:
        return f"{_unused(verdict)}: {tie}"
    if result.status == "optimal":
        return f"{_unused(verdict)}: no plan with more stages has a shorter iteration"
    return f"{_unused(verdict)}: no shorter iteration with more stages was found"


def _stages(verdict: Evaluation, result: Result) -> str:
    """max_load and max_load_fwd_bwd: the heaviest stages."""
    heaviest = max(verdict.uses, key=lambda use: use.load_ns)
    found = "no plan has less" if result.status == "optimal" else "no plan with less was found"
    if result.semantics.objective == "max_load_fwd_bwd":
        why = "the heaviest forward and backward loads decide"
    elif has_two_levels(result.semantics):
        why = "the heaviest load of a device or server decides"
    else:
        why = f"the heaviest stage decides, {heaviest.device}'s"
    asked = _instead(result.semantics, heaviest.num_ops)
    if result.status != "optimal" and _is_heuristic(result.method):
        asked = "an exact method may find one: leave --method out"
    return f"{_unused(verdict)}: {why}, and {found}; {asked}"


def _instead(semantics: Semantics, num_ops: int) -> str:
    if num_ops == 1:
        return "'placegap split' divides an op that is a stage of its own"
    if semantics.objective == "max_load" and not semantics.replicas:
        return "with --replicas equal devices may share a stage"
    if plan_class(semantics) != "any":
        return "with --plans any a device may run any ops"
    return "'placegap split' divides heavy ops"


def _is_heuristic(method: str) -> bool:
    return method in METHODS and METHODS[method].claim == "heuristic"


def _unused(verdict: Evaluation) -> str:
    idle = verdict.idle_devices
    return f"{_names(idle)} {'stays' if len(idle) == 1 else 'stay'} unused"


def _names(names: tuple[str, ...]) -> str:
    """``gpu0``, ``gpu0 and gpu1``, ``gpu0, gpu1, gpu2 and 5 more``."""
    if len(names) > MOST_NAMES:
        shown = [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
    else:
        shown = list(names)
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
