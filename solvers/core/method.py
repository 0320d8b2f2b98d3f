"""What a method is: its parameters, its limits, the task it is given, and what it registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import chain
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypedDict

import numpy as np
from pydantic import BaseModel, ConfigDict, JsonValue
from typing_extensions import TypeVar

from placegap.instances.problem import OBJECTIVES, Instance, MemoryRule, Objective, Plan, Semantics
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.result import PROOF, RUN_OF, SOLVERS, Outcome, solver_and_version

if TYPE_CHECKING:  # Pyomo takes a second to load
    import pyomo.environ as pyo


# Marks a parameter that says how long a search goes on: it decides no kernel.
EFFORT: dict[str, JsonValue] = {"effort": True}
FEW = 20  # steps of a search that only compiles its kernels


class Params(BaseModel):
    """Base of a method's parameters: frozen, and unknown names are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def efforts(cls) -> frozenset[str]:
        """Names of the parameters that only limit the length of a search."""
        fields = cls.model_fields.items()
        return frozenset(name for name, field in fields if field.json_schema_extra == EFFORT)

    @classmethod
    def little_effort(cls) -> dict[str, int]:
        """Values for those of them without which a search uses all of its time."""
        endless = (name for name in cls.efforts() if cls.model_fields[name].default is None)
        return dict.fromkeys(sorted(endless), FEW)


class ExactParams(Params):
    """Base of the parameters of methods that are made to prove: `run_exact` runs them."""

    #: Whether placers make a first plan besides the task's incumbent.
    start: bool = True

    @property
    def keeps_exact(self) -> bool:
        """Whether the method is exact with these parameters."""
        return True


@dataclass(frozen=True)
class Limits:
    """When a method stops: seconds, a relative gap that suffices, and its seed.

    `time_limit_s` None means no limit.
    """

    time_limit_s: float | None = None
    gap: float = 0.0
    seed: int = 0
    #: The limit of the whole run, where `time_limit_s` is what is left of it.
    whole_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what solvers would read each in its own way, or not at all."""
        limit_s, gap, seed = self.time_limit_s, self.gap, self.seed
        if limit_s is not None and not (isinstance(limit_s, Real) and limit_s >= 0):
            raise InputError(f"time_limit_s must be at least 0 or None, not {limit_s!r}")
        if not (isinstance(gap, Real) and 0 <= gap < 1):
            raise InputError(f"gap must be at least 0 and below 1, not {gap!r}")
        if not (isinstance(seed, Integral) and seed >= 0):
            raise InputError(f"seed must be at least 0, not {seed!r}")

    def clock(self) -> Clock:
        """A clock for the limit, which begins now."""
        return Clock(self.time_limit_s, self.named_s)

    def left(self, clock: Clock, share: float = 1.0) -> Limits:
        """The limits with a share of a clock's time left; messages still name the whole limit."""
        whole_s = self.time_limit_s if self.whole_s is None else self.whole_s
        left_s = clock.left_s
        return replace(self, time_limit_s=left_s and share * left_s, whole_s=whole_s)

    @property
    def named_s(self) -> float:
        """The limit as messages name it."""
        return (self.whole_s if self.whole_s is not None else self.time_limit_s) or 0.0


class Start(NamedTuple):
    """A feasible plan and its value by the referee."""

    plan: Plan
    value: int


S_co = TypeVar("S_co", bound=Semantics, default=Semantics, covariant=True)


@dataclass(frozen=True)
class Task(Generic[S_co]):
    """One call of a method; `S_co` are the semantics that the method supports."""

    instance: Instance
    semantics: S_co
    limits: Limits = Limits()
    incumbent: Plan | None = None  #: A feasible plan to start from, where the method can use one

    #: Plans of fast placers and the incumbent, the best first (`run_exact`).
    starts: tuple[Start, ...] = ()

    floor_ns: int = 0  #: A proven bound on all plans

    #: Whose memory counts at its peak, where `instance` stands in for it with bytes that add up.
    at_peak: Instance | None = None


# ``exact``: its bound reaches the optimum, given time; ``bound``: it returns no plan at all.
Claim = Literal["exact", "heuristic", "bound"]


@dataclass(frozen=True)
class Formulation:
    """What the runner needs of a formulation."""

    name: str  # for messages
    starts: tuple[str, ...]  # methods whose plans may serve as a start
    granularity_ns: int  # divides every value (`shared.times.granularity_ns`)
    #: Start or None -> model with ``unit_ns`` and one objective to minimize.
    build: Callable[[Start | None], pyo.ConcreteModel]
    warm_start: Callable[[pyo.ConcreteModel, Plan], None]  # (model, plan) -> None
    extract: Callable[[pyo.ConcreteModel], Plan]  # model -> plan


class Cost(NamedTuple):
    """What a placer is likely to cost, with the referee's verdict on its plan.

    Measured on one core of a 2.5 GHz server; only the order and the size matter.
    """

    #: ms, us_per_part: For a graph, and for each of its parts (ops and edges).
    ms: float
    us_per_part: float
    most_parts: int = 10**9  #: Larger graphs are not tried first
    grows: bool = True  #: Whether the time of larger ones grows faster than linearly
    always: bool = False  #: True if it runs even when almost no time is left


class Home(NamedTuple):
    """What is known of a method before it is loaded (`method_homes`)."""

    # `module` is its module, without `placegap.solvers.` where it is there, and `starts` are those
    # of its registration.
    module: str
    starts: Mapping[Objective, Cost] = {}


P = TypeVar("P", bound=Params)
T = TypeVar("T", bound=Semantics)


@dataclass(frozen=True)
class Method(Generic[P, T]):
    """The description of a method; `P` are its parameters, `T` the semantics that it supports.

    The registry, the README, the pages of methods and `auto` read it.
    """

    name: str
    claim: Claim
    objectives: tuple[Objective, ...]
    #: Whose method it is, in words: ``"Hwang et al. 1989"``; empty where it is not published.
    paper: str
    summary: str  #: One line for tables: what it does
    run: Callable[[Task[T], P], Outcome]
    params: type[P]  #: The method's parameters
    #: Why the method does not apply (semantics it does not model, size), or None if it does.
    applies: Callable[[Task[T], P], str | None] = lambda task, params: None
    #: What has to be installed first, with the command that does it, or None.
    missing: Callable[[], str | None] = lambda: None
    packages: tuple[str, ...] = ()  #: Distributions whose versions belong to a result
    #: Of a method that solves a MIP: what `export.write_model` writes.
    formulation: Callable[[Task[T], P], Formulation] | None = None
    #: Memory rules that the method itself keeps; others are kept around it (`peak_memory`).
    memory_rules: tuple[MemoryRule, ...] = ("sum",)
    #: Of an exact method that keeps the rule `sum` alone: what it can say of the rule `peak` after
    #: a run on the floor whose plan does not fit, and with the best one that does (`peak_memory`).
    settle: Callable[[Task[T], Outcome, Plan | None], Outcome | None] | None = None
    #: Keys of references.bib, each perhaps with a place: ``"topcuoglu2002, section 4.1"``.
    cites: tuple[str, ...] = ()
    #: Which problems, where the objectives alone say too little: ``"max_load, chain plans"``.
    scope: str = ""
    #: Makes it one of the placers whose plans exact methods and `auto` start from. What is said of
    #: ``max_load`` holds for all loads.
    starts: Mapping[Objective, Cost] = field(default_factory=dict)
    #: The solver that its proofs rest on, if that is one alone: two methods on one solver are no
    #: second opinion of each other.
    solver: str = ""
    #: Whether its plan may depend on ``task.limits.seed``; a study runs others once for all seeds.
    seeded: bool | None = None

    @property
    def is_seeded(self) -> bool:
        """`seeded`; if not stated, all but heuristics of placegap without a solver."""
        if self.seeded is not None:
            return self.seeded
        is_ours = str(getattr(self.run, "__module__", "")).startswith("placegap.")
        return (
            not is_ours or self.claim != "heuristic" or not SOLVERS.keys().isdisjoint(self.packages)
        )

    def outcome(self, task: Task[T], params: P) -> Outcome:
        """What `run` returns.

        Raises
        ------
        WrongOutcome
            If it is not an Outcome, or its plan is not a Plan.
        """
        found: object = self.run(task, params)
        wrong = _why_wrong(found)
        if wrong is None and isinstance(found, Outcome):
            return found
        raise WrongOutcome(
            f"{RUN_OF} {self.name} must return {wrong}; return Outcome(Plan.on(devices)), with"
            " the number of each op's device, or Outcome(message=...) where there is no plan"
        )

    @property
    def basis(self) -> str:
        """The basis of bounds that do not state their own: all of its solvers."""
        words = [solver_and_version(name) for name in self.packages if name in SOLVERS]
        return ", ".join(words) or PROOF

    @property
    def does(self) -> str:
        """The problems that it supports, in words."""
        words = "all" if self.objectives == OBJECTIVES else ", ".join(self.objectives)
        return self.scope or words

    @property
    def citation(self) -> str:
        """Authors of the method, and the places in their papers; a dash if there are none."""
        places = (cited.partition(", ")[2] for cited in self.cites)
        return ", ".join(filter(None, [self.paper, *places])) or "-"


class About(TypedDict, total=False):
    """Fields of `Method` that have defaults, as `registry.method` takes them."""

    scope: str
    applies: Callable[[Task[Any], Any], str | None]
    missing: Callable[[], str | None]
    packages: tuple[str, ...]
    formulation: Callable[[Task[Any], Any], Formulation]
    memory_rules: tuple[MemoryRule, ...]
    settle: Callable[[Task[Any], Outcome, Plan | None], Outcome | None]
    starts: Mapping[Objective, Cost]
    solver: str
    seeded: bool


class WrongOutcome(InputError):
    """A method returns what is no outcome: one line that says what to return."""


def _why_wrong(found: object) -> str | None:
    """What a method has to return in place of what it did, or None."""
    if not isinstance(found, Outcome):
        return f"an Outcome, not {_a(type(found))}"
    plan: object = found.plan
    if plan is None:
        return None
    if not isinstance(plan, Plan):
        return f"an Outcome with a Plan, not with {_a(type(plan))}"
    if not isinstance(plan.placement, tuple):
        return f"a Plan whose placement is a tuple, not {_a(type(plan.placement))}"
    for of_op in set(map(type, plan.placement)):
        if not issubclass(of_op, tuple):
            return f"a Plan with a tuple of devices for each op, not {_a(of_op)}"
    for number in set(map(type, chain.from_iterable(plan.placement))):
        if not issubclass(number, int | np.integer):
            return f"a Plan with numbers of devices, not {_a(number)}"
    return None


def _a(kind: type) -> str:
    article = "an" if kind.__name__[0] in "aeiouAEIOU" else "a"
    return "None" if kind is type(None) else f"{article} {kind.__name__}"


AnyMethod = Method[Any, Any]  # a method of the registry, whose parameters are known at run time


def why_not_installed(package: str, extra: str) -> str | None:
    """How to get a package that is missing, or None."""
    if find_spec(package) is None:
        return f"needs {package}: pip install 'placegap[{extra}]'"
    return None
