"""The base of all parts of an instance, and the numbers and names that they state.

Quantities in files that people write: 25e9, 2.5e10 and 25_000_000_000 are the same integer.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from placegap.instances.problem.integers import LARGEST_SUM

NUMBER = re.compile(r"[+-]?\d[\d_]*(\.[\d_]*)?([eE][+-]?\d{1,3})?", re.ASCII)
LONGEST_NUMBER = 40  # characters and digits of a quantity; the largest has 19 digits
LARGEST_EXACT_FLOAT = 2**53  # above, a float may be another integer than the one that was written


def exact_integer(value: object) -> object:
    """An integer that is written with a point or an exponent, as text or number; else itself."""
    # YAML reads 25e9 as text, 2.5e+10 as a float, and so does JSON with both.
    if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_EXACT_FLOAT:
        return int(value)
    if isinstance(value, str) and len(value) <= LONGEST_NUMBER and NUMBER.fullmatch(value):
        number = Decimal(value.replace("_", ""))
        if number.adjusted() < LONGEST_NUMBER and number == number.to_integral_value():
            return int(number)
    return value


Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST_SUM)]

Positive = Annotated[int, Field(strict=True, gt=0, le=LARGEST_SUM)]

Size = Annotated[Count, BeforeValidator(exact_integer)]

Rate = Annotated[Positive, BeforeValidator(exact_integer)]

Flag = Annotated[bool, Field(strict=True)]

Name = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=1000)]

WITHOUT_OPS = "modules_without_ops"
"""Parameter of a provenance: modules of a traced model that hold weights and that no op names."""

ASSUMED_DIMS = "assumed_dims"
"""Parameter of the provenance that names the sizes that were not stated, as "N=1, M=1"."""

WITHOUT_RULE = "ops_without_flop_rule"
"""Parameter of the provenance that counts, by kind, ops whose FLOPs are a guess: "Foo 3, Bar 1"."""


class InstancePart(BaseModel):
    """Base of all parts of an instance: frozen, and unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A changed copy, validated anew; pydantic's own would keep stale derived arrays."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**(copy.deepcopy(fields) if deep else fields), **(update or {})})


class Provenance(InstancePart):
    """Source, licence and changes of an instance or a part of it."""

    source: str = ""
    licence: str = ""
    changes: tuple[str, ...] = ()
    parameters: dict[str, str | int | float | bool | None] = Field(default_factory=dict)

    def noting(self, change: str, parameters: Mapping[str, Any] | None = None) -> Provenance:
        """The same, with one more change, and more parameters."""
        known = {**self.parameters, **(parameters or {})}
        return self.model_copy(update={"changes": (*self.changes, change), "parameters": known})


def twice(names: Iterable[str]) -> str:
    """The first name that appears a second time."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name appears twice")
