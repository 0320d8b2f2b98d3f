"""What the module of an objective states of its plans, and a plain default for one without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from placegap.experiments.show.figures import format_gap, memory_name, memory_of
from placegap.instances.problem import Device, DeviceUse, Evaluation, Instance, Plan, Semantics
from placegap.instances.problem.integers import format_bytes

if TYPE_CHECKING:
    from placegap.experiments.show.critical_path import PathPart
    from placegap.experiments.show.memory_levels import Levels
    from placegap.experiments.show.timeline import Crossing, Timeline
    from placegap.solvers.core.result import Result

S_co = TypeVar("S_co", bound=Semantics, covariant=True)
Row = tuple[str, ...]


@dataclass(frozen=True)
class Judged(Generic[S_co]):
    """A plan that has a value."""

    instance: Instance
    plan: Plan
    semantics: S_co
    verdict: Evaluation

    @property
    def value_ns(self) -> int:
        """The plan's value."""
        assert self.verdict.value is not None
        return self.verdict.value


class Option(NamedTuple):
    """A change of a unit of ops: an op, a group or a layer."""

    # `note` says what changes but its home; of several `plans` the best counts.
    unit: str
    ops: tuple[int, ...]
    source: int
    target: int
    plans: Iterable[Plan]
    note: str = ""


class Moves(NamedTuple):
    """Options in the order of trial, and how many are tried at most."""

    options: Sequence[Option]
    budget: int


class DeviceShare(NamedTuple):
    """What a device, or one of a stage of a hybrid plan, does in the time that a plan takes."""

    # `busy` is the share of the value in which it runs ops; under max_load and hybrid_pipeline its
    # load as a share of the value, transfers included, and under max_context as one of the
    # heaviest.
    name: str
    kind: str
    num_ops: int
    busy: float
    in_bytes: int
    out_bytes: int
    memory_bytes: int
    limit_bytes: int | None

    @property
    def idle(self) -> float:
        """The rest of the time."""
        return 1 - self.busy


@dataclass(frozen=True, kw_only=True)
class Homes:
    """Where ops are: the devices, or the stages of a hybrid plan, and each op's."""

    noun: str = "device"
    head: Row
    rows: list[Row]
    compared: tuple[int, ...]  # the columns that stand side by side where two plans are compared
    objects: list[dict[str, Any]]  # what ``--json`` prints
    of_op: list[int]  # number of each op's home, what comparisons call it, and how long it runs
    names: list[str]
    op_ns: list[int]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A plan taken apart."""

    devices: tuple[DeviceShare, ...]
    homes: Homes
    drawn: Timeline
    memory: list[Levels]  # of each home; moments are in ns if `is_timed`, else steps of a sample
    is_timed: bool = False
    path: tuple[PathPart, ...] = ()
    crossings: tuple[Crossing, ...] = ()  # the most expensive first
    why: Sequence[str] = ()  # what limits the value, in sentences; which part of the plan that is
    where: str = "heaviest device"
    moments: str = "at each step of a sample, op by op"  # when devices hold `held`
    held: str = "resident bytes, all the time"
    tried: str = ""  # what changes were tried, if not moves to another device
    per: str = ""  # of what an iteration repeats


def device_parts(
    case: Judged[Semantics],
    drawn: Timeline,
    crossed: Sequence[Crossing] = (),
    busy_ns: Sequence[int] | None = None,
    whole_ns: int | None = None,
    memory: list[Levels] | None = None,
    **more: Any,
) -> Parts:
    """Parts whose rows are devices; `whole_ns` is what their busy times are shares of."""
    from placegap.experiments.show.memory_levels import memory_levels
    from placegap.experiments.show.timeline import busy_times

    instance, plan, uses = case.instance, case.plan, case.verdict.uses
    names = [spec.name for spec in instance.cluster.devices]
    busy = busy_times(drawn, len(names)) if busy_ns is None else busy_ns
    whole = case.value_ns if whole_ns is None else whole_ns
    devices = shares(names, instance.cluster.devices, uses, busy, whole, crossed)
    held = memory_name(case.semantics)
    homes = Homes(
        head=("device", "kind", "ops", "busy", "idle", "in", "out", held),
        rows=[
            (
                each.name,
                each.kind,
                str(each.num_ops),
                format_gap(each.busy),
                format_gap(max(0.0, each.idle)),
                format_bytes(each.in_bytes),
                format_bytes(each.out_bytes),
                memory_of(each.memory_bytes, each.limit_bytes),
            )
            for each in devices
        ],
        compared=(0, 2, 3, 7),
        objects=[{**each._asdict(), "idle": each.idle} for each in devices],
        of_op=plan.devices.tolist(),
        names=[", ".join(names[k] for k in on) for on in plan.placement],
        op_ns=[int(instance.arrays.time_ns[i, on[0]]) for i, on in enumerate(plan.placement)],
    )
    if memory is None:
        memory = memory_levels(instance, plan, case.semantics, case.verdict.schedule)
    if case.semantics.memory_rule == "peak":
        more = {"held": "state, live tensors and workspace", **more}
    return Parts(
        devices=devices,
        homes=homes,
        drawn=drawn,
        memory=memory,
        crossings=most_expensive(crossed),
        **more,
    )


def shares(
    names: Sequence[str],
    specs: Sequence[Device],
    uses: Sequence[DeviceUse],
    busy_ns: Sequence[int],
    whole_ns: int,
    crossed: Sequence[Crossing],
) -> tuple[DeviceShare, ...]:
    """What homes of these names do in a time, each by one of its devices."""
    from placegap.experiments.show.timeline import bytes_moved

    found, moved = list[DeviceShare](), zip(*bytes_moved(crossed, len(names)), strict=True)
    for name, spec, use, busy, (into, out) in zip(names, specs, uses, busy_ns, moved, strict=True):
        memory = use.memory_bytes, spec.memory_bytes
        share = busy / max(1, whole_ns)
        found.append(DeviceShare(name, spec.kind, use.num_ops, share, into, out, *memory))
    return tuple(found)


def most_expensive(crossed: Iterable[Crossing]) -> tuple[Crossing, ...]:
    """Crossings by their time."""
    return tuple(sorted(crossed, key=lambda each: (-each.time_ns, each.tensor, each.targets)))


def plain_parts(case: Judged[Semantics]) -> Parts:
    """Devices and what they hold, without bars."""
    from placegap.experiments.show.timeline import Timeline

    rows = tuple(spec.name for spec in case.instance.cluster.devices)
    drawn = Timeline(rows, (), (), 0, case.semantics.label)
    return device_parts(case, drawn, busy_ns=[use.load_ns for use in case.verdict.uses])


@dataclass(frozen=True)
class Words:
    """What a module states of its objective's plans and results; else they are shown plainly."""

    parts: Callable[[Judged[Any]], Parts] = plain_parts
    moves: Callable[[Judged[Any]], Moves] | None = None  # what to change next
    #: Why a plan leaves devices unused that it could use.
    idle: Callable[[Instance, Result, Evaluation], str] | None = None
    #: What an optimum leaves out.
    optimum: Callable[[Instance, Result], tuple[str, ...]] = lambda instance, result: ()
    #: The head and rows of a result's table, if they are not those of devices.
    table: Callable[[Judged[Any]], tuple[Row, list[Row]]] | None = None
    #: What follows the value of a result, and what ``--json`` prints beside it.
    after_value: Callable[[Result], str] = lambda result: ""
    more: Callable[[Result], dict[str, Any]] = lambda result: {}


def words_of(semantics: Semantics) -> Words:
    """The words of an objective's module; plain ones without a module."""
    name = f"{__package__}.{semantics.folder}"
    words: Words = import_module(name).WORDS if find_spec(name) else Words()
    return words
