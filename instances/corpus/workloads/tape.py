"""A network as a sequence of ops on tensors with shapes: what the networks are written in.

The functions of `layers` add ops to a tape; `lowering` makes a graph of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

from placegap.instances.corpus.tape import Dialect

FLOAT_BYTES = 4

Dims = tuple[int, ...]


class Tensor(NamedTuple):
    """A value on the tape: the op that makes it, its shape, and which of the op's parts it is."""

    maker: int
    shape: Dims
    part: int = 0


class Weight(NamedTuple):
    """A parameter of the network. `decays`: whether a penalty keeps it small; `optional`: no ONNX
    op holds it (running statistics that are outputs there).
    """

    name: str
    shape: Dims
    trained: bool = True
    decays: bool = False

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class TapeOp:
    """One op of the forward pass.

    `rule` names how its gradient is taken (`gradients`); `parts` is how many equal outputs it has;
    `constants` are small constant inputs, `outputs` further outputs that matter to no one.
    """

    name: str
    kind: str
    inputs: tuple[Tensor, ...]
    shape: Dims
    weights: tuple[Weight, ...] = ()
    flops: int = 0
    rule: str = "unary"
    view: bool = False
    parts: int = 1
    constants: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    axes: Mapping[str, int] = field(default_factory=dict)


class Tape:
    """The forward pass of a network, while it is written down."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.ops: list[TapeOp] = []
        self._path: list[str] = []
        self._used: dict[str, int] = {}

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Put what is written inside under a name, as module paths do."""
        self._path.append(name)
        yield
        self._path.pop()

    def path(self, name: str) -> str:
        """A name within the scopes, new on this tape."""
        full = "/".join((*self._path, name))
        number = self._used.get(full, 0)
        self._used[full] = number + 1
        return f"{full}_{number}" if number else full

    def op(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        shape: Dims,
        *,
        weights: Sequence[Weight] = (),
        flops: int | None = None,
        rule: str = "unary",
        view: bool = False,
        parts: int = 1,
        constants: Sequence[str] = (),
        outputs: Sequence[str] = (),
        axes: Mapping[str, int] | None = None,
        name: str | None = None,
    ) -> Tensor:
        """Add an op; an elementwise one does one FLOP per element unless `flops` says more.

        Examples
        --------
        >>> tape = Tape(Dialect("modules"))
        >>> tape.op("ReLU", [tape.op("Input", [], (2, 3), flops=0)], (2, 3)).shape
        (2, 3)
        """
        count = prod(shape)
        self.ops.append(
            TapeOp(
                name=self.path(name or kind),
                kind=kind,
                inputs=tuple(inputs),
                shape=shape,
                weights=tuple(weights),
                flops=0 if view else count if flops is None else flops,
                rule=rule,
                view=view,
                parts=parts,
                constants=tuple(constants),
                outputs=tuple(outputs),
                axes=axes or {},
            )
        )
        return Tensor(len(self.ops) - 1, shape)

    def weight(
        self, name: str, shape: Dims, *, trained: bool = True, decays: bool = False
    ) -> Weight:
        """A parameter under the scopes' names; ops that share it take the same one."""
        return Weight(self.path(name), shape, trained, decays)
