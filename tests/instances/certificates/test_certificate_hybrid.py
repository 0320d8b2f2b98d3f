"""The plain check of hybrid plans: it proves optima, and nothing above them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from draws.hybrid import hybrid_instance, hybrid_semantics, layer_row
from draws.tiny import SHARED, needs_inputs

from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    HybridPipeline,
    Instance,
    MaxLoad,
    Mode,
    Op,
    Semantics,
    load_model,
)
from placegap.instances.certificates import certificate_checker, certificate_hybrid
from placegap.instances.certificates.certificate_checker import Rejected
from placegap.instances.certificates.certificate_file import (
    Certificate,
    StagesProof,
    certificate_content,
    check_content,
    plain_document,
)
from placegap.instances.oracle.hybrid_plans import best_hybrid
from placegap.instances.problem.links import Group, Links
from placegap.solvers import run_method
from placegap.solvers.bounds.certificates.write import certify

RULES = HybridPipeline(microbatches=4)
OPTIMUM = 120
"""Of `layer_row(33)` under `RULES`: tests/experiments/cli/test_place_export.py."""


def contents(instance: Instance, semantics: Semantics, bound_ns: int) -> tuple[Any, Any]:
    """An instance and a certificate, as files hold them."""
    stated = Certificate(
        instance=instance.name,
        instance_hash=instance.content_hash,
        semantics=semantics,
        bound_ns=bound_ns,
        proof=StagesProof(),
    )
    pair = plain_document(instance), certificate_content(stated)
    document, certificate = (json.loads(json.dumps(part)) for part in pair)
    return document, certificate


def check_draws(seeds: range) -> int:
    """How many draws had a plan; of each the optimum is proven, and 1 ns more refused."""
    had = 0
    for seed in seeds:
        rng = random.Random(f"hybrid-{seed}")
        instance, semantics = hybrid_instance(rng, most_ops=4), hybrid_semantics(rng)
        semantics = semantics.model_copy(update={"bubble": False})
        best = best_hybrid(instance, semantics)
        if best is None:  # then any bound holds, unless layers need each other
            continue
        had += 1
        try:
            check_content(*contents(instance, semantics, best[0]))
        except Rejected as error:
            assert "layers need each other" in str(error)  # noqa: PT017
            continue
        with pytest.raises(Rejected, match="some plan takes less"):
            check_content(*contents(instance, semantics, best[0] + 1))
    return had


def test_it_proves_optima_and_nothing_above() -> None:
    assert check_draws(range(150)) > 75


def test_filling_and_draining_have_no_certificate() -> None:
    assert certify(layer_row(), RULES) is not None
    assert certify(layer_row(), RULES.model_copy(update={"bubble": True})) is None


@pytest.mark.deep
def test_it_proves_many_optima_and_nothing_above() -> None:
    assert check_draws(range(1000, 11_000)) > 5000


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bound_ns": OPTIMUM + 1}, "claims 121 ns, and some plan takes less"),
        ({"bound_ns": -1}, "out of its range"),
        ({"bound_ns": True}, "out of its range"),
        ({"bound_ns": "120"}, "out of its range"),
        ({"instance_hash": "0" * 64}, "another instance"),
        ({"version": 2}, "no certificate"),
        ({"proof": {"kind": "work"}}, "proves nothing of this objective"),
        ({"proof": {}}, "KeyError|kind"),
        ({"rules": {"microbatches": 0}}, "out of its range"),
        ({"rules": {"microbatches": 4.0}}, "out of its range"),
        ({"rules": {"degrees": "free-ish"}}, "degrees 'free-ish' is unknown"),
        ({"rules": {"recompute": ["per_layer"]}}, "unknown"),
        ({"rules": {"sharding": None}}, "unknown"),
        ({"rules": {"objective": "max_load"}}, "nothing of this objective"),
    ],
)
def test_a_forged_certificate_is_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    document, content = contents(layer_row(memory=33), RULES, OPTIMUM)
    check_content(document, content)
    content["semantics"].update(change.pop("rules", {}))
    with pytest.raises(Rejected, match=words) as said:
        check_content(document, {**content, **change})
    assert "\n" not in str(said.value)


def test_an_instance_that_was_changed_is_refused() -> None:
    document, content = contents(layer_row(memory=33), RULES, OPTIMUM)
    document["graph"]["ops"][3]["modes"][0]["time_ns"]["gpu"] += 1
    with pytest.raises(Rejected, match="another instance"):
        check_content(document, content)


def test_other_objectives_are_refused() -> None:
    with pytest.raises(Rejected, match="nothing of this objective"):
        check_content(*contents(layer_row(), MaxLoad(), 1))


def test_layers_that_need_each_other_are_refused() -> None:
    instance = layer_row()
    ops = list(instance.graph.ops)
    ops[1], ops[3] = (op.model_copy(update={"colocation": "both"}) for op in (ops[1], ops[3]))
    graph = instance.graph.model_copy(update={"ops": tuple(ops)})
    files = contents(instance.with_graph(graph), RULES, 10)
    with pytest.raises(Rejected, match="layers need each other"):
        check_content(*files)


def test_it_says_where_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for most in ("MOST_SETS", "MOST_STAGES"):
        with monkeypatch.context() as patch:
            patch.setattr(certificate_hybrid, most, 1)
            with pytest.raises(Rejected, match="too large to be checked"):
                check_content(*contents(layer_row(), RULES, 100))


def test_more_sums_than_it_goes_through_count_as_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    # both layers need 3 or 5, and have 4 or 1 bytes: 8 allow one to be the smaller, and 7 none
    items = [[(3, 4), (5, 1)]] * 2
    can = [certificate_hybrid.can_choose(items, budget, 5) for budget in (7, 8)]
    assert can == [False, True]
    monkeypatch.setattr(certificate_hybrid, "MOST_SUMS", 0)
    assert certificate_hybrid.can_choose(items, 7, 5)


def test_place_certifies_the_optimum_and_less_where_it_is_not_one() -> None:
    instance = layer_row(memory=33)
    found = certify(instance, RULES, target_ns=OPTIMUM)
    assert found is not None
    assert found.bound_ns == OPTIMUM
    lower = certify(instance, RULES)  # without a target, the work
    assert lower is not None
    assert 0 < lower.bound_ns <= OPTIMUM
    assert certify(instance, RULES, target_ns=OPTIMUM + 1) is None


def test_it_runs_beside_the_checker_alone(tmp_path: Path) -> None:
    for module in (certificate_checker, certificate_hybrid):
        file = Path(module.__file__)
        (tmp_path / file.name).write_text(file.read_text())
    for bound, status in ((OPTIMUM, 0), (OPTIMUM + 1, 1)):
        for name, part in zip("ic", contents(layer_row(33), RULES, bound), strict=True):
            (tmp_path / f"{name}.json").write_text(json.dumps(part))
        command = [sys.executable, "-S", "certificate_hybrid.py", "i.json", "c.json"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (status, "")
        assert ran.stdout.count("\n") == 1


@needs_inputs("piper", "it holds the inputs of github.com/msr-fiddle/piper")
def test_it_proves_bert_on_64_devices() -> None:
    names = tuple(f"gpu{k}" for k in range(64))
    devices = tuple(Device(name=n, kind="accelerator", memory_bytes=16 * 10**9) for n in names)
    cluster = Cluster(name="64", devices=devices, links=Links((Group(names, 25 * 10**9),)))
    instance = load_model(SHARED / "instances" / "piper" / "bert32a100.json").instance(cluster)
    semantics = HybridPipeline(microbatches=1920, degrees="free")
    # 18.803113 ms per microbatch: shared/reference/hybrid-plans.md, section 4
    check_content(*contents(instance, semantics, 1920 * 18_803_112))
    with pytest.raises(Rejected, match="some plan takes less"):
        check_content(*contents(instance, semantics, 1920 * 18_803_114))


@pytest.mark.deep
@pytest.mark.parametrize("degrees", ["free", "one"])
def test_it_proves_100_layers_on_64_devices(degrees: Literal["free", "one"]) -> None:
    names = ["embedding", *(f"layer{n}" for n in range(98)), "loss"]
    ops = []
    for number, name in enumerate(names):
        whole = 10 + number % 3  # layers of three sizes
        modes = tuple(
            Mode(
                name=mode,
                tensor=t,
                time_ns={"gpu": whole * time_ms * 100_000 // t},
                held_bytes=whole * held_mb * 10**5 // t,
                state_bytes=7 * 10**9 // t,
                parameter_bytes=8 * 10**8 // t,
            )
            for t in (1, 2, 4, 8)
            for mode, time_ms, held_mb in (("keep", 30, 1600), ("some", 31, 900), ("full", 40, 100))
        )
        ops.append(Op(name=name, time_ns={"gpu": 1}, modes=modes))
    edges = tuple(Edge(producer=a, consumer=b, bytes=50 * 10**6) for a, b in pairwise(names))
    gpus = tuple(f"g{k}" for k in range(64))
    devices = tuple(Device(name=n, kind="gpu", memory_bytes=80 * 10**9) for n in gpus)
    cluster = Cluster(name="64", devices=devices, links=Links((Group(gpus, 25 * 10**9),)))
    graph = Graph(name="long", ops=tuple(ops), edges=edges)
    instance = Instance(name="long@64", graph=graph, cluster=cluster)
    semantics = HybridPipeline(microbatches=256, degrees=degrees)
    value = run_method(instance, semantics, "hybrid-cuts").value_ns
    assert value is not None
    check_content(*contents(instance, semantics, value))
    with pytest.raises(Rejected, match="some plan takes less"):
        check_content(*contents(instance, semantics, value + 1))
