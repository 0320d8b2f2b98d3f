"""The table of transforms: instance -> coarser instance, with the way back for plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from placegap.instances.problem import Instance, Makespan, Plan, Semantics
from placegap.instances.reading.errors import as_input_error, look_up
from placegap.instances.referee.evaluate import evaluate
from placegap.instances.transforms.celeritas_fusion import MEMORY_SHARE, REACH, commit_groups, fuse
from placegap.instances.transforms.colocation import co_place, contract_classes
from placegap.instances.transforms.merge import Merge, expand_plan, with_all_orders
from placegap.instances.transforms.moirai_fusion import default_rules, fuse_by_rules, load_rules
from placegap.instances.transforms.pesto_merge import MergeOrder, merge_ops
from placegap.instances.transforms.zero_time import join_zero_time

# ``exact``: the optimum is that of the fine instance, and so bounds hold for it. ``restriction``:
# plans of the coarse instance are plans of the fine one, but the best may be lost, and bounds say
# nothing. ``neither``: a plan may also break a rule of the fine instance; the referee decides.
Claim = Literal["exact", "restriction", "neither"]


class TransformParams(BaseModel):
    """Base of the parameters of a transform."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MoiraiFusionParams(TransformParams):
    """`rules`: a YAML file of fusion rules; the package's own by default."""

    rules: Path | None = None


class CeleritasFusionParams(TransformParams):
    """`reach` (R): most ops of a fused one; `memory_share` (M): most of a device's memory."""

    reach: Annotated[int, Field(ge=1)] = REACH
    memory_share: Annotated[float, Field(ge=0, le=1)] = MEMORY_SHARE


class PestoMergeParams(TransformParams):
    """`ops`: how many to merge to; `order`: which pair is merged first."""

    ops: Annotated[int, Field(ge=1)] = 200
    order: MergeOrder = "dearest_first"


class CoPlacementParams(TransformParams):
    """`fixed_point`: whether what is merged is merged again with its only consumer."""

    fixed_point: bool = True


class ColourParams(TransformParams):
    """`fuse_cycles`: whether classes that feed each other are contracted together (SCCs)."""

    fuse_cycles: bool = True


@dataclass(frozen=True)
class Transform:
    """One row of the table."""

    # `is_exact` says under which semantics, and with which parameters, no optimum is lost.
    name: str
    paper: str
    summary: str
    run: Callable[[Instance, Semantics, Any], Merge]
    params: type[TransformParams] = TransformParams
    is_exact: Callable[[Semantics, Any], bool] = lambda semantics, params: False


def _moirai(instance: Instance, semantics: Semantics, params: MoiraiFusionParams) -> Merge:
    rules = default_rules() if params.rules is None else load_rules(params.rules)
    return fuse_by_rules(instance, rules)


def _contraction_is_exact(semantics: Semantics, params: ColourParams) -> bool:
    kept = ("chain",) if params.fuse_cycles else ("any", "chain")
    is_kept = semantics.plan_class in kept and not semantics.has_replicas
    return bool(semantics.load_passes) and is_kept


TRANSFORMS: dict[str, Transform] = {
    transform.name: transform
    for transform in (
        Transform(
            "moirai-fusion",
            "Moirai",
            "fuses ops that inference backends run as one, by rules",
            _moirai,
            MoiraiFusionParams,
        ),
        Transform(
            "celeritas-fusion",
            "Celeritas",
            "cuts an order along critical paths where the least communication crosses",
            lambda instance, _, params: fuse(instance, params.reach, params.memory_share),
            CeleritasFusionParams,
        ),
        Transform(
            "pesto-merge",
            "Pesto",
            "merges the most expensive edges until few ops are left",
            lambda instance, _, params: merge_ops(instance, params.ops, params.order),
            PestoMergeParams,
        ),
        Transform(
            "co-placement",
            "Baechi",
            "merges ops with their only consumers",
            lambda instance, _, params: co_place(instance, fixed_point=params.fixed_point),
            CoPlacementParams,
        ),
        Transform(
            "colour-classes",
            "Tarnawski et al. 2020",
            "contracts colocation groups, and such as feed each other",
            lambda instance, _, params: contract_classes(instance, fuse_cycles=params.fuse_cycles),
            ColourParams,
            _contraction_is_exact,
        ),
        Transform(
            "zero-time",
            "-",
            "joins ops of no time and no memory with a neighbour, where that is exact",
            lambda instance, semantics, _: join_zero_time(instance, semantics),
            is_exact=lambda semantics, params: True,
        ),
    )
}


@dataclass(frozen=True, eq=False)
class Coarsening:
    """What a transform made of an instance under one semantics."""

    transform: str
    semantics: Semantics
    merge: Merge
    claim: Claim


def coarsen(
    instance: Instance,
    transform: str,
    params: Mapping[str, object] | None = None,
    semantics: Semantics | None = None,
) -> Coarsening:
    """Merge ops of an instance by a transform.

    Parameters
    ----------
    instance : Instance
    transform : str
        A name of `TRANSFORMS`.
    params : mapping, optional
        Its parameters, as values or as text.
    semantics : Semantics, optional
        Semantics of the plans to compare: it determines what is exact, and what `zero-time` may
        merge. By default the instance's own, else the makespan.

    Examples
    --------
    >>> from placegap.instances import example
    >>> found = coarsen(example(), "pesto-merge", {"ops": 3})
    >>> found.merge.op.tolist(), found.claim
    ([0, 1, 0, 2], 'restriction')
    """
    chosen, parsed = find_transform(transform, params)
    judged = semantics or instance.semantics or Makespan()
    merge = chosen.run(instance, judged, parsed)
    return Coarsening(transform, judged, merge, _claim(merge, judged, chosen, parsed))


def find_transform(
    name: str, params: Mapping[str, object] | None = None
) -> tuple[Transform, TransformParams]:
    """The transform of that name and its validated parameters, or an InputError."""
    chosen = look_up("transform", name, TRANSFORMS)
    with as_input_error(source=f"parameters of {name}", model=chosen.params):
        return chosen, chosen.params.model_validate(dict(params or {}))


def _claim(merge: Merge, semantics: Semantics, transform: Transform, params: Any) -> Claim:
    """What the plans of the merged instance are to the instance."""
    # A chain or a load per pass is made of classes and passes, which must not have been mixed, and
    # devices may look equal (`replicas`) only after merging.
    backward = merge.fine.arrays.backward
    if loses_groups(merge):
        return "neither"
    if merge.coarse.num_ops == merge.fine.num_ops:
        return "exact"
    if semantics.memory_rule == "sum" and transform.is_exact(semantics, params):
        return "exact"
    if semantics.memory_rule == "peak":  # a merged op begins with all its inputs, without steps
        return "neither"
    if semantics.has_replicas or (semantics.plan_class == "chain" and backward.any()):
        return "neither"
    mixes = (merge.coarse.arrays.backward[merge.op] != backward).any()
    return "neither" if semantics.load_passes and mixes else "restriction"


def loses_groups(merge: Merge) -> bool:
    """Whether ops of one colocation group are in merged ops that may be apart (Celeritas)."""
    group, coarse = merge.fine.arrays.group, merge.coarse.arrays.group[merge.op]
    pairs = np.unique(np.column_stack([group, coarse]), axis=0)
    return len(pairs) > merge.fine.arrays.num_groups


def expand(found: Coarsening, plan: Plan) -> Plan:
    """The plan of the fine instance that corresponds to a plan of the coarse one.

    Under a makespan semantics two plans are tried and the better one is returned: one leaves open
    the orders that the coarse plan leaves open, the other takes them from its schedule. If merged
    ops have lost their colocation groups, each group goes to the device of its first op, and all
    orders are left open.

    Parameters
    ----------
    found : Coarsening
    plan : Plan
        A feasible plan of ``found.merge.coarse``.

    Examples
    --------
    >>> from placegap.instances import example
    >>> found = coarsen(example(), "pesto-merge", {"ops": 3})
    >>> expand(found, Plan.on([0, 1, 0])).devices.tolist()
    [0, 1, 0, 0]
    """
    merge, semantics = found.merge, found.semantics
    if loses_groups(merge):
        return Plan.on(commit_groups(merge, plan.devices).tolist())
    as_given = expand_plan(merge, plan, semantics)
    if not isinstance(semantics, Makespan):
        return as_given
    ordered = expand_plan(merge, with_all_orders(merge.coarse, plan, semantics), semantics)
    verdicts = [evaluate(merge.fine, each, semantics) for each in (as_given, ordered)]
    before, after = (v.value_ns if v.feasible else None for v in verdicts)
    return as_given if before is not None and (after is None or before <= after) else ordered
