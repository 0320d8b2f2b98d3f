"""FD-DPS: heavy ops split, then list scheduling along the dynamic critical path."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from placegap.instances.problem.semantics import Makespan
from placegap.instances.transforms.op_splitting import Axis, split_ops
from placegap.instances.transforms.split_rule import (
    AXES,
    KINDS,
    MAX_PARAMETERS,
    MIN_SHARE,
    MOST_PARTS_OF_OP,
    PARTS,
    SplitRule,
    choose_cuts,
)
from placegap.solvers.core.method import Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome
from placegap.solvers.placers.dynamic_critical_path import d_dps, outcome_of_split


def _words(value: Any) -> Any:
    """Also as text: "batch,out_channel"."""
    return tuple(word.strip() for word in value.split(",")) if isinstance(value, str) else value


class SplitParams(Params):
    """How ops may be split: fields of `SplitRule` that FD-DPS and FastT share."""

    parts: Annotated[int, Field(ge=2, le=MOST_PARTS_OF_OP)] = PARTS
    axes: Annotated[tuple[Axis, ...], BeforeValidator(_words), Field(min_length=1)] = AXES
    kinds: Annotated[tuple[str, ...], BeforeValidator(_words)] = KINDS


class FdDpsParams(SplitParams):
    """Parameters of FD-DPS: fields of `SplitRule`."""

    min_share: Annotated[float, Field(ge=0, le=1)] = MIN_SHARE
    min_time_ns: Annotated[int, Field(ge=0)] = 0
    max_parameters: Annotated[int, Field(ge=0)] = MAX_PARAMETERS


def fd_dps(task: Task[Makespan], params: Params | None = None) -> Outcome:
    """Split the ops that compute much and hold few parameters, then place as D-DPS does.

    Zeng et al., "FD-DPS", Mathematics 2022, 10, 4788, Algorithm 3. A heuristic for the makespan of
    an instance of finer ops: where ops were split the plan is one of that instance
    (`Result.split`), not of the one asked about; where none was, it is D-DPS' plan.
    Filled in: thresholds, axes and the costs of parts (`choose_cuts`, `split_ops`); where the
    parts, with their copies, do not fit, the ops are left whole; the rest as in `d_dps`.
    O((V + E) (K + log V)) for the V ops and E edges of the finer instance.

    Examples
    --------
    Op 2 of figure 3's graph in three parts; the optimum of the whole ops is 34:

    >>> from placegap.instances import Makespan, Op, example, simulate
    >>> semantics = Makespan(channels="free")
    >>> diamond = example()
    >>> ops = tuple(op.model_copy(update={"splittable_axes": ("batch",)})
    ...             for op in diamond.graph.ops)
    >>> graph = diamond.graph.model_copy(update={"ops": ops})
    >>> task = Task(diamond.model_copy(update={"graph": graph}), semantics)
    >>> outcome = fd_dps(task, FdDpsParams(min_share=0.4, parts=3))
    >>> finer = outcome.split.fine
    >>> [op.name for op in finer.graph.ops][1:5]
    ['op2/1of3', 'op2/2of3', 'op2/3of3', 'op2/gather']
    >>> simulate(finer, outcome.plan, semantics).makespan_ns
    30
    """
    assert params is None or isinstance(params, FdDpsParams)
    cuts = choose_cuts(task.instance, SplitRule(**dict(params or FdDpsParams())))
    if not cuts:
        return d_dps(task)
    split = split_ops(task.instance, cuts)
    outcome = outcome_of_split(split, d_dps(Task(split.fine, task.semantics, task.limits)))
    if outcome.plan is None:
        whole = d_dps(task)
        reasons = "; ".join(filter(None, (whole.message, f"ops left whole: {outcome.message}")))
        return replace(whole, message=reasons)
    return outcome


register(
    Method(
        name="fd-dps",
        claim="heuristic",
        objectives=("makespan",),
        paper="Zeng et al. 2022 (FD-DPS)",
        cites=("zeng2022, algorithm 3",),
        summary="splits heavy ops, then D-DPS; its value is of the finer graph",
        run=fd_dps,
        params=FdDpsParams,
    )
)
