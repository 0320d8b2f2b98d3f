"""Semantics: what a number means. Every comparison is made under exactly one of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeGuard

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationInfo,
    model_serializer,
    model_validator,
)

from placegap.instances.problem.integers import LARGEST_SUM

Objective = Literal[
    "makespan",
    "max_load",
    "max_load_fwd_bwd",
    "latency_subgraphs",
    "pipeline_iteration",
    "hybrid_pipeline",
    "max_context",
]
Transfers = Literal["per_edge", "per_tensor"]
Channels = Literal["free", "link", "port", "half_duplex"]
PlanClass = Literal["any", "convex", "chain"]
LoadRule = Literal["add", "overlap"]
MemoryRule = Literal["sum", "peak"]
PipelineSchedule = Literal["gpipe", "1f1b", "interleaved", "zero_bubble"]
Sending = Literal["overlap", "blocking"]
Degrees = Literal["free", "one_t", "one"]
Recompute = Literal["per_layer", "per_stage", "all_or_none"]
Sharding = Literal["none", "optimizer", "gradients"]

MAX_SUBGRAPHS = 1024
"""Calls of one accelerator; methods make something of each, used or not."""

MAX_MICROBATCHES = 4096
MAX_STAGES_PER_DEVICE = 64
"""A schedule has two events for each microbatch and stage."""

MAX_BATCH = 2**20
"""Microbatches where they are no events."""

PLAN_CLASSES: tuple[PlanClass, ...] = ("chain", "convex", "any")
"""Each class is contained in all that follow it."""

OLD_PLANS: PlanClass = "any"
"""What rules mean that state no plans in a file before version 2, in a run or in a record."""

_PEAK: Mapping[MemoryRule, str] = {"sum": "", "peak": " peak"}


class _Rules(BaseModel):
    """Base of the semantics: frozen; the objective is the tag of their union."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra={"required": ["objective"]}
    )

    objective: Objective

    @model_validator(mode="before")
    @classmethod
    def _only_what_applies(cls, raw: Any) -> Any:
        """Refuse other objectives' rules; at its default, one says nothing (old files have it)."""
        if not isinstance(raw, dict):
            return raw
        foreign = [name for name in raw if name in DEFAULTS and name not in cls.model_fields]
        for name in foreign:
            if raw[name] != {**DEFAULTS, "plans": OLD_PLANS}[name]:
                objective = cls.model_fields["objective"].default
                raise ValueError(f"{name} {belongs(name, objective)}")
        return {name: value for name, value in raw.items() if name not in foreign}

    @property
    def memory_rule(self) -> MemoryRule:
        """What a device holds; the sum where there is no choice."""
        rule: MemoryRule = getattr(self, "memory", "sum")
        return rule

    @model_serializer(mode="wrap")
    def _with_tag(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The tag and the class of plans also where defaults are left out: see `OLD_PLANS`."""
        always = [n for n in ("objective", "plans") if n in type(self).model_fields]
        return {**{name: getattr(self, name) for name in always}, **write(self)}


class Makespan(_Rules):
    """End of the last op of one pass.

    Examples
    --------
    >>> Makespan(channels="link").label, Makespan(memory="peak").label
    ('makespan link per_edge', 'makespan port per_edge peak')
    """

    objective: Literal["makespan"] = "makespan"
    #: Every remote edge is a transfer, or a tensor goes once to each device.
    transfers: Transfers = "per_edge"

    #: What a transfer occupies. ``free``: nothing (HEFT); ``link``: the ordered pair of devices
    #: (Pesto); ``port``: the sender's output and the receiver's input (Moirai, eq. 8);
    #: ``half_duplex``: both devices' only port.
    channels: Channels = "port"

    #: A device holds the resident bytes of its ops all the time; or their state, and what is live
    #: at the fullest moment of its schedule (`referee.memory`).
    memory: MemoryRule = "sum"

    @property
    def label(self) -> str:
        """Short text that names every rule."""
        return f"makespan {self.channels} {self.transfers}{_PEAK[self.memory]}"


class _Load(_Rules):
    #: Which plans compete. Where a file of version 1 states none, it means any.
    plans: PlanClass = "chain"

    #: Compute + communication, or the larger of the two.
    load: LoadRule = "add"

    #: As for makespan; at the fullest step of a pipeline.
    memory: MemoryRule = "sum"


class MaxLoad(_Load):
    """Load of the heaviest device: the time per sample of a full pipeline (`loads`).

    Examples
    --------
    >>> MaxLoad(plans="chain", levels=2).label
    'max_load chain add 2 levels'
    """

    objective: Literal["max_load"] = "max_load"
    #: Whether several equal devices may share a stage (`loads`).
    replicas: bool = False

    #: 2 charges what crosses servers to the servers (`loads`).
    levels: Literal[1, 2] = 1

    @property
    def label(self) -> str:
        """Short text that names every rule in force."""
        options = (" replicas" if self.replicas else "") + (" 2 levels" if self.levels == 2 else "")
        return f"max_load {self.plans} {self.load}{options}{_PEAK[self.memory]}"


class MaxLoadFwdBwd(_Load):
    """Load of the heaviest forward device + that of the heaviest backward device (`loads`)."""

    objective: Literal["max_load_fwd_bwd"] = "max_load_fwd_bwd"

    @property
    def label(self) -> str:
        """Short text that names every rule."""
        return f"max_load_fwd_bwd {self.plans} {self.load}{_PEAK[self.memory]}"


class LatencySubgraphs(_Rules):
    """End of one pass whose accelerators run whole subgraphs (`simulate_calls`)."""

    objective: Literal["latency_subgraphs"] = "latency_subgraphs"
    #: How many calls an accelerator makes at most.
    subgraphs: Annotated[int, Field(ge=1, le=MAX_SUBGRAPHS)] = 1

    @property
    def label(self) -> str:
        """Short text that names every rule."""
        return f"latency_subgraphs {self.subgraphs}"


class PipelineIteration(_Rules):
    """Time of one training iteration of a pipeline of stages (`referee.iteration`).

    Without backward ops: the time of all microbatches.

    Examples
    --------
    >>> PipelineIteration(microbatches=4).label
    'pipeline_iteration 1f1b m=4 overlap'
    >>> PipelineIteration(schedule="interleaved", stages_per_device=2, sending="blocking").label
    'pipeline_iteration interleaved v=2 m=8 blocking'
    """

    objective: Literal["pipeline_iteration"] = "pipeline_iteration"
    #: In which order a device runs the microbatches: all forward, then all backward; one forward,
    #: one backward; that with several stages per device, or with gradients of weights apart, later
    #: than those of inputs (`stages.device_orders`).
    schedule: PipelineSchedule = "1f1b"

    #: How many stages a device has under ``interleaved``; else 1.
    stages_per_device: Annotated[int, Field(ge=1, le=MAX_STAGES_PER_DEVICE)] = 1

    #: How many microbatches an iteration has; the times of ops are those of one.
    microbatches: Annotated[int, Field(ge=1, le=MAX_MICROBATCHES)] = 8

    #: What moves tensors: the links, beside the work of the devices; or the devices themselves, as
    #: under max_load with ``load: add``.
    sending: Sending = "overlap"

    #: What a device holds of the microbatch that it works on: the resident bytes of its ops; or
    #: their state, and what is live at the fullest moment, as for max_load. And what is kept of
    #: further ones (`referee.iteration`).
    memory: MemoryRule = "sum"

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        if self.schedule == "interleaved" and self.stages_per_device == 1:
            raise ValueError("stages_per_device: the schedule interleaved needs 2 or more")
        if self.schedule != "interleaved" and self.stages_per_device > 1:
            raise ValueError(
                f"stages_per_device: more than 1 needs the schedule interleaved, not"
                f" {self.schedule}"
            )
        return self

    @property
    def label(self) -> str:
        """Short text that names every rule in force."""
        stages = f" v={self.stages_per_device}" if self.stages_per_device > 1 else ""
        rules = f"{self.schedule}{stages} m={self.microbatches} {self.sending}"
        return f"pipeline_iteration {rules}{_PEAK[self.memory]}"


class HybridPipeline(_Rules):
    """Time of a batch in a full pipeline whose stages have replicas, tensor parallelism and modes.

    The time of the slowest stage; `bubble` adds filling and draining (`referee.hybrid`).

    Examples
    --------
    >>> HybridPipeline(microbatches=64).label
    'hybrid_pipeline m=64 one per_layer'
    >>> HybridPipeline(microbatches=64, degrees="free", sharding="optimizer").label
    'hybrid_pipeline m=64 free per_layer shard=optimizer'
    >>> HybridPipeline(microbatches=64, bubble=True).label
    'hybrid_pipeline m=64 one per_layer bubble'
    """

    objective: Literal["hybrid_pipeline"] = "hybrid_pipeline"
    #: How many microbatches a batch has; the times of ops are those of one.
    microbatches: Annotated[int, Field(ge=1, le=MAX_BATCH)] = 8

    #: Which replicas d and tensor degrees t the stages may have: any, any d and one t, or one d and
    #: one t for all, as trainers run them.
    degrees: Degrees = "one"

    #: What chooses a mode by its name: a layer, a stage, or all of the model at once.
    recompute: Recompute = "per_layer"

    #: What the replicas of a stage divide among them: nothing, the optimizer's state, or that and
    #: the gradients.
    sharding: Sharding = "none"

    #: Whether filling and draining the pipeline count, which one d for all stages makes equal.
    bubble: bool = False

    @model_validator(mode="after")
    def _check_degrees(self) -> Self:
        if self.bubble and self.degrees != "one":
            raise ValueError(
                f"bubble: filling and draining do not count for degrees {self.degrees}; add"
                " --degrees one or --no-bubble"
            )
        return self

    @property
    def label(self) -> str:
        """Short text that names every rule in force."""
        shard = "" if self.sharding == "none" else f" shard={self.sharding}"
        shard += " bubble" if self.bubble else ""
        return f"hybrid_pipeline m={self.microbatches} {self.degrees} {self.recompute}{shard}"


class MaxContext(_Rules):
    """Number of tokens whose keys and values fit on every device; maximized, so stored negated.

    Ops hold their resident bytes, with their stated caches replaced by caches of that many tokens
    (`Cache`). Loads are computed from the stated times.

    Examples
    --------
    >>> MaxContext(plans="chain", at_most_ns=20).label
    'max_context chain add at most 20 ns'
    """

    objective: Literal["max_context"] = "max_context"
    #: Which plans compete. Where a file of version 1 states none, it means any.
    plans: PlanClass = "chain"

    #: Compute + communication, or the larger of the two.
    load: LoadRule = "add"

    #: The load that no device may exceed, as under max_load; None: no limit.
    at_most_ns: Annotated[int, Field(ge=0, le=LARGEST_SUM)] | None = None

    @property
    def label(self) -> str:
        """Short text that names every rule in force."""
        limit = "" if self.at_most_ns is None else f" at most {self.at_most_ns} ns"
        return f"max_context {self.plans} {self.load}{limit}"

    @property
    def loads(self) -> MaxLoad:
        """The rules of the loads that are limited."""
        return MaxLoad(plans=self.plans, load=self.load)


MOST_TOKENS = 10**9
"""What the value is where no device's memory limits the tokens."""

LoadSemantics = MaxLoad | MaxLoadFwdBwd
"""The value is made of loads of devices: no schedule, a class of plans."""

Semantics = (
    Makespan
    | MaxLoad
    | MaxLoadFwdBwd
    | LatencySubgraphs
    | PipelineIteration
    | HybridPipeline
    | MaxContext
)
"""The rules that turn a plan into a value."""

AllLoads = LoadSemantics | MaxContext
"""Loads of devices are its value, or are limited: no schedule, a class of plans."""

TaggedSemantics = Annotated[Semantics, Field(discriminator="objective")]
"""Its objective says which it is."""


def _as_stored(raw: object, info: ValidationInfo) -> object:
    """Rules of a file, with the plans that an old one means; the context notes that it is old."""
    context = info.context or {}
    if not leaves_out_plans(raw) or context.get("version") == 2:
        return raw
    context["is_old"] = True
    return {**raw, "plans": OLD_PLANS}


StatedSemantics = Annotated[TaggedSemantics, BeforeValidator(_as_stored)]
"""Semantics as a field of a file."""

BY_OBJECTIVE: Mapping[Objective, type[Semantics]] = {
    "makespan": Makespan,
    "max_load": MaxLoad,
    "max_load_fwd_bwd": MaxLoadFwdBwd,
    "latency_subgraphs": LatencySubgraphs,
    "pipeline_iteration": PipelineIteration,
    "hybrid_pipeline": HybridPipeline,
    "max_context": MaxContext,
}
OBJECTIVES: tuple[Objective, ...] = tuple(BY_OBJECTIVE)

FIELDS: Mapping[Objective, tuple[str, ...]] = {
    objective: tuple(name for name in rules.model_fields if name != "objective")
    for objective, rules in BY_OBJECTIVE.items()
}
"""The rules that each objective has."""

DEFAULTS: Mapping[str, object] = {
    name: rules.model_fields[name].default
    for objective, rules in BY_OBJECTIVE.items()
    for name in FIELDS[objective]
}
"""Every rule that some objective has."""


def belongs(rule: str, objective: str) -> str:
    """To which objectives a rule belongs, where it was stated for another one."""
    *others, last = (each for each in OBJECTIVES if rule in FIELDS[each])
    return f"belongs to {', '.join(others)}{' and ' * bool(others)}{last}, not to {objective}"


_RULES: TypeAdapter[Semantics] = TypeAdapter(TaggedSemantics)
_STORED: TypeAdapter[Semantics] = TypeAdapter(StatedSemantics)


def parse_semantics(raw: object) -> Semantics:
    """The semantics of a mapping with the key objective."""
    return _RULES.validate_python(raw)


def stored_semantics(raw: object) -> Semantics:
    """The same for what a run, a record or a certificate keeps: see `OLD_PLANS`."""
    return _STORED.validate_python(raw)


def leaves_out_plans(rules: object) -> TypeGuard[dict[str, Any]]:
    """Whether rules of a file have a class of plans, and state none."""
    named = isinstance(rules, dict) and "plans" not in rules and rules.get("objective")
    return any(one == named and "plans" in FIELDS[one] for one in OBJECTIVES)


def plan_class(semantics: Semantics) -> PlanClass:
    """Which plans compete; all of them for one pass, and chains of stages for an iteration."""
    if isinstance(semantics, PipelineIteration | HybridPipeline):
        return "chain"
    return semantics.plans if isinstance(semantics, AllLoads) else "any"


def has_replicas(semantics: Semantics) -> bool:
    """Whether several equal devices may share a stage."""
    return isinstance(semantics, MaxLoad) and semantics.replicas


def has_two_levels(semantics: Semantics) -> bool:
    """Whether what crosses servers is charged to the servers."""
    return isinstance(semantics, MaxLoad) and semantics.levels == 2


def with_plans(semantics: Semantics, plans: PlanClass) -> Semantics:
    """The same rules for another class of plans, where the value is a load."""
    if not isinstance(semantics, AllLoads):
        return semantics
    return semantics.model_copy(update={"plans": plans})


def told(semantics: Semantics, value: int) -> str:
    """A value or bound as messages say it, to the last digit."""
    return f"{-value} tokens" if isinstance(semantics, MaxContext) else f"{value} ns"


def includes(wide: Semantics, semantics: Semantics) -> bool:
    """Whether what no plan of `wide` is below, no plan of the other is below.

    So it is under the same rules for the same class of plans, or for one that contains it.
    """
    rank, least = (PLAN_CLASSES.index(plan_class(rules)) for rules in (wide, semantics))
    return rank >= least and with_plans(wide, "any") == with_plans(semantics, "any")
