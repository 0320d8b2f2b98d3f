"""Bounds of serving_flow by prices: by hand, of Helix's inputs, and by the stand-alone checker."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from references.serving_bounds import compare, needs_helix, pair, released

from placegap.instances import Provenance, ServingFlow
from placegap.instances.certificates import certificate_flow
from placegap.instances.certificates.certificate_checker import Rejected
from placegap.instances.certificates.certificate_file import (
    certificate_content,
    check_content,
    plain_document,
    save_certificate,
)
from placegap.instances.files.document import write_json
from placegap.instances.importers.serving import as_document
from placegap.instances.problem.flow_problem import SINK, SOURCE, UNITS, FlowProblem, Machine
from placegap.solvers.bounds.certificates.write import certify
from placegap.solvers.bounds.flow_prices import PriceSearch, terms_of
from placegap.solvers.core.clock import Clock


def proven(problem: FlowProblem) -> int:
    """The least bound that is found, checked by code that shares no kernel with the search."""
    search = PriceSearch(problem, Clock(None))
    bound = search.work_bound()
    for proof in search.prove(0):
        found = terms_of(problem).cheapest(proof.bound, proof.prices, proof.grid)
        assert found is None or found.charge > sum(proof.prices)
        bound = proof.bound
    return bound


def test_links_between_groups_count_by_hand() -> None:
    # over a wide link the machines hold a layer each, and pass 10
    assert proven(pair(100)) == 10
    # above 5 the link joins them no more: one layer is single at most, and both pass the other one,
    # which takes three machines
    assert proven(pair(5)) == 5


def test_capped_work_by_hand() -> None:
    # 4 + 8 + 12 machines that pass F with 8, 3 and 2 layers are just enough for 80 layers
    tables = {"a": (50, 45, 40, 35, 30, 28, 25, 20, 16), "l": (50, 40, 22, 15), "t": (60, 25, 14)}
    kinds = "a" * 4 + "l" * 8 + "t" * 12
    machines = tuple(Machine(f"{kind}{i}", kind) for i, kind in enumerate(kinds))
    numbers = range(len(machines))
    links = {(i, j): 1_000 for i in numbers for j in numbers if i != j}
    links |= {(SOURCE, i): 1_000 for i in numbers} | {(i, SINK): 1_000 for i in numbers}
    assert proven(FlowProblem(80, machines, tables, links)) == 20


@needs_helix
@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("single-24", 2045.641),  # by hand in Helix's tables: 48 F + 4 * 8 * 2045.641 = 80 F
        ("a100-4", 1044.533),
        ("t4-12", 397.685),
        ("regions-24", 1754.382),  # an A100 with 9 layers; 2045.641 where links are left out
        ("kinds-42", 6051.533),  # 6053.695 on a grid of 4,000
    ],
)
def test_bounds_of_released_inputs(name: str, tokens: float) -> None:
    assert proven(released(name).flow_problem) / UNITS == pytest.approx(tokens, abs=1e-3)


def test_the_checker_proves_what_is_written(tmp_path: Path) -> None:
    instance = as_document(pair(5), "pair", Provenance(), "pair").instance()
    found = certify(instance, ServingFlow())
    assert found is not None
    document, content = plain_document(instance), certificate_content(found)
    check_content(document, content)
    for change in ({"bound_ns": found.bound_ns - 1}, {"instance_hash": "0" * 64}):
        with pytest.raises(Rejected):
            check_content(document, content | change)
    dear = content | {"proof": content["proof"] | {"prices": [1, 10**9]}}
    with pytest.raises(Rejected, match="layers charge"):
        check_content(document, dear)
    # both files alone, with nothing but the standard library
    write_json(document, tmp_path / "pair.json")
    save_certificate(found, tmp_path / "certificate.json")
    folder = Path(certificate_flow.__file__).parent
    for name in ("certificate_flow.py", "certificate_checker.py"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    command = [sys.executable, "-S", "certificate_flow.py", "pair.json", "certificate.json"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert f"no plan passes more than {found.bound_ns} millionths" in said


def test_no_bound_is_below_and_no_plan_above_brute_force() -> None:
    # `python -m references.serving_bounds 500` compares as many
    number, optimal = compare(1, 20, machines=4)
    assert number == 20
    assert optimal == 20
