"""Shares of bounds that certificates prove: told row by row, kept, and taken up again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from doubles.gap_runs import CHAIN, Results, cells_of, plan

from placegap.experiments.research import certificates
from placegap.experiments.research.certificates import (
    Key,
    Share,
    certified_column,
    certified_shares,
    closing_row,
    known_shares,
)
from placegap.instances import Instance, Semantics, example
from placegap.instances.certificates.certificate_file import Certificate, IdealsProof
from placegap.solvers.core.result import PROOF

RESULTS: Results = {
    ("chains", "easy", "dp"): plan(80, 80),
    ("chains", "easy", "heft"): plan(90),
    ("chains", "hard", "dp"): plan(90, 50),
    ("chains", "lost", "dp"): {"status": "no_plan", "message": "memory"},
}
CELLS = cells_of(RESULTS, {"chains": CHAIN})

Certify = Callable[[Instance, Semantics, float, float], Certificate]


def certifying(asked: list[float], proven_ns: int, stop_at: int = 99) -> Certify:
    """A double of `certify` that proves so much, and is interrupted at a call."""

    def certify(
        instance: Instance, semantics: Semantics, limit_s: float, target_ns: float
    ) -> Certificate:
        if len(asked) == stop_at:
            raise KeyboardInterrupt
        asked.append(target_ns)
        return Certificate(
            instance=instance.name,
            instance_hash=instance.content_hash,
            semantics=semantics,
            bound_ns=proven_ns,
            proof=IdealsProof(),
        )

    return certify


@pytest.fixture(autouse=True)
def no_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "load_source", lambda source: example())


def test_each_bound_is_certified_once_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, known = list[float](), dict[Key, Share]()
    monkeypatch.setattr(certificates, "certify", certifying(asked, 40))
    certified_shares(CELLS, 1.0, tmp_path, known)
    assert asked == [80, 50]  # heft's cell has the bound of dp's; "lost" has none
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" %")[0] for line in lines] == [
        "placegap: chains, easy: 50.0",
        "placegap: chains, hard: 80.0",
    ]
    assert known_shares(tmp_path) == known
    assert certified_column(CELLS, known) == "60.0 %"  # of 50, 50 and 80


def test_an_interrupt_keeps_what_is_known_and_the_next_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, known = list[float](), dict[Key, Share]()
    monkeypatch.setattr(certificates, "certify", certifying(asked, 40, stop_at=1))
    with pytest.raises(KeyboardInterrupt):
        certified_shares(CELLS, 1.0, tmp_path, known)
    assert certified_column(CELLS, known) == "50.0 % (2 of 3)"
    monkeypatch.setattr(certificates, "certify", certifying(asked, 40))
    certified_shares(CELLS, 1.0, tmp_path, known_shares(tmp_path))
    assert asked == [80, 50]


def test_a_line_tells_of_plans_gaps_and_who_vouches() -> None:
    results: Results = {
        ("chains", "easy", "dp"): plan(2_000_000, 2_000_000),
        ("chains", "hard", "dp"): plan(5_000_000, 4_000_000),
        ("chains", "lost", "dp"): {"status": "no_plan", "message": "memory"},
    }
    first, *others = cells_of(results, {"chains": CHAIN})
    # gaps 0 and 1/5, so 10 % on the mean; sqrt(1 * 4/5) = 0.894
    line = ("2", "3", "10.0 %", "20.0 %", "0.894", "1", "1")
    assert closing_row([replace(first, best_rests_on=PROOF), *others]) == line
