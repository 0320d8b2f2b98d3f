"""Which ops to split: those that compute much and hold few parameters (FD-DPS, 4.1 and 5.3).

The paper splits "computationally intensive" ops and leaves "parameter intensive" ones whole; which
ops those are is "based on expert experience", and Table 6 lists six decisions without thresholds.
Both thresholds, the axes and the kinds of ops are therefore parameters here; the defaults are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placegap.instances.problem import Instance, Op
from placegap.instances.problem.graph_index import group_by
from placegap.instances.problem.mean_costs import mean_time_ns
from placegap.instances.problem.modules import clones_of
from placegap.instances.transforms.op_splitting import Axis, Cut, OpSplit, split_ops
from placegap.instances.transforms.split_gradients import is_update

AXES: tuple[Axis, ...] = ("batch", "out_channel", "in_channel")  # axes by preference

# Kinds that can be split along their channels although they do not state it: those of the paper's
# Table 7 under ONNX' names, and what updates their parameters in a training graph.
KINDS = (
    *("Conv", "Conv/backward", "ConvTranspose", "ConvTranspose/backward", "Gemm", "Gemm/backward"),
    *("MatMul", "MatMul/backward", "update"),
)

PARTS = 2  # parts of an op, as in figure 2
MOST_PARTS_OF_OP = 1024  # what the methods take at most; devices are fewer

# Of the time of all ops of one clone. Table 7 has convolutions split on all six networks, which
# takes 0.001; Table 6 leaves Conv1_1 of VGG-16 whole, which that splits. No share meets both: this
# one meets 21 of the 24 decisions, 0.003 meets 18 and 0.01 meets 14 (docs/papers/fd-dps.md).
MIN_SHARE = 0.001
MAX_PARAMETERS = 3_000_000  # bytes of parameters per ms; Table 6: 57 KB is split, 137 MB is not


@dataclass(frozen=True)
class SplitRule:
    """When an op is split, and how."""

    min_share: float = MIN_SHARE  # least mean time of an op, as a share of all ops of one clone
    min_time_ns: int = 0  # least mean time of an op; both must be reached
    max_parameters: int = MAX_PARAMETERS  # most bytes of parameters per ms of mean time
    parts: int = PARTS  # parts of an op; fewer where the axis has fewer elements
    axes: tuple[Axis, ...] = AXES  # by preference: the first to split the op along is taken
    kinds: tuple[str, ...] = KINDS  # ops of these that state no axes are split along channel axes


def split_heavy_ops(instance: Instance, rule: SplitRule | None = None) -> OpSplit:
    """Split every op that the rule names; FD-DPS, Algorithm 3, lines 2 to 6."""
    # O(V + E).
    return split_ops(instance, choose_cuts(instance, rule or SplitRule()))


def choose_cuts(instance: Instance, rule: SplitRule) -> dict[int, Cut]:
    """Which ops the rule splits, and how."""
    # A colocation group, such as forward, backward and update op, is split as a whole or not at
    # all: if one of its ops takes long enough, all of them together hold few enough parameters, and
    # all can be split along one axis.
    arrays, ops = instance.arrays, instance.graph.ops
    mean_ns = mean_time_ns(arrays)
    one_ns = mean_ns[np.array(clones_of(instance)) <= 0].sum()
    is_long = mean_ns >= max(rule.min_time_ns, rule.min_share * one_ns)
    cuts: dict[int, Cut] = {}
    pointer, member = group_by(arrays.group, arrays.num_groups)
    for group in np.unique(arrays.group[is_long]).tolist():
        unit = member[pointer[group] : pointer[group + 1]].tolist()
        parameters = sum(ops[i].parameter_bytes for i in unit)
        if parameters * 1_000_000 <= rule.max_parameters * float(mean_ns[unit].sum()):
            cuts |= cut_unit(ops, unit, rule)
    return dict(sorted(cuts.items()))


def cut_unit(ops: Sequence[Op], unit: Sequence[int], rule: SplitRule) -> dict[int, Cut]:
    """How to split ops that are split together: the first axis they all have, or not at all."""
    # Along the batch the ops that update parameters are copied, and need not have it.
    for axis in rule.axes:
        divided = [i for i in unit if axis != "batch" or not is_update(ops[i])]
        if divided and all(axis in axes_of(ops[i], rule.kinds) for i in divided):
            parts = min(rule.parts, *(ops[i].axis_sizes.get(axis, rule.parts) for i in unit))
            if parts >= 2:
                return {i: Cut(axis, parts) for i in unit}
    return {}


def axes_of(op: Op, kinds: Sequence[str] = KINDS) -> tuple[str, ...]:
    """The axes that an op states, or that its kind has."""
    if op.splittable_axes:
        return op.splittable_axes
    return ("out_channel", "in_channel") if op.kind in kinds else ()
