"""Every case of docs/cases.md, in its small form; the page says what cases.yaml asks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from placegap.experiments.research import cases as room
from placegap.experiments.research.cases import PAGE, cases, commands_of, run_case, value_ns
from placegap.experiments.running.pool import run_here

NUMBERS = range(1, len(cases()) + 1)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs in processes of its own elsewhere runs here."""
    monkeypatch.setattr("placegap.experiments.running.placing.run_pool", run_here)
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=pytest.mark.torch if "trace" in cases()[number - 1] else ())
        for number in NUMBERS
    ],
)
def test_a_case_is_proven_and_no_rule_of_a_tool_is_better(number: int, tmp_path: Path) -> None:
    found = run_case(number, room.small_commands(number, tmp_path), tmp_path)
    assert found.figures["status"] == "optimal", found.text
    assert found.status == 0, found.text
    known = [value for value in found.by_hand.values() if value is not None]
    assert all(value >= 0.999 * value_ns(found) for value in known)  # four digits are printed
    assert set(found.by_hand) == set(cases()[number - 1]["by_hand"])
    if "experts" in cases()[number - 1]:
        (few, some_ns), (every, all_ns) = found.experts.items()
        assert (few < every, some_ns < all_ns) == (True, True)
        floor = re.search(r"no plan is below ([\d.]+) ms", found.text)
        assert floor is not None
        assert some_ns / 1e6 >= float(floor[1])
        apart = float(found.apart["value"].split()[0])
        assert apart <= 1.001 * min(some_ns, value_ns(found)) / 1e6


def test_the_page_has_every_case_with_its_commands_and_is_proven() -> None:
    text = PAGE.read_text()
    shown = re.findall(r"^## (\d+)\. (.*)$", text, re.MULTILINE)
    assert shown == [(str(n), cases()[n - 1]["title"]) for n in NUMBERS]
    assert len(shown) == 12
    for number in NUMBERS:
        assert all(command in text for command in commands_of(number))
        assert cases()[number - 1]["situation"] in text
    assert re.findall(r"^status  (\w+)$", text, re.MULTILINE) == ["optimal"] * 12


@pytest.mark.deep
@pytest.mark.torch
@pytest.mark.parametrize("number", NUMBERS)
def test_the_page_shows_what_a_case_prints(number: int, tmp_path: Path) -> None:
    found = run_case(number, commands_of(number), tmp_path)
    section = PAGE.read_text().split(f"## {number}. ")[1].split("\n## ")[0]
    for name in ("status", "value", "gap"):
        assert f"{name:7} {found.figures[name]}" in section
    for value in found.by_hand.values():
        assert value is None or f"{value / 1e6:.2f} ms" in section
