"""What a method returns (Plan), what it leads to (Schedule), how it is judged (Evaluation)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Ints
from placegap.instances.objectives.base import Unit
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.printable import printable


class Transfer(NamedTuple):
    """One transfer of a plan: an edge (per_edge) or a tensor (per_tensor), and where it goes."""

    item: int
    destination: int


@dataclass(frozen=True)
class Plan:
    """The decisions of a method, without values or times.

    Examples
    --------
    >>> Plan.on([0, 0, 1]).placement
    ((0,), (0,), (1,))
    """

    placement: tuple[tuple[int, ...], ...]  #: Devices of each op: one, except in replicated stages
    #: makespan: order of the ops on each device (None for a device, or altogether: left to the
    #: simulation's priority rule).
    device_order: tuple[tuple[int, ...] | None, ...] | None = None
    #: makespan: order of the transfers on each channel, by channel number (`channels_of`); channels
    #: that are absent are left to the priority rule.
    channel_order: Mapping[int, tuple[Transfer, ...]] | None = None
    #: latency_subgraphs: which call of its accelerator runs each op, counted from 0 (ignored on
    #: hosts); None: all of them the first.
    call: tuple[int, ...] | None = None
    #: pipeline_iteration: the stage of each op, counted from 0; None: the devices are the stages,
    #: in the order in which they feed each other (`iteration.stages`). hybrid_pipeline: always.
    stage: tuple[int, ...] | None = None
    #: hybrid_pipeline: over how many devices each stage splits its ops. Devices that follow each
    #: other in the placement of an op are such a group.
    tensor: tuple[int, ...] | None = None
    #: hybrid_pipeline: the name of the mode that each op runs in.
    mode: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse fields that list nothing; brute force makes a plan every microsecond."""
        is_plain = self.call is None and self.stage is None and self.device_order is None
        if is_plain and type(self.placement) is tuple:
            return
        for name, value in vars(self).items():
            if not hasattr(value, "__len__") and (value is not None or name == "placement"):
                raise InputError(f"the {name} of a plan has an entry for each op, not {value!r}")

    @classmethod
    def on(
        cls, devices: Iterable[int], device_order: Iterable[Iterable[int]] | None = None
    ) -> Plan:
        """Plan with op i on ``devices[i]``, and optionally the op order of each device."""
        placement = tuple((_whole(k),) for k in devices)
        if device_order is None:
            return cls(placement)
        return cls(placement, tuple(tuple(map(_whole, ops)) for ops in device_order))

    @property
    def devices(self) -> Ints:
        """The device of each op, the first one in replicated stages."""
        return np.array([devices[0] for devices in self.placement], np.int64)


def _whole(number: Any) -> int:
    """The number of a device or op, also where it is one of numpy's."""
    with suppress(TypeError, ValueError, OverflowError):
        if int(number) == number:
            return int(number)
    raise InputError(f"a plan has whole numbers of devices and ops, not {number!r}")


@dataclass(frozen=True)
class TransferTimes:
    """The transfers of a schedule, column by column; times in ns."""

    item: Ints
    producer: Ints
    source: Ints
    destination: Ints
    start_ns: Ints
    end_ns: Ints


@dataclass(frozen=True)
class Schedule:
    """When everything happens: times of ops, (n,) each, and of transfers, in ns."""

    device: Ints
    start_ns: Ints
    end_ns: Ints
    transfers: TransferTimes

    @property
    def makespan_ns(self) -> int:
        """End of the last op."""
        return int(self.end_ns.max(initial=0))


class Times(NamedTuple):
    """Start and end of each op and of each transfer, in ns: a schedule in plain integers."""

    ops: tuple[tuple[int, int], ...]
    transfers: Mapping[Transfer, tuple[int, int]]


@dataclass(frozen=True)
class Violation:
    """One violated constraint: a sentence, and the op, device and time concerned, if any."""

    rule: str
    message: str
    op: str | None = None
    device: str | None = None
    time_ns: int | None = None

    def __str__(self) -> str:
        return printable(f"{self.rule}: {self.message}")


@dataclass(frozen=True)
class DeviceUse:
    """Load and memory of one device under a plan; in_ns and out_ns are max_load's communication.

    In a replicated stage each device has its share, rounded up; `load_ns` includes the all-reduce
    of the weights. Under max_load_fwd_bwd `load_ns` is forward load + backward load.
    `memory_bytes` is what the device holds at most, by the rule of the semantics; `tokens`, under
    max_context, the number that it has room for, or -1 if its weights do not fit.
    """

    device: str
    num_ops: int
    compute_ns: int
    in_ns: int
    out_ns: int
    memory_bytes: int
    load_ns: int
    tokens: int | None = None


class ServerUse(NamedTuple):
    """Transfers across the border of one server under a plan, with two levels of communication."""

    server: str
    load_ns: int


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a plan by the referee.

    `value` is the objective in its `unit`, None where the plan cannot be executed at all; a plan
    counts only if `feasible` (no violations). `servers` is empty unless there are two levels of
    communication.
    """

    value: int | None
    violations: tuple[Violation, ...] = ()
    uses: tuple[DeviceUse, ...] = ()
    schedule: Schedule | None = field(default=None, repr=False)
    servers: tuple[ServerUse, ...] = ()
    unit: Unit = "ns"

    @property
    def value_ns(self) -> int | None:
        """The value, where it is a time."""
        return self.value if self.unit == "ns" else None

    @property
    def value_tokens(self) -> int | None:
        """The value, where it is a number of tokens."""
        return self.value if self.unit == "tokens" else None

    @property
    def feasible(self) -> bool:
        """True if there are no violations."""
        return not self.violations

    @property
    def idle_devices(self) -> tuple[str, ...]:
        """Devices without an op."""
        return tuple(use.device for use in self.uses if use.num_ops == 0)
