"""What a split divides, and into which shares."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from placegap.instances.problem.instance import Op
from placegap.instances.problem.integers import ceil_div

Axis = Literal["batch", "out_channel", "in_channel"]
"""What a split divides. ``batch`` (figure 2a): inputs and outputs; parameters are copied.
``in_channel`` (figure 2b): inputs and parameters; every part makes a whole output, and these are
added up. ``out_channel``: parameters and outputs; every part reads all inputs."""


@dataclass(frozen=True)
class Cut:
    """How one op is split: along which axis, and into how many parts."""

    axis: Axis
    parts: int


def shares(op: Op, cut: Cut) -> tuple[int, ...]:
    """Where the parts begin and end on the axis: 0, ..., its size.

    Examples
    --------
    >>> shares(Op(name="c", axis_sizes={"batch": 5}), Cut("batch", 2))
    (0, 3, 5)
    """
    size = op.axis_sizes.get(cut.axis, cut.parts)
    lengths = (size // cut.parts + (j < size % cut.parts) for j in range(cut.parts))
    return tuple(accumulate(lengths, initial=0))


def divide(amount: int, bounds: tuple[int, ...], j: int) -> int:
    """What part j has of an amount that is divided exactly.

    Examples
    --------
    >>> [divide(9, (0, 3, 5), j) for j in (0, 1)]
    [5, 4]
    """
    size = bounds[-1]
    return amount * bounds[j + 1] // size - amount * bounds[j] // size


def round_up(amount: int, bounds: tuple[int, ...], j: int) -> int:
    """What part j takes of a cost.

    Examples
    --------
    >>> [round_up(9, (0, 3, 5), j) for j in (0, 1)]
    [6, 4]
    """
    return ceil_div(amount * (bounds[j + 1] - bounds[j]), bounds[-1])


def held_bytes(op: Op) -> int:
    """What of an op's resident bytes is state, parameters at least; the rest are outputs.

    Examples
    --------
    >>> held_bytes(Op(name="c", resident_bytes=9, parameter_bytes=4))
    4
    >>> held_bytes(Op(name="c", resident_bytes=9, state_bytes=5, shared_state={"w": 2}))
    7
    """
    state = op.parameter_bytes if op.state_bytes is None else op.state_bytes
    return min(op.resident_bytes, state + sum(op.shared_state.values()))


def fresh(name: str, taken: set[str]) -> str:
    """The name, with marks at its end until it is new; long names are cut to leave room.

    Examples
    --------
    >>> fresh("x", {"x"})
    "x'"
    """
    name = name if len(name) <= 900 else f"{name[:450]}...{name[-440:]}"
    while name in taken:
        name += "'"
    taken.add(name)
    return name
