"""The plain check of chains: it proves optima of max_load, and nothing above them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from draws.tiny import tiny_instance
from references.brute_force import oracle

from placegap.instances import Instance, MaxLoad, example
from placegap.instances.certificates import certificate_checker, certificate_ideals
from placegap.instances.certificates.certificate_checker import Rejected
from placegap.instances.certificates.certificate_file import (
    Certificate,
    IdealsProof,
    certificate_content,
    check_content,
    plain_document,
)

CHAIN = MaxLoad(plans="chain")


def contents(instance: Instance, semantics: MaxLoad, bound_ns: int) -> tuple[Any, Any]:
    """An instance and a certificate, as files hold them."""
    stated = Certificate(
        instance=instance.name,
        instance_hash=instance.content_hash,
        semantics=semantics,
        bound_ns=bound_ns,
        proof=IdealsProof(),
    )
    pair = plain_document(instance), certificate_content(stated)
    document, certificate = (json.loads(json.dumps(part)) for part in pair)
    return document, certificate


def is_exact(seed: int) -> None:
    rng = random.Random(seed)
    instance = tiny_instance(
        seed,
        num_ops=rng.choice([3, 4, 5, 6]),
        num_devices=rng.choice([1, 2, 3]),
        hosts=rng.choice([0, 0, 1]),
        backward=rng.random() < 0.5,
    )
    semantics = MaxLoad(plans="chain", load=rng.choice(["add", "overlap"]))
    optimum = oracle(instance, semantics)
    check_content(*contents(instance, semantics, optimum or 0))
    if optimum is not None:
        with pytest.raises(Rejected, match=r"some chain takes less|it claims"):
            check_content(*contents(instance, semantics, optimum + 1))


@pytest.mark.parametrize("seed", range(60))
def test_it_proves_the_optimum_and_nothing_above(seed: int) -> None:
    is_exact(seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(1000, 5000))
def test_it_proves_many_optima_and_nothing_above(seed: int) -> None:
    is_exact(seed)


@pytest.mark.parametrize(
    "semantics",
    [MaxLoad(), MaxLoad(plans="convex"), MaxLoad(plans="chain", replicas=True)],
    ids=lambda semantics: semantics.label,
)
def test_other_plans_are_refused(semantics: MaxLoad) -> None:
    with pytest.raises(Rejected, match="prove only the max_load of chains"):
        check_content(*contents(example(), semantics, 1))


def test_it_says_where_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_ideals, "MOST_IDEALS", 0)
    with pytest.raises(Rejected, match="too large to be checked"):
        check_content(*contents(example(), CHAIN, 40))


@pytest.mark.parametrize("bound", [-1, 1.5, None, "40", True])
def test_a_bound_that_is_no_integer_is_refused(bound: object) -> None:
    document, content = contents(example(), CHAIN, 0)
    with pytest.raises(Rejected, match="out of its range"):
        check_content(document, {**content, "bound_ns": bound})


def test_it_runs_beside_the_checker_alone(tmp_path: Path) -> None:
    for module in (certificate_checker, certificate_ideals):
        file = Path(module.__file__)
        (tmp_path / file.name).write_text(file.read_text())
    optimum = oracle(example(), CHAIN)
    assert optimum is not None
    for bound, status in ((optimum, 0), (optimum + 1, 1)):
        for name, part in zip("ic", contents(example(), CHAIN, bound), strict=True):
            (tmp_path / f"{name}.json").write_text(json.dumps(part))
        command = [sys.executable, "-S", "certificate_ideals.py", "i.json", "c.json"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (status, "")
        assert ran.stdout.count("\n") == 1
