"""Operator splitting: ops become parts and a gather, edges become slices.

After Zeng et al., FD-DPS (Mathematics 2022, 10, 4788), section 4.1 and figure 2. Which ops are
split is decided elsewhere (`rule`, or a search). A plan of the finer instance is a plan of another
instance: of the instance that was split it is none, and its value may lie below that instance's
optimum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from pydantic import ValidationError

from placegap.instances.problem.array_types import Ints
from placegap.instances.problem.graph_index import freeze
from placegap.instances.problem.instance import Instance, Op
from placegap.instances.reading.errors import InputError, from_validation_error, paused_collector
from placegap.instances.transforms.op_splitting import (
    Cut,
    PartNames,
    divide,
    find_partial_sums,
    find_sums,
    fresh,
    held_bytes,
    kept_bytes,
    round_up,
    shares,
    split_edges,
    tensors_of,
)
from placegap.instances.transforms.split_gradients import is_update

WHOLE, GATHER = -1, -2
"""In place of a part's number: an op that was not split, and what joins the parts of one."""


MOST_PARTS = 1_000_000
"""Of all ops together; a part takes some 10 KB of memory, with its edges."""


@dataclass(frozen=True, eq=False)
class OpSplit:
    """An instance of n ops and the finer one of n' ops that its split ops make.

    Attributes
    ----------
    coarse, fine : Instance
    op : (n',) int64
        The op of `coarse` that each op of `fine` is, is a part of, or gathers.
    part : (n',) int64
        Number of the part, from 0; `WHOLE` or `GATHER` where it is none.
    """

    coarse: Instance
    fine: Instance
    op: Ints
    part: Ints

    @property
    def num_split(self) -> int:
        """Number of ops that were split."""
        return len(np.unique(self.op[self.part >= 0]))

    @property
    def num_parts(self) -> int:
        """Number of parts of all of them."""
        return int((self.part >= 0).sum())

    @property
    def summary(self) -> str:
        """``1 op split into 2 parts``."""
        ops = "1 op" if self.num_split == 1 else f"{self.num_split} ops"
        return f"{ops} split into {self.num_parts} parts"


def split_ops(instance: Instance, cuts: Mapping[int, Cut]) -> OpSplit:
    """Split ops into parts and a gather.

    Parts get whole elements of the axis, as equally as possible, or equal shares where its size is
    not known. Of time, FLOPs and bytes moved each part takes its share, rounded up; a tensor, the
    parameters or the output that are divided are divided exactly, what is not divided every part
    has whole (`Axis`). The gather ("Concat", or "Sum" of partial outputs) runs wherever the op
    runs, takes no time itself, and holds what the op held beside its parameters; every output of
    the op goes through it, also to an op that is split alike. The paper gives no costs of parts or
    gathers: all this is filled in.

    A colocation group is split as a whole, into groups of the parts of one number: they share that
    part of the parameters. Explicit transfer times are divided like bytes, and rounded up.

    Where a training step is split along its batch, an op that updates parameters is copied, and an
    all-reduce adds up the gradients of the parts first (`gradients`). A gradient that goes
    elsewhere is added up by the gather, from whole partial sums.

    Parameters
    ----------
    instance : Instance
    cuts : mapping of int to Cut
        By op number.

    Returns
    -------
    Split
        Parts and then their gather stand where their op stood.

    Raises
    ------
    InputError
        If an axis has fewer elements than parts, there is only one part, only some ops of a
        colocation group are split, or not all alike, there are more than `MOST_PARTS` parts in all,
        or a sum grows beyond 2**62.

    Notes
    -----
    O(V + E + sum over split ops of parts * edges).

    Examples
    --------
    The diamond's op 2 takes 20 ns:

    >>> from placegap.instances import example
    >>> fine = split_ops(example(), {1: Cut("batch", 2)}).fine.graph
    >>> [(op.name, op.time_ns["gpu"]) for op in fine.ops[1:4]]
    [('op2/1of2', 10), ('op2/2of2', 10), ('op2/gather', 0)]
    """
    graph = instance.graph
    _check_cuts(instance, cuts)
    bounds = {i: shares(graph.ops[i], cut) for i, cut in cuts.items()}
    with paused_collector():
        sums = find_sums(instance, cuts)
        _check_sums(cuts, sums)
        partial, reduced = find_partial_sums(instance, cuts, sums), tensors_of(instance, sums)
        kept, past = kept_bytes(instance, partial | reduced), kept_bytes(instance, reduced)
        names, groups = _names(instance, cuts), _part_groups(instance, cuts)
        ops: list[Op] = []
        origin: list[tuple[int, int]] = []
        for i, op in enumerate(graph.ops):
            if i not in cuts:
                ops.append(op)
                origin.append((i, WHOLE))
                continue
            copied = cuts[i].axis == "batch" and is_update(op)
            for j, name in enumerate(names[i].parts):
                group = groups.get((i, j))
                made = (
                    op.model_copy(update={"name": name, "colocation": group})
                    if copied
                    else _part(op, cuts[i], bounds[i], j, name, group, kept.get(i, 0))
                )
                ops.append(made)
                origin.append((i, j))
            ops.append(_gather(op, cuts[i], names[i].gather, past.get(i, 0)))
            origin.append((i, GATHER))
        edges = split_edges(instance, cuts, bounds, names, sums, partial)
        change = (
            f"{len(cuts)} ops split into {sum(cut.parts for cut in cuts.values())} parts"
            " (after FD-DPS)"
        )
        provenance = graph.provenance.model_copy(
            update={"changes": (*graph.provenance.changes, change)}
        )
        update = {"ops": tuple(ops), "edges": tuple(edges), "provenance": provenance}
        try:
            finer = {"name": _fine_name(instance), "graph": graph.model_copy(update=update)}
            fine = instance.model_copy(update={**finer, "best_known": ()})
        except ValidationError as error:  # sums beyond 2**62
            raise from_validation_error(error, source=instance.name) from None
    of, part = np.array(origin, np.int64).T.copy()
    split = OpSplit(instance, fine, of, part)
    freeze(split)
    return split


def _fine_name(instance: Instance) -> str:
    """``net@cluster`` becomes ``net-split@cluster``."""
    end = f"@{instance.cluster.name}"
    bare = instance.name.removesuffix(end)
    return f"{bare}-split{end if bare != instance.name else ''}"


def _check_cuts(instance: Instance, cuts: Mapping[int, Cut]) -> None:
    ops, parts = instance.graph.ops, sum(cut.parts for cut in cuts.values())
    if parts > MOST_PARTS:
        raise InputError(f"{parts} parts of {len(cuts)} ops; choose {MOST_PARTS} at most in all")
    for i, cut in cuts.items():
        size = ops[i].axis_sizes.get(cut.axis, cut.parts)
        if not 2 <= cut.parts <= size:
            raise InputError(
                f"op {ops[i].name!r}: cannot be split into {cut.parts} parts along {cut.axis};"
                f" choose at least 2{'' if size == cut.parts else f' and at most {size}'}"
            )
    of_group: dict[str, Cut | None] = {}
    for i, op in enumerate(ops):
        if op.colocation is not None and of_group.setdefault(op.colocation, cuts.get(i)) != (
            cuts.get(i)
        ):
            raise InputError(
                f"op {op.name!r}: its colocation group {op.colocation!r} must be split as a whole,"
                " all its ops alike"
            )


def _check_sums(cuts: Mapping[int, Cut], sums: Mapping[int, Mapping[int, int]]) -> None:
    """Each part of a gradient goes from all parts to all copies: many parts take many edges."""
    num_edges = sum(cuts[i].parts ** 2 * len(found) for i, found in sums.items())
    if num_edges > MOST_PARTS:
        raise InputError(
            f"all-reduces of {num_edges} transfers; choose fewer parts, {MOST_PARTS} transfers are"
            " the most"
        )


def _part(
    op: Op, cut: Cut, bounds: tuple[int, ...], j: int, name: str, group: str | None, kept: int
) -> Op:
    """Part j of an op; `kept` bytes of its output are gradients, which each part has whole."""
    state = held_bytes(op)
    output = op.resident_bytes - state
    whole = op.parameter_bytes
    if cut.axis != "batch":
        state, whole = (divide(size, bounds, j) for size in (state, whole))
    if cut.axis != "in_channel":
        kept = min(kept, output)
        output = kept + divide(output - kept, bounds, j)
    sizes = dict(op.axis_sizes)
    if cut.axis in sizes:
        sizes[cut.axis] = bounds[j + 1] - bounds[j]
    return op.model_copy(
        update={
            "name": name,
            "time_ns": {kind: round_up(time, bounds, j) for kind, time in op.time_ns.items()},
            "resident_bytes": state + output,
            "parameter_bytes": whole,
            "workspace_bytes": round_up(op.workspace_bytes, bounds, j),
            **_part_state(op, cut, bounds, j),
            "colocation": group,
            "flops": None if op.flops is None else round_up(op.flops, bounds, j),
            "bytes_moved": None if op.bytes_moved is None else round_up(op.bytes_moved, bounds, j),
            "axis_sizes": sizes,
        }
    )


def _part_state(op: Op, cut: Cut, bounds: tuple[int, ...], j: int) -> dict[str, object]:
    """State goes with the parameters: whole parts of a batch hold all of it, by the same names."""
    if cut.axis == "batch":
        return {}
    state = None if op.state_bytes is None else divide(op.state_bytes, bounds, j)
    where = f"[{cut.axis} {bounds[j]}:{bounds[j + 1]} of {bounds[-1]}]"
    # ops that are split alike share the slice
    shared = {
        f"{name[:900]}{where}": divide(size, bounds, j) for name, size in op.shared_state.items()
    }
    return {
        "state_bytes": state,
        "shared_state": {name: size for name, size in shared.items() if size},
    }


def _gather(op: Op, cut: Cut, name: str, past: int) -> Op:
    """What joins the parts; `past` bytes of their outputs do not go through it."""
    output = op.resident_bytes - held_bytes(op)
    return Op(
        name=name,
        kind="Sum" if cut.axis == "in_channel" else "Concat",
        time_ns=dict.fromkeys(op.time_ns, 0),
        resident_bytes=output - min(past, output),
        backward=op.backward,
        weight_gradient=op.weight_gradient,
        module=op.module,
        dtype=op.dtype,
    )


def _names(instance: Instance, cuts: Mapping[int, Cut]) -> dict[int, PartNames]:
    """Names of what each split op becomes."""
    taken = {op.name for op in instance.graph.ops}

    def named(name: str, parts: int) -> PartNames:
        numbers = range(1, parts + 1)
        made = [fresh(f"{name}/{j}of{parts}", taken) for j in numbers]
        return PartNames(made, fresh(f"{name}/gather", taken))

    return {i: named(instance.graph.ops[i].name, cut.parts) for i, cut in cuts.items()}


def _part_groups(instance: Instance, cuts: Mapping[int, Cut]) -> dict[tuple[int, int], str]:
    """The colocation group of each part, by op and number."""
    taken = {op.colocation for op in instance.graph.ops if op.colocation is not None}
    groups: dict[tuple[str, int], str] = {}
    found = {}
    for i, cut in cuts.items():
        own = instance.graph.ops[i].colocation
        if own is None:
            continue
        for j in range(cut.parts):
            if (own, j) not in groups:
                groups[own, j] = fresh(f"{own}/{j + 1}of{cut.parts}", taken)
            found[i, j] = groups[own, j]
    return found
