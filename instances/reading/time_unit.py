"""Times of foreign files as whole nanoseconds, and every rounding noted."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Annotated, Any, Literal, get_args

from pydantic import PlainValidator

from placegap.instances.reading.errors import InputError

TimeUnit = Literal["ns", "us", "ms", "s"]

NS_PER: dict[str, int] = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}

# Numbers of a file above this are input errors: no size or time comes near.
LARGEST_NUMBER = Decimal(10) ** 25


def exact_number(value: Any) -> Decimal:
    """A non-negative number exactly as the file writes it; ValueError if it is none."""
    # Floats stand for the shortest decimal text that reads back as them, which is what was written.
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise ValueError("is not a number")
    try:
        number = Decimal(repr(value) if isinstance(value, float) else value)
    except ArithmeticError:
        raise ValueError("is not a number") from None
    if not number.is_finite():
        raise ValueError("is not a finite number")
    if number < 0:
        raise ValueError("is negative")
    if number > LARGEST_NUMBER:
        raise ValueError("is too large")
    if number and number.adjusted() < -400:  # no double is; keeps fractions small
        raise ValueError("is too small")
    return number.normalize() if "E" in str(number) else number


def whole_number(number: Decimal) -> int:
    """The integer that a number is; ValueError if it is none."""
    if number != number.to_integral_value():
        raise ValueError(f"{number} is not whole")
    return int(number)


def _json_number(value: Any) -> Decimal:
    if isinstance(value, str):
        raise ValueError("is not a number")
    return exact_number(value)


# Field of a foreign JSON file that holds a non-negative number.
Number = Annotated[Decimal, PlainValidator(_json_number)]
# Field of a foreign JSON file that holds a non-negative whole number, perhaps as ``6.0``.
Whole = Annotated[int, PlainValidator(lambda value: whole_number(_json_number(value)))]


@dataclass
class TimeReader:
    """Turns times in one unit into nanoseconds, half to even, and counts what it rounded."""

    unit: TimeUnit
    read: int = 0
    rounded: int = 0
    largest_error: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        if self.unit not in get_args(TimeUnit):
            raise InputError(f"time unit {self.unit!r} is none of {', '.join(NS_PER)}")

    def ns(self, time: Decimal, place: str = "time") -> int:
        """The time in whole nanoseconds; ValueError about `place` if int64 sums cannot hold it."""
        exact = Fraction(time) * NS_PER[self.unit]
        whole = round(exact)  # Python rounds fractions half to even
        if whole > 2**62:
            raise ValueError(f"{place}: {time} {self.unit} is above 2**62 ns")
        self.read += 1
        self.rounded += whole != exact
        self.largest_error = max(self.largest_error, abs(whole - exact))
        return whole

    def changes(self) -> tuple[str, ...]:
        """What to say in the provenance: nothing, or one sentence."""
        if not self.rounded:
            return ()
        worst = Decimal(self.largest_error.numerator) / self.largest_error.denominator
        shown = worst.quantize(Decimal("0.001"), ROUND_HALF_EVEN).normalize()
        return (
            f"{self.rounded} of {self.read} times rounded half to even to whole ns,"
            f" by at most {shown} ns",
        )
