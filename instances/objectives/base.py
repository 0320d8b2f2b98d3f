"""What the rules of all objectives share; each objective is a subclass in a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

Transfers = Literal["per_edge", "per_tensor"]
Channels = Literal["free", "link", "port", "half_duplex"]
PlanClass = Literal["any", "convex", "chain"]
LoadRule = Literal["add", "overlap"]
MemoryRule = Literal["sum", "peak"]
Unit = Literal["ns", "tokens", "microtokens_per_s"]

PLAN_CLASSES: tuple[PlanClass, ...] = ("chain", "convex", "any")
"""Each class is contained in all that follow it."""

# What rules mean that state no plans in a file before version 2, in a run or in a record.
OLD_PLANS: PlanClass = "any"
PEAK: Mapping[MemoryRule, str] = {"sum": "", "peak": " peak"}  # how a label states the memory rule


class Semantics(BaseModel):
    """The rules that turn a plan into a value: frozen; the objective is the tag.

    Defining a subclass registers its objective.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra={"required": ["objective"]}
    )

    #: The objective's folder, on every floor that has one for each objective.
    folder: ClassVar[str]
    #: Of the value, and whether more of it is better.
    unit: ClassVar[Unit] = "ns"
    is_maximized: ClassVar[bool] = False
    #: Fields of a plan beyond the placement that mean something.
    plan_fields: ClassVar[frozenset[str]] = frozenset()
    #: The passes whose loads make the value: both as one (None), or each apart; none elsewhere.
    load_passes: ClassVar[tuple[bool | None, ...]] = ()

    #: Whether a plan is a row of stages, which have rules of their own.
    has_stages: ClassVar[bool] = False
    #: Whether some device of a cluster may be a host.
    allows_hosts: ClassVar[bool] = True
    #: Whether devices hold ranges of layers, and a layer may be on several of them.
    holds_ranges: ClassVar[bool] = False
    #: Whether colocated ops may be on different hosts.
    pools_hosts: ClassVar[bool] = False

    objective: str

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Register the objective of a class that has one."""
        name = cls.model_fields["objective"].default
        if isinstance(name, str):
            BY_OBJECTIVE[name] = cls

    @model_validator(mode="before")
    @classmethod
    def _only_what_applies(cls, raw: Any) -> Any:
        """Refuse other objectives' rules; at its default, one says nothing (old files have it)."""
        if not isinstance(raw, dict):
            return raw
        defaults = {**rule_defaults(), "plans": OLD_PLANS}
        foreign = [name for name in raw if name in defaults and name not in cls.model_fields]
        for name in foreign:
            if raw[name] != defaults[name]:
                objective = cls.model_fields["objective"].default
                raise ValueError(f"{name} {belongs(name, objective)}")
        return {name: value for name, value in raw.items() if name not in foreign}

    @property
    def label(self) -> str:
        """Short text that names every rule in force."""
        return self.objective

    @property
    def plan_class(self) -> PlanClass:
        """Which plans compete."""
        plans: PlanClass = getattr(self, "plans", "any")
        return plans

    @property
    def memory_rule(self) -> MemoryRule:
        """What a device holds; the sum where there is no choice."""
        rule: MemoryRule = getattr(self, "memory", "sum")
        return rule

    @property
    def memory_moment(self) -> Literal["start", "step", "op"]:
        """When a device may be fullest: at a start of the schedule, at a step, in one op."""
        return "start"

    @property
    def has_replicas(self) -> bool:
        """Whether several equal devices may share a stage."""
        return bool(getattr(self, "replicas", False))

    @property
    def has_two_levels(self) -> bool:
        """Whether what crosses servers is charged to the servers."""
        return getattr(self, "levels", 1) == 2

    @property
    def has_modes(self) -> bool:
        """Whether stages of devices run each op in one of its modes."""
        return "mode" in self.plan_fields

    @property
    def channel_rule(self) -> Channels:
        """What a transfer occupies; nothing where none is scheduled."""
        rule: Channels = getattr(self, "channels", "free")
        return rule

    @property
    def per_edge(self) -> bool:
        """Whether every remote edge is a transfer of its own."""
        return getattr(self, "transfers", "per_tensor") == "per_edge"

    @property
    def overlaps(self) -> bool:
        """Whether a device computes and communicates at the same time."""
        return getattr(self, "load", "add") == "overlap"

    def narrower(self) -> tuple[Semantics, ...]:
        """These rules, then others: each of their plans is one of these, with the same value."""
        return (self,)

    def cost(self, value: int) -> int:
        """A value or bound as what is minimized: less is better."""
        return -value if self.is_maximized else value

    def key(self, quantity: str) -> str:
        """How files and rows name a quantity in the unit of the value: `value_ns`."""
        return f"{quantity}_{self.unit}"

    def text(self, value: int) -> str:
        """A value or bound as messages state it, to the last digit."""
        return f"{value} {self.unit}"

    def with_plans(self, plans: PlanClass) -> Self:
        """The same rules for another class of plans, where there is a choice."""
        return self.model_copy(update={"plans": plans}) if "plans" in self.rules() else self

    @classmethod
    def rules(cls) -> tuple[str, ...]:
        """The names of the rules of an objective."""
        return tuple(name for name in cls.model_fields if name != "objective")

    @model_serializer(mode="wrap")
    def _with_tag(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The tag and the class of plans also where defaults are left out: see `OLD_PLANS`."""
        always = [n for n in ("objective", "plans") if n in type(self).model_fields]
        return {**{name: getattr(self, name) for name in always}, **write(self)}


BY_OBJECTIVE: dict[str, type[Semantics]] = {}
"""The objectives that are registered."""


def rule_defaults() -> dict[str, object]:
    """Every rule that some objective has, with its default."""
    return {
        name: kind.model_fields[name].default
        for kind in BY_OBJECTIVE.values()
        for name in kind.rules()
    }


def belongs(rule: str, objective: str) -> str:
    """To which objectives a rule belongs, where it was stated for another one."""
    *others, last = (name for name, kind in BY_OBJECTIVE.items() if rule in kind.rules())
    return f"belongs to {', '.join(others)}{' and ' * bool(others)}{last}, not to {objective}"
