"""Models that no solver would end: refused by their numbers, before anything is built."""

from __future__ import annotations

MOST_ROWS = 300_000
"""Larger MIPs are refused: they take minutes to build, and HiGHS hardly ends their root node."""

MOST_LP_ROWS = 1_000_000
"""Larger LPs are refused: they take a minute to build, and many to solve."""

MOST_EDGES = 20_000
"""Larger graphs are refused before their pairs are counted: each edge has some ten rows anyway."""

LONGEST_NS = 2**53
"""Longer horizons, over 100 days, are refused: floating-point numbers do not resolve their ns."""


def why_too_long(horizon_ns: int) -> str | None:
    """Why the times of a model are out of reach, or None; no plan takes longer than the horizon.

    Examples
    --------
    >>> why_too_long(2**53), why_too_long(2**53 + 1)
    (None, 'its times are too long for floating-point numbers')
    """
    return "its times are too long for floating-point numbers" if horizon_ns > LONGEST_NS else None


def why_too_many_rows(rows: int, form: str = "", *, is_lp: bool = False) -> str | None:
    """Why a model of so many rows is out of reach, or None; `form` says which model it is.

    Examples
    --------
    >>> why_too_many_rows(300_001, "as_published")
    'its model (as_published) would have 300001 rows, more than 300000'
    >>> why_too_many_rows(300_001, is_lp=True) is None
    True
    """
    most = MOST_LP_ROWS if is_lp else MOST_ROWS
    model = f"its model ({form})" if form else "its model"
    return f"{model} would have {rows} rows, more than {most}" if rows > most else None
