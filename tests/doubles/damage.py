"""Damage to any file: values of parsed JSON, lines and bytes, drawn with a seed."""

from __future__ import annotations

import copy
import gzip
import json
import random
import sys
from collections.abc import Callable
from typing import Any

ODD_VALUES: list[Any] = [
    None, True, False, -1, 0, 1, 2**31, 2**53 + 1, 2**62, 2**62 + 1, 2**63, 2**64, 10**30, -(2**63),
    10**4000, 10**9, 0.5, -0.0, 1e-400, 1e308, 5e-324, float("nan"), float("inf"), float("-inf"),
    "", " ", "x", "x" * 3000, "a b " * 900, "\0", "\n", "\r\n\t", "é\u2028", "\ud800", " -> ",
    "gpu", "first", "1", "1e5", "NaN", "../../etc/passwd", "/dev/zero", "all", "placegap", [], {},
    [[]], [1], ["x"], {"x": 1}, {"": None}, {"name": "first"},
]  # fmt: skip
ODD_TEXTS = [
    b"-", b"1" * 5000, b"1e999999", b"1e99999999999999999999", b"NaN", b"-Infinity", b"0x1F",
    b"1:59:59", b"[" * 3000, b"{" * 3000, b"\xff\xfe", b"\x00", b"\xef\xbb\xbf", b"null", b'"',
    b"&a ",
    b"*a", b"<<: *a", b"!!python/object:os.system x", b"!!binary x", b"2001-99-99", b"? ", b"|\n",
    b",,,,", b"\r", b"\n\n", b"9" * 300, b"--- ", b"%YAML 9.9\n", b"\\ud800", b"1_000", b"=", b"'",
]  # fmt: skip


def damage_bytes(rng: random.Random, data: bytes) -> bytes:
    """A few bytes changed, lost, doubled or put in."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(7):
            case 0 if changed:
                changed[min(at, len(changed) - 1)] = rng.randrange(256)
            case 1:
                changed[at:at] = rng.choice(ODD_TEXTS)
            case 2:
                del changed[at : at + rng.choice([1, 1, 3, 20, 200])]
            case 3:
                piece = changed[at : at + rng.choice([1, 8, 64])]
                changed[at:at] = piece * rng.choice([1, 2, 300])
            case 4:
                other = rng.randrange(len(changed) + 1)
                changed[at : at + 12], changed[other : other + 12] = (
                    changed[other : other + 12], changed[at : at + 12],
                )  # fmt: skip
            case 5:
                changed = changed[:at] if rng.random() < 0.2 else changed
            case _ if changed:
                changed[min(at, len(changed) - 1)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def damage_tree(rng: random.Random, content: Any) -> Any:
    """Parsed JSON with values changed, lost, doubled or put in another's place."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(content))
        if not places:
            return content
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(rng.choice(ODD_VALUES))
            case 3:
                del holder[key]
            case 4:
                other, place = rng.choice(places)
                holder[key] = copy.deepcopy(other[place])
            case _ if isinstance(holder, list):
                holder.extend(copy.deepcopy([holder[key]] * rng.choice([1, 3, 200])))
            case _:
                holder[rng.choice(["x", "", "name", "y" * 500, "\ud800"])] = holder[key]
        if not isinstance(content, dict | list):
            return content
    return content


def _places(content: Any) -> Any:
    for key in content if isinstance(content, dict) else range(len(content)):
        yield content, key
        if isinstance(content[key], dict | list):
            yield from _places(content[key])


def as_json(content: Any) -> bytes:
    """JSON as a careless program writes it."""
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(content).encode()
    finally:
        sys.set_int_max_str_digits(4300)


def json_damage(content: Any) -> Callable[[random.Random], bytes]:
    """Half of the damage is done to values, half to bytes."""

    def damaged(rng: random.Random) -> bytes:
        if rng.random() < 0.6:
            return as_json(damage_tree(rng, content))
        return damage_bytes(rng, as_json(content))

    return damaged


def zipped(damaged: Callable[[random.Random], bytes]) -> Callable[[random.Random], bytes]:
    """Damage inside a gzip file, or to it."""

    def both(rng: random.Random) -> bytes:
        if rng.random() < 0.5:
            return gzip.compress(damaged(rng), mtime=0)
        return damage_bytes(rng, gzip.compress(damaged(random.Random(1)), mtime=0))

    return both


def text_damage(text: str) -> Callable[[random.Random], bytes]:
    """Damage to bytes, and to lines."""

    def damaged(rng: random.Random) -> bytes:
        lines = text.splitlines(keepends=True)
        if rng.random() < 0.4:
            at = rng.randrange(len(lines))
            lines[at : at + 1] = rng.choice(
                [[], lines[at : at + 1] * 2, [lines[at]] * 3000, [lines[rng.randrange(len(lines))]]]
            )
        data = "".join(lines).encode()
        return damage_bytes(rng, data) if rng.random() < 0.8 else data

    return damaged
