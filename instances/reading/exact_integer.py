"""Quantities in files that people write: 25e9, 2.5e10 and 25_000_000_000 are the same integer."""

from __future__ import annotations

import re
from decimal import Decimal

NUMBER = re.compile(r"[+-]?\d[\d_]*(\.[\d_]*)?([eE][+-]?\d{1,3})?", re.ASCII)
LONGEST_NUMBER = 40
"""Characters and digits of a quantity; the largest has 19 digits."""

LARGEST_EXACT_FLOAT = 2**53
"""Above, a float may be another integer than the one that was written."""


def exact_integer(value: object) -> object:
    """An integer that is written with a point or an exponent, as text or as a number; else itself.

    YAML reads 25e9 as text, 2.5e+10 as a float, and so does JSON with both.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) <= LARGEST_EXACT_FLOAT:
        return int(value)
    if isinstance(value, str) and len(value) <= LONGEST_NUMBER and NUMBER.fullmatch(value):
        number = Decimal(value.replace("_", ""))
        if number.adjusted() < LONGEST_NUMBER and number == number.to_integral_value():
            return int(number)
    return value
