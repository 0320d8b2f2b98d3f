"""Fusion rules as data: which sequences of op types an inference backend runs as one op."""

from __future__ import annotations

from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from placegap.instances.io.document import Version
from placegap.instances.problem.instance import InstancePart, Name
from placegap.instances.reading.errors import InputError, from_validation_error
from placegap.instances.reading.input_files import data_path
from placegap.instances.reading.yaml_file import read_yaml

Steps = Annotated[tuple[Name, ...], Field(min_length=2, max_length=100)]


class FusionRules(InstancePart):
    """Rules of operator fusion (Moirai, Table I).

    Attributes
    ----------
    kinds : dict of str to tuple of str
        The op types that a name of the rules stands for; one that is absent stands for itself.
    rules : tuple of tuples of str
        Names in the order of the data flow.
    extends : {"default"} or None
        Whether the rules and kinds that ship with the package hold beside these; kinds of one name
        are joined.

    Examples
    --------
    >>> rules = FusionRules(kinds={"conv": ("Conv",)}, rules=(("conv", "Relu"),))
    >>> rules.matches(("Conv", "Relu")), rules.matches(("Relu",)), rules.matches(("Relu", "Conv"))
    ('whole', 'part', None)
    """

    format: Literal["placegap-fusion-rules"] = "placegap-fusion-rules"
    version: Version = 1
    extends: Literal["default"] | None = None
    kinds: dict[Name, Annotated[tuple[Name, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    rules: tuple[Steps, ...] = ()

    @model_validator(mode="after")
    def _some_rules_each_once(self) -> Self:
        if not self.rules and self.extends is None:
            raise ValueError("rules: there are none; list at least one, or say extends: default")
        for number, rule in enumerate(self.rules):
            if rule in self.rules[:number]:
                raise ValueError(f"rules[{number}]: [{', '.join(rule)}] appears twice")
        return self

    def matches(self, types: tuple[str, ...]) -> Literal["whole", "part"] | None:
        """Whether a sequence of op types is a whole rule, or a run of steps within one."""
        found: Literal["part"] | None = None
        for rule in self.rules:
            for at in range(len(rule) - len(types) + 1):
                steps = rule[at : at + len(types)]
                if all(t in self.kinds.get(s, (s,)) for s, t in zip(steps, types, strict=True)):
                    if len(rule) == len(types):
                        return "whole"
                    found = "part"
        return found


@cache
def default_rules() -> FusionRules:
    """The rules that ship with the package, for convolution nets and transformers.

    Examples
    --------
    >>> default_rules().rules[:3]
    (('conv', 'bn'), ('conv', 'bn', 'relu'), ('conv', 'bn', 'add', 'relu'))
    """
    return _parse(data_path("fusion-rules.yaml"))


def read_rules(path: str | Path) -> FusionRules:
    """Read a rules file: YAML with `kinds`, `rules`, and ``extends: default`` to keep the defaults.

    Raises
    ------
    InputError
        One line that names the file, the place and what is wrong there.
    """
    own = _parse(path)
    found = own if own.extends is None else _joined(default_rules(), own)
    used = set(chain.from_iterable(found.rules))
    for name in own.kinds:
        if name not in used:
            raise InputError(f"kinds.{name}: no rule names it; correct it or drop it", path)
    return found


def _joined(base: FusionRules, own: FusionRules) -> FusionRules:
    kinds = dict(base.kinds)
    for name, types in own.kinds.items():
        kinds[name] = tuple(dict.fromkeys((*kinds.get(name, ()), *types)))
    return FusionRules(kinds=kinds, rules=tuple(dict.fromkeys((*base.rules, *own.rules))))


def _parse(path: str | Path) -> FusionRules:
    raw = read_yaml(path)
    if not isinstance(raw, dict) or "rules" not in raw:
        raise InputError("is no file of fusion rules: it has no 'rules'", path)
    try:
        return FusionRules.model_validate(raw)
    except ValidationError as error:
        raise from_validation_error(error, raw, path) from None
