"""The rules that a user states, one by one, and the semantics that they make of a model's own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import get_args

from pydantic import ValidationError

from placegap.instances.problem import DEFAULTS, FIELDS, OBJECTIVES, Semantics, parse_semantics
from placegap.instances.problem.semantics import belongs
from placegap.instances.reading.errors import InputError, from_validation_error

MOST_CHANGES = 2  # rules that `nearest` changes at once: as many as a device of several stages has


@dataclass(frozen=True)
class Rules:
    """Single rules that replace those of a model's semantics; None where one is not given."""

    objective: str | None = None
    plans: str | None = None
    channels: str | None = None
    transfers: str | None = None
    load: str | None = None
    replicas: bool | None = None
    levels: int | None = None
    subgraphs: int | None = None
    memory: str | None = None
    schedule: str | None = None
    stages_per_device: int | None = None
    microbatches: int | None = None
    sending: str | None = None
    degrees: str | None = None
    recompute: str | None = None
    sharding: str | None = None
    bubble: bool | None = None
    at_most_ns: int | None = None
    partial_inference: bool | None = None

    @property
    def given(self) -> Mapping[str, object]:
        """The rules that are stated, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    @property
    def is_hybrid(self) -> bool:
        """Whether they are those of hybrid_pipeline, named or by a rule of its own."""
        own = {"degrees", "recompute", "sharding", "bubble"}.intersection(self.given)
        return (self.objective or ("hybrid_pipeline" if own else "")) == "hybrid_pipeline"

    def override(self, own: Semantics | None, default: str | None = None) -> Semantics:
        """The semantics to use: the file's own, with single fields replaced."""
        # Where no option names the objective, the options must belong to that of `default`, else
        # the file's, else makespan, or they choose the first that all of them belong to. Another
        # objective than the file's resets all other fields but the memory rule, which is the
        # model's.
        objective = self.objective or self._objective(
            default or ("makespan" if own is None else own.objective)
        )
        has = next((FIELDS[one] for one in OBJECTIVES if one == objective), (*self.given,))
        for name, rule in self.given.items():
            if name not in ("objective", *has):
                raise InputError(
                    f"{option(name, rule)} {belongs(name, objective)}; leave it out, or name"
                    " another --objective"
                )
        stated: dict[str, object] = {"objective": objective}
        if own is not None and objective == own.objective:
            stated |= own.model_dump()
        elif own is not None and "memory" in has:
            stated["memory"] = own.memory_rule
        stated |= self.given
        try:
            return parse_semantics(stated)
        except ValidationError as error:
            raise from_validation_error(error, stated, source="options") from None

    def _objective(self, default: str) -> str:
        given = {*self.given}
        usual_first = sorted(OBJECTIVES, key=lambda name: name != default)
        suits = [name for name in usual_first if given <= {*FIELDS[name]}]
        suits += [name for name in usual_first if given.intersection(FIELDS[name])]
        return suits[0] if suits else default


def nearest(
    semantics: Semantics, suits: Callable[[Semantics], bool], kept: Collection[str] = ()
) -> Semantics | None:
    """The semantics of the same objective that suits, with the fewest rules changed; or None."""
    rules = semantics.model_dump()
    free = [name for name in FIELDS[semantics.objective] if name not in kept]
    for count in range(MOST_CHANGES + 1):
        for names in combinations(free, count):
            for values in product(*(_others(semantics, name) for name in names)):
                try:
                    changed = parse_semantics({**rules, **dict(zip(names, values, strict=True))})
                except ValidationError:  # rules that exclude each other
                    continue
                if suits(changed):
                    return changed
    return None


def _others(semantics: Semantics, name: str) -> list[object]:
    """Other values of a rule: the others of its list, or the default of a number."""
    kind = type(semantics).model_fields[name].annotation
    listed = (True, False) if kind is bool else get_args(kind) or (DEFAULTS[name],)
    return [value for value in listed if value != getattr(semantics, name)]


def as_options(semantics: Semantics, base: Semantics) -> str:
    """The options that make one semantics of another."""
    base_rules: Mapping[str, object] = base.model_dump()
    options = []
    if base.objective != semantics.objective:
        options.append(option("objective", semantics.objective))
        base_rules = {**DEFAULTS, "memory": base.memory_rule}  # as `override` keeps it
    for name in FIELDS[semantics.objective]:
        value = getattr(semantics, name)
        if value != base_rules[name]:
            options.append(option(name, value))
    return " ".join(options)


def option(name: str, value: object) -> str:
    """A rule as the command line takes it."""
    words = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{'' if value else 'no-'}{words}"
    return f"--{words} {value}"
