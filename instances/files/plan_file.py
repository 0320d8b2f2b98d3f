"""Plans as JSON, with the names of ops and devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

from pydantic import Field, model_validator

from placegap.instances.files.document import AnyVersion, of_version, read_json, write_json
from placegap.instances.problem import (
    BY_OBJECTIVE,
    MOST_TOKENS,
    Count,
    Instance,
    InstancePart,
    Makespan,
    Plan,
    Positive,
    Semantics,
    StatedSemantics,
    Times,
    Transfer,
)
from placegap.instances.problem.integers import LARGEST_SUM
from placegap.instances.problem.semantics import Unit
from placegap.instances.reading.errors import InputError, as_input_error, instead_of
from placegap.instances.reading.input_files import refuse_other
from placegap.instances.referee.channels import channel_name, num_channels


class TransferName(InstancePart):
    """A transfer by name: the producer, the edge's consumer or the tensor, and the destination."""

    producer: str
    consumer: str | None = None
    tensor: str | None = None
    to: str


class TransferSpan(TransferName):
    """When a transfer starts and ends."""

    start_ns: Count
    end_ns: Count


class Span(InstancePart):
    """When an op starts and ends."""

    start_ns: Count
    end_ns: Count


class TimesFile(InstancePart):
    """The times of a makespan schedule: all ops, and all transfers between devices."""

    ops: dict[str, Span]
    transfers: tuple[TransferSpan, ...] = ()


T = TypeVar("T")

# Above `LARGEST_SUM` where a batch has many microbatches.
Value = Annotated[int, Field(strict=True, ge=0, le=LARGEST_SUM**2)]

CallNumber = Annotated[int, Field(strict=True, ge=0)]


def _not_negated(raw: Any) -> Any:
    """Older files state tokens as nanoseconds below 0; they become tokens."""
    if isinstance(raw, dict):
        for name in ("value", "bound"):
            old = raw.get(f"{name}_ns")
            if type(old) is int and -MOST_TOKENS <= old <= 0 and _counts_tokens(raw):
                raw = {key: each for key, each in raw.items() if key != f"{name}_ns"}
                raw[f"{name}_tokens"] = -old
    return raw


def _counts_tokens(raw: dict[str, Any]) -> bool:
    rules = raw.get("semantics")
    objective = rules.get("objective") if isinstance(rules, dict) else None
    kind = BY_OBJECTIVE.get(objective) if isinstance(objective, str) else None
    return kind is not None and kind.unit == "tokens"


def _check_unit(part: InstancePart, rules: Semantics, quantity: str) -> None:
    for name in (f"{quantity}_{unit}" for unit in get_args(Unit)):
        if name != rules.key(quantity) and getattr(part, name) is not None:
            raise ValueError(f"{name} means nothing under {rules.objective}")


def _stated(part: InstancePart, rules: Semantics, quantity: str) -> int | None:
    """A value or bound in the unit of the rules."""
    found: int | None = getattr(part, rules.key(quantity))
    return found


class StoredBound(InstancePart):
    """A lower bound that a plan file keeps, with all that it takes to know what it is about."""

    bound_ns: Value | None = None
    #: In place of a time, where the value is a number of tokens.
    bound_tokens: Value | None = None
    #: The same, of tokens per second, in millionths.
    bound_microtokens_per_s: Value | None = None
    #: The method behind it.
    bound_origin: str = ""
    #: What it rests on: ``proof``, or the name and version of a solver.
    rests_on: str = ""
    #: With the widest class of plans that it holds for.
    semantics: StatedSemantics
    #: Of the instance that it is about: the plan's, or that with whole modules or layers.
    content_hash: str
    #: A small one that proves the bound, as ``placegap place --certificate`` writes it.
    certificate: dict[str, Any] | None = None

    _old_tokens = model_validator(mode="before")(_not_negated)

    @model_validator(mode="after")
    def _is_stated(self) -> Self:
        _check_unit(self, self.semantics, "bound")
        if getattr(self, self.semantics.key("bound")) is None:
            raise ValueError(f"{self.semantics.key('bound')} is missing")
        return self

    @property
    def bound(self) -> int:
        """The bound, in the unit of the rules."""
        return _stated(self, self.semantics, "bound") or 0


class StageFile(InstancePart):
    """One stage of a hybrid plan."""

    #: Those of one replica after those of another.
    devices: tuple[str, ...]
    #: Devices of a replica, over which each op is split.
    tensor: Positive = 1
    #: The ops of the stage, each with the name of its mode.
    modes: Annotated[dict[str, str], Field(min_length=1)]


class PlanFile(InstancePart):
    """The JSON form of a plan."""

    format: Literal["placegap-plan"] = "placegap-plan"
    version: AnyVersion = 1
    instance: str
    instance_hash: str = ""
    semantics: StatedSemantics
    method: str = ""
    #: The devices of each op; empty where `stages` say it.
    placement: dict[str, str | tuple[str, ...]] = Field(default_factory=dict)
    device_order: dict[str, tuple[str, ...]] | None = None
    channel_order: dict[str, tuple[TransferName, ...]] | None = Field(default=None)
    #: latency_subgraphs: which call of its accelerator runs each op, counted from 0.
    call: dict[str, CallNumber] | None = None
    #: pipeline_iteration: the stage of each op, counted from 0.
    stage: dict[str, CallNumber] | None = None
    #: hybrid_pipeline: the stages, the first one first.
    stages: tuple[StageFile, ...] | None = None
    #: What the plan is said to be worth; a claim that is checked.
    value_ns: Value | None = None
    #: In place of a time, where that is a number of tokens.
    value_tokens: Value | None = None
    #: The same, of tokens per second, in millionths.
    value_microtokens_per_s: Value | None = None
    #: What no plan is said to be below; a claim: no result relies on it.
    bound: StoredBound | None = None
    #: makespan: when everything is said to happen; checked as well. Simulating the plan decides its
    #: value.
    times: TimesFile | None = None

    _old_tokens = model_validator(mode="before")(_not_negated)

    @model_validator(mode="after")
    def _has_its_unit(self) -> Self:
        _check_unit(self, self.semantics, "value")
        return self

    @property
    def value(self) -> int | None:
        """What the plan is said to be worth, in the unit of the rules."""
        return _stated(self, self.semantics, "value")


@dataclass(frozen=True)
class StatedPlan:
    """What a plan file says: a plan, the semantics it was made under, and claims about it."""

    plan: Plan
    semantics: Semantics
    instance_hash: str = ""
    value: int | None = None  # in the unit of the semantics
    times: Times | None = None
    bound: StoredBound | None = None


def is_plan(raw: Any) -> bool:
    """Whether parsed JSON claims to be a plan."""
    return isinstance(raw, dict) and raw.get("format") == "placegap-plan"


def save_plan(
    instance: Instance,
    plan: Plan,
    semantics: Semantics,
    path: str | Path,
    method: str = "",
    *,
    value: int | None = None,
    times: Times | None = None,
    bound: StoredBound | None = None,
) -> None:
    """Write a plan, with the semantics it was made under, and what is claimed of it.

    Parameters
    ----------
    instance : Instance
    plan : Plan
    semantics : Semantics
    path : str or Path
    method : str
        The method or program that made the plan.
    value : int, optional
        Its value by the referee, in the unit of the semantics.
    times : Times, optional
        Starts of ops and transfers.
    bound : StoredBound, optional
        A proven bound on all plans, and its origin.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from placegap.instances import Makespan, example
    >>> with TemporaryDirectory() as folder:
    ...     save_plan(example(), Plan.on([0, 1, 0, 0]), Makespan(), Path(folder, "plan.json"))
    ...     load_plan(example(), Path(folder, "plan.json"))[0].devices
    array([0, 1, 0, 0])
    """
    with as_input_error(source=path):
        content = describe_plan(instance, plan, semantics, method, value=value, times=times)
    write_json(plan_object(content, bound), path)


def plan_object(content: PlanFile, bound: StoredBound | None = None) -> dict[str, Any]:
    """What stands in a plan's file."""
    stated = content.model_copy(update={"bound": bound})
    return stated.model_dump(mode="json", exclude_none=True)


def describe_plan(
    instance: Instance,
    plan: Plan,
    semantics: Semantics,
    method: str = "",
    *,
    value: int | None = None,
    times: Times | None = None,
) -> PlanFile:
    """The named form of a plan."""
    ops = [op.name for op in instance.graph.ops]
    devices = [device.name for device in instance.cluster.devices]
    device_order = None
    if plan.device_order is not None:
        device_order = {
            devices[k]: tuple(ops[i] for i in order)
            for k, order in enumerate(plan.device_order)
            if order is not None
        }
    channel_order = None
    if plan.channel_order is not None:
        rules = _of_makespan(semantics, "channel_order")
        channel_order = {
            channel_name(rules.channels, instance.cluster, channel): tuple(
                _name_transfer(instance, rules, transfer) for transfer in transfers
            )
            for channel, transfers in sorted(plan.channel_order.items())
        }
    stages = None
    if plan.tensor is not None:
        stages = _name_stages(instance, plan, plan.tensor)
    worth: dict[str, Any] = {semantics.key("value"): value}
    return PlanFile(
        instance=instance.name,
        instance_hash=instance.content_hash,
        semantics=semantics,
        method=method,
        placement={
            ops[i]: devices[on[0]] if len(on) == 1 else tuple(devices[k] for k in on)
            for i, on in enumerate(plan.placement)
            if stages is None
        },
        device_order=device_order,
        channel_order=channel_order,
        call=None if plan.call is None else dict(zip(ops, plan.call, strict=True)),
        stage=(
            None
            if plan.stage is None or stages is not None
            else dict(zip(ops, plan.stage, strict=True))
        ),
        stages=stages,
        times=None if times is None else _name_times(instance, semantics, times),
        **worth,
    )


def _name_stages(instance: Instance, plan: Plan, tensor: tuple[int, ...]) -> tuple[StageFile, ...]:
    assert plan.stage is not None
    assert plan.mode is not None
    devices = [device.name for device in instance.cluster.devices]
    named = []
    for s, t in enumerate(tensor):
        own = [i for i, of in enumerate(plan.stage) if of == s]
        on = plan.placement[own[0]] if own else ()
        modes = {instance.graph.ops[i].name: plan.mode[i] for i in own}
        named.append(StageFile(devices=tuple(devices[k] for k in on), tensor=t, modes=modes))
    return tuple(named)


def _name_times(instance: Instance, semantics: Semantics, times: Times) -> TimesFile:
    rules = _of_makespan(semantics, "times")
    ops = {
        op.name: Span(start_ns=start, end_ns=end)
        for op, (start, end) in zip(instance.graph.ops, times.ops, strict=True)
    }
    transfers = (
        TransferSpan(**dict(_name_transfer(instance, rules, move)), start_ns=start, end_ns=end)
        for move, (start, end) in times.transfers.items()
    )
    return TimesFile(ops=ops, transfers=tuple(transfers))


def load_plan(instance: Instance, path: str | Path) -> tuple[Plan, Semantics]:
    """Read a plan for an instance, and the semantics it was made under.

    Parameters
    ----------
    instance : Instance
    path : str or Path
        A file of `save_plan`.

    Raises
    ------
    InputError
        If the file is not a plan, or names something that the instance does not have.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from placegap.instances import MaxLoad, example
    >>> with TemporaryDirectory() as folder:
    ...     save_plan(example(), Plan.on([0, 0, 1, 1]), MaxLoad(), Path(folder, "plan.json"))
    ...     load_plan(example(), Path(folder, "plan.json"))[1].objective
    'max_load'
    """
    stated = load_stated_plan(instance, path)
    return stated.plan, stated.semantics


def load_stated_plan(instance: Instance, path: str | Path) -> StatedPlan:
    """Read a plan with all that its file claims."""
    raw = read_json(path)
    if not is_plan(raw):
        refuse_other(raw, "a plan", path)
        raise InputError("is not a plan (its format is not 'placegap-plan')", path)
    content = of_version(PlanFile, raw, path)
    try:
        plan, times = _resolve(instance, content), _resolve_times(instance, content)
        return StatedPlan(
            plan, content.semantics, content.instance_hash, content.value, times, content.bound
        )
    except LookupError as error:
        raise InputError(f"{error.args[0]}{_made_for(content, instance)}", path) from None


def _made_for(content: PlanFile, instance: Instance) -> str:
    """What to add where a plan names what the instance lacks: it may be another's."""
    if content.instance_hash in ("", instance.content_hash):
        return ""
    if content.instance == instance.name:
        return f"; the plan was made for other content of {instance.name!r}"
    return (
        f"; the plan was made for {content.instance!r}, not for {instance.name!r}: name the model"
        " and the cluster that it is for"
    )


def _resolve_stages(instance: Instance, stages: tuple[StageFile, ...]) -> Plan:
    device = _finder("device", instance.cluster.device_index)
    found: dict[str, tuple[tuple[int, ...], int, str]] = {}
    for s, stage in enumerate(stages):
        on = tuple(device(name) for name in stage.devices)
        for name, mode in stage.modes.items():
            if name in found:
                raise LookupError(f"stages: op {name!r} is in two of them")
            found[name] = on, s, mode
    rows = _of_each_op("stages", found, instance.graph.op_index, "is in none of them")
    return Plan(
        tuple(row[0] for row in rows),
        stage=tuple(row[1] for row in rows),
        tensor=tuple(stage.tensor for stage in stages),
        mode=tuple(row[2] for row in rows),
    )


def _resolve(instance: Instance, content: PlanFile) -> Plan:
    if content.stages is not None:
        return _resolve_stages(instance, content.stages)
    op_index, device_index = instance.graph.op_index, instance.cluster.device_index
    op, device = _finder("op", op_index), _finder("device", device_index)
    placement = tuple(
        (device(on),) if isinstance(on, str) else tuple(device(name) for name in on)
        for on in _of_each_op("placement", content.placement, op_index, "is not placed")
    )
    device_order = None
    if content.device_order is not None:
        orders = {device(k): tuple(op(i) for i in v) for k, v in content.device_order.items()}
        device_order = tuple(orders.get(k) for k in range(instance.num_devices))
    channel_order = None
    if content.channel_order is not None:
        rules = _of_makespan(content.semantics, "channel_order")
        channels = rules.channels
        number = {
            channel_name(channels, instance.cluster, c): c
            for c in range(num_channels(channels, instance.num_devices))
        }
        channel = _finder("channel", number)
        item = _finder("transfer", _transfer_items(instance, rules))
        channel_order = {
            channel(name): tuple(
                Transfer(item((t.producer, t.consumer, t.tensor)), device(t.to)) for t in transfers
            )
            for name, transfers in content.channel_order.items()
        }
    call, stage = (
        None if numbers is None else _of_each_op(field, numbers, op_index)
        for field, numbers in (("call", content.call), ("stage", content.stage))
    )
    return Plan(placement, device_order, channel_order, call, stage)


def _resolve_times(instance: Instance, content: PlanFile) -> Times | None:
    if content.times is None:
        return None
    rules = _of_makespan(content.semantics, "times")
    device = _finder("device", instance.cluster.device_index)
    item = _finder("transfer", _transfer_items(instance, rules))
    spans = _of_each_op("times", content.times.ops, instance.graph.op_index)
    transfers: dict[Transfer, tuple[int, int]] = {}
    for row in content.times.transfers:
        move = Transfer(item((row.producer, row.consumer, row.tensor)), device(row.to))
        if move in transfers:
            raise LookupError(f"times: the transfer of {row.producer!r} to {row.to!r} comes twice")
        transfers[move] = row.start_ns, row.end_ns
    return Times(tuple((span.start_ns, span.end_ns) for span in spans), transfers)


def _of_each_op(
    field: str, found: Mapping[str, T], op_index: Mapping[str, int], lack: str = "has none"
) -> tuple[T, ...]:
    """What a field has for each op; it names all ops, and no other."""
    op = _finder("op", op_index)
    for name in found:
        op(name)
    missing = [name for name in op_index if name not in found]
    if missing:
        raise LookupError(f"{field}: op {missing[0]!r} {lack}")
    return tuple(found[name] for name in op_index)


def _of_makespan(semantics: Semantics, field: str) -> Makespan:
    """The semantics, which must have transfers that a field of the plan can name."""
    if not isinstance(semantics, Makespan):
        raise LookupError(f"{field}: not defined under {semantics.label}")
    return semantics


def _finder(what: str, index: Mapping[Any, int]) -> Any:
    def find(name: Any) -> int:
        try:
            return index[name]
        except KeyError:
            near = instead_of(name, index) if what == "device" else ""
            raise LookupError(f"there is no {what} {name!r} in the instance{near}") from None

    return find


def _name_transfer(instance: Instance, semantics: Makespan, transfer: Transfer) -> TransferName:
    producer, consumer, tensor = _key(instance, semantics, transfer.item)
    to = instance.cluster.devices[transfer.destination].name
    return TransferName(producer=producer, consumer=consumer, tensor=tensor, to=to)


def _key(instance: Instance, semantics: Makespan, item: int) -> tuple[str, str | None, str | None]:
    """What names a transfer: an edge by its ends, a tensor by its name or its only consumer."""
    if semantics.transfers == "per_edge":
        edge = instance.graph.edges[item]
        return edge.producer, edge.consumer, edge.tensor
    edge = instance.graph.edges[instance.arrays.index.tensor_first_edge[item]]
    return edge.producer, edge.consumer if edge.tensor is None else None, edge.tensor


def _transfer_items(instance: Instance, semantics: Makespan) -> dict[Any, int]:
    index = instance.arrays.index
    per_edge = semantics.transfers == "per_edge"
    count = len(index.producer) if per_edge else len(index.tensor_producer)
    return {_key(instance, semantics, item): item for item in range(count)}
