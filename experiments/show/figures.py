"""Quantities as people read them; files keep nanoseconds, bytes and seconds."""

from __future__ import annotations

import math
from collections.abc import Iterable

from placegap.instances.problem import MOST_TOKENS, Semantics
from placegap.instances.problem.flow_problem import UNITS
from placegap.instances.problem.integers import format_bytes
from placegap.instances.problem.semantics import Unit

UNITS_NS = (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1))


def format_ns(time_ns: int) -> str:
    """A time with the unit that suits it."""
    unit, size = next(
        ((unit, size) for unit, size in UNITS_NS if abs(time_ns) >= size), UNITS_NS[-1]
    )
    return f"{format_in(time_ns, size)} {unit}"


def format_value(value: int, unit: Unit = "ns") -> str:
    """A value or bound: a time, a number of tokens, or tokens per second."""
    if unit == "tokens":
        return "no limit" if value == MOST_TOKENS else f"{value:,} tokens"
    if unit == "microtokens_per_s":
        return f"{value / UNITS:,.3f} tokens/s"
    return format_ns(value)


def common_unit(values: Iterable[int], unit: Unit = "ns") -> tuple[str, int]:
    """One unit for all figures of a table: ms, unless all times are far smaller or larger."""
    if unit == "tokens":
        return "tokens", 1
    if unit == "microtokens_per_s":
        return "tokens/s", UNITS
    largest = max(values, default=0)
    if largest >= 10**12:
        return UNITS_NS[0]
    return next((unit for unit in UNITS_NS[1:] if largest >= unit[1]), UNITS_NS[-1])


def format_in(time_ns: int, size: int) -> str:
    """A time in a unit of `size` ns, to four significant digits, never in powers of ten."""
    if abs(size) == 1 or time_ns == 0:
        return str(size * time_ns)
    before_point = math.floor(math.log10(abs(time_ns) / size)) + 1
    return f"{time_ns / size:.{max(0, 4 - before_point)}f}"


def format_s(seconds: float) -> str:
    """Seconds of wall time, to two or three digits."""
    if seconds < 0.001:
        return f"{seconds * 1000:.2f} ms"
    if seconds < 0.00995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:.0f} s"


def format_duration(seconds: float) -> str:
    """A duration that is not exceeded: rounded up."""
    if seconds < 99.5:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours < 10 else f"{math.ceil(minutes / 60)} h"


def counted(number: int, noun: str) -> str:
    """A number and what is counted, in the plural where it is one."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def memory_of(used_bytes: int, limit_bytes: int | None) -> str:
    """What a device holds, and how much it could."""
    limit = "" if limit_bytes is None else f" of {format_bytes(limit_bytes)}"
    return format_bytes(used_bytes) + limit


def memory_name(semantics: Semantics) -> str:
    """The head of a column of a device's bytes."""
    return "peak memory" if semantics.memory_rule == "peak" else "memory"


def format_gap(gap: float) -> str:
    """A relative gap in percent; a gap that is not 0 never reads as 0."""
    percent = 100 * gap
    if percent == 0:
        return "0 %"
    if 0 < percent < 0.01:
        return "<0.01 %"
    return f"{percent:.2f} %" if percent < 9.995 else f"{percent:.1f} %"
