"""Prices of repeated layers: the checker finds the bound again, and no other numbers prove more."""

import json
import random
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest
from draws.layered import stack, stacks, windows
from references.brute_force import MAKESPAN_SEMANTICS

from placegap.instances import Instance, Makespan, MaxLoad, Semantics, load_cluster, load_corpus
from placegap.instances.certificates import certificate_checker, certificate_layers
from placegap.instances.certificates.certificate_checker import Rejected
from placegap.instances.certificates.certificate_file import (
    LayersProof,
    certificate_content,
    certificate_of,
    check_content,
    plain_document,
)
from placegap.instances.certificates.certificate_layers import LayerTerms
from placegap.instances.oracle.placements import best_schedule
from placegap.solvers.bounds.certificates.write import certify, checked_parts, layers_proof
from placegap.solvers.repeated_layers.layer_bound import prove_layers
from placegap.solvers.repeated_layers.sections import bottlenecks_of

Content = dict[str, Any]


def bound_of(instance: Instance, semantics: Makespan) -> tuple[int, LayersProof]:
    bottlenecks = bottlenecks_of(instance)
    found = prove_layers(instance, semantics, bottlenecks)
    assert found is not None
    return found.ns, layers_proof(bottlenecks, found)


def files(
    instance: Instance, semantics: Semantics, bound_ns: int, proof: LayersProof
) -> tuple[Content, Content]:
    """An instance and a certificate, as files hold them."""
    stated = certificate_content(certificate_of(instance, semantics, bound_ns, proof))
    document, content = (json.loads(json.dumps(x)) for x in (plain_document(instance), stated))
    return document, content


def wrong_numbers(rng: random.Random, proof: Content, num_ops: int) -> None:
    """Change a price, leave an op out of the row, or put another one into it."""
    ops, rows, at = proof["ops"], proof["prices"], rng.randrange(len(proof["ops"]))
    change = rng.choice(["price", "less", "other"])
    if change == "price" and rows:
        row = rng.choice(rows)
        row["devices"][0] = rng.choice([0, 1, 10**30])
        row["channels"] = [[channel, rng.choice([0, 1, 2**20])] for channel in range(4)]
    elif change == "other" or not proof["windows"]:
        ops[at] = rng.randrange(num_ops)
    else:
        del ops[at], proof["windows"][min(at, len(proof["windows"]) - 1)]
        proof["windows"] = [[*range(len(rows))] for _ in proof["windows"]]


def compare(instances: Iterable[Instance], seed: int) -> tuple[int, int]:
    """How many instances there were, and of how many the bound was found again to the ns."""
    rng, done, same = random.Random(seed), 0, 0
    for instance, semantics in zip(instances, cycle(MAKESPAN_SEMANTICS), strict=False):
        best = best_schedule(instance, semantics)
        if best is None:
            continue
        bound_ns, proof = bound_of(instance, semantics)
        content = proof.model_dump(mode="json")
        problem = LayerTerms(checked_parts(instance), semantics.model_dump(mode="json"))
        proven = problem.layers(content)
        assert bound_ns <= proven <= best[0], (instance.name, semantics.label)
        done, same = done + 1, same + (proven == bound_ns)
        for _ in range(3):
            wrong_numbers(rng, content, instance.num_ops)
            with suppress(Rejected):
                assert problem.layers(content) <= best[0], (instance.name, semantics.label)
    return done, same


def test_it_proves_the_bound_and_nothing_above_the_optimum() -> None:
    for draws in (windows, stacks):
        done, same = compare(islice(draws(0), 150), 1)
        assert done >= 145
        assert same >= 0.9 * done  # it also knows which ops stay together


@pytest.mark.deep
def test_it_proves_nothing_above_the_optimum_of_thousands() -> None:
    for draws in (windows, stacks):
        done, _ = compare(islice(draws(20_000), 4_000), 2)
        assert done >= 3_900


# Two layers of four ops of 10 ns between joins of 1 ns, on two devices: 45 ns, as derived in
# tests/solvers/repeated_layers/test_layer_bound.py. Ops 0, 5 and 10 are the joins.
BOUND = 45
DOCUMENT, GOOD = files(
    stack(2, branches=4), Makespan(), *bound_of(stack(2, branches=4), Makespan())
)


def proves(**change: Any) -> Content:
    """The certificate with other parts of its proof."""
    return {**GOOD, "proof": {**GOOD["proof"], **change}}


def prices(*devices: Any) -> list[Content]:
    return [{"devices": [*devices]}]


def test_any_equal_prices_prove_the_bound() -> None:
    assert GOOD["bound_ns"] == BOUND
    for content in (GOOD, proves(prices=prices(1, 1)), proves(prices=prices(10**30, 10**30))):
        check_content(DOCUMENT, content)
        with pytest.raises(Rejected, match="claims 46 ns, and proves 45 ns"):
            check_content(DOCUMENT, {**content, "bound_ns": BOUND + 1})


@pytest.mark.parametrize(
    ("change", "proven"),
    [
        # all work is free on the second device: paths are left, 1 + 10 + 1 + 10 + 1
        ({"prices": prices(1, 0)}, 23),
        ({"prices": prices(0, 0)}, 23),
        ({"windows": [[], []]}, 23),
        # one window: 1 + (81 + 2) / 2 + 1, where the second device waits only at its ends
        ({"ops": [0, 10], "windows": [[0]]}, 44),
        # the three ops beside op 1 do not count: 1 + 10 + (41 + 2) / 2 + 1
        ({"ops": [0, 1, 10]}, 34),
    ],
)
def test_other_numbers_prove_less(change: Content, proven: int) -> None:
    check_content(DOCUMENT, {**proves(**change), "bound_ns": proven})
    with pytest.raises(Rejected, match=f"it claims 45 ns, and proves {proven} ns"):
        check_content(DOCUMENT, proves(**change))


IN_A_ROW = "not in a row"
NUMBER = "out of its range"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ops": [10, 5, 0]}, IN_A_ROW),
        ({"ops": [0, 1, 2, 5], "windows": [[0]] * 3}, IN_A_ROW),  # two ops of one layer
        ({"ops": [0, 0, 5]}, IN_A_ROW),
        ({"ops": []}, IN_A_ROW),
        ({"ops": [0, 5, 11]}, NUMBER),
        ({"ops": [0, True, 10]}, NUMBER),
        ({"windows": [[0]]}, "2 windows, not 1"),
        ({"windows": [[0], [1]]}, NUMBER),
        ({"windows": [[0], [-1]]}, NUMBER),
        ({"windows": [[0], 0]}, "malformed: TypeError"),
        ({"prices": prices(1, -1)}, NUMBER),
        ({"prices": prices(1, 0.5)}, NUMBER),
        ({"prices": prices(1)}, "malformed: ValueError"),
        ({"prices": [{"devices": [1, 1], "channels": [[0, -1]]}]}, NUMBER),
        ({"prices": [{"devices": [1, 1], "channels": [[0]]}]}, "malformed: ValueError"),
        ({"prices": None}, "malformed: TypeError"),
    ],
)
def test_a_forged_certificate_is_refused_in_one_line(change: Content, words: str) -> None:
    with pytest.raises(Rejected, match=words) as said:
        check_content(DOCUMENT, proves(**change))
    assert "\n" not in str(said.value)


def test_it_is_a_proof_of_makespans_alone_and_has_a_checker_of_its_own() -> None:
    with pytest.raises(Rejected, match="proves nothing about this objective"):
        check_content(DOCUMENT, {**GOOD, "semantics": MaxLoad().model_dump(mode="json")})
    with pytest.raises(Rejected, match="proves nothing about this objective"):
        certificate_checker.check(DOCUMENT, GOOD)


def test_it_runs_beside_the_checker_alone(tmp_path: Path) -> None:
    for module in (certificate_checker, certificate_layers):
        file = Path(module.__file__)
        (tmp_path / file.name).write_text(file.read_text())
    (tmp_path / "i.json").write_text(json.dumps(DOCUMENT))
    for bound, status in ((BOUND, 0), (BOUND + 1, 1)):
        (tmp_path / "c.json").write_text(json.dumps({**GOOD, "bound_ns": bound}))
        command = [sys.executable, "-S", "certificate_layers.py", "i.json", "c.json"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (status, "")
        assert ran.stdout.count("\n") == 1


def test_layers_of_a_large_network_are_certified() -> None:
    # 4,879 ops: 24 layers with heads
    instance = load_corpus("gpt3-330m-heads").instance(load_cluster("4xA100-nvlink"))
    found = certify(instance, Makespan(memory="peak"), target_ns=82 * 10**6)
    assert found is not None
    assert found.proof.kind == "layers"
    assert found.bound_ns > 82 * 10**6
    content = certificate_content(found)
    assert len(json.dumps(content)) < 10_000
    check_content(plain_document(instance), content)
