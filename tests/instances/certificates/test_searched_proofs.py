"""Proofs by a search done anew, of hybrid plans and of chains: optima, and nothing above them."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from draws.hybrid import hybrid_instance, hybrid_semantics, layer_row
from draws.tiny import SHARED, needs_inputs, tiny_instance
from references.brute_force import oracle

from placegap.instances import (
    Cluster,
    Device,
    HybridPipeline,
    Instance,
    MaxLoad,
    Semantics,
    example,
    load_model,
)
from placegap.instances.certificates import (
    certificate_checker,
    certificate_hybrid,
    certificate_ideals,
)
from placegap.instances.certificates.certificate_checker import Rejected
from placegap.instances.certificates.certificate_file import (
    Certificate,
    IdealsProof,
    StagesProof,
    certificate_content,
    check_content,
    plain_document,
)
from placegap.instances.objectives.staged_plans import best_hybrid
from placegap.instances.problem.links import Group, Links
from placegap.solvers.bounds.certificates.write import certify

CHAIN = MaxLoad(plans="chain")
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
        proof=StagesProof() if isinstance(semantics, HybridPipeline) else IdealsProof(),
    )
    pair = plain_document(instance), certificate_content(stated)
    document, certificate = (json.loads(json.dumps(part)) for part in pair)
    return document, certificate


def deep(seeds: range) -> Any:
    return pytest.param(seeds, marks=pytest.mark.deep)


@pytest.mark.parametrize("seeds", [range(25), deep(range(1000, 5000))], ids=["few", "many"])
def test_it_proves_best_chains_and_nothing_above(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        sizes = {"num_ops": rng.choice([3, 4, 5, 6]), "num_devices": rng.choice([1, 2, 3])}
        hosts, backward = rng.choice([0, 0, 1]), rng.random() < 0.5
        instance = tiny_instance(seed, **sizes, hosts=hosts, backward=backward)
        semantics = MaxLoad(plans="chain", load=rng.choice(["add", "overlap"]))
        optimum = oracle(instance, semantics)
        check_content(*contents(instance, semantics, optimum or 0))
        if optimum is not None:
            with pytest.raises(Rejected, match=r"some chain takes less|it claims"):
                check_content(*contents(instance, semantics, optimum + 1))


@pytest.mark.parametrize(
    "semantics",
    [MaxLoad(plans="any"), MaxLoad(plans="convex"), MaxLoad(plans="chain", replicas=True)],
)
def test_other_plans_than_chains_are_refused(semantics: MaxLoad) -> None:
    with pytest.raises(Rejected, match="max_load of chains"):
        check_content(*contents(example(), semantics, 1))
    document, content = contents(example(), CHAIN, 0)
    with pytest.raises(Rejected, match="out of its range"):
        check_content(document, {**content, "bound_ns": 1.5})


@pytest.mark.parametrize("seeds", [range(60), deep(range(1000, 11_000))], ids=["few", "many"])
def test_it_proves_hybrid_optima_and_nothing_above(seeds: range) -> None:
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
    assert had > len(seeds) // 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bound_ns": OPTIMUM + 1}, "claims 121 ns, and some plan takes less"),
        ({"bound_ns": True}, "out of its range"),
        ({"instance_hash": "0" * 64}, "another instance"),
        ({"version": 2}, "not a certificate"),
        ({"proof": {"kind": "work"}}, "proves nothing about this objective"),
        ({"rules": {"microbatches": 0}}, "out of its range"),
        ({"rules": {"degrees": "free-ish"}}, "degrees 'free-ish' is unknown"),
        ({"rules": {"recompute": ["per_layer"]}}, "unknown"),
        ({"rules": {"objective": "max_load"}}, "nothing about this objective"),
        ({"rules": {"bubble": True}}, "nothing where filling and draining count"),
    ],
)
def test_a_forged_certificate_is_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    document, content = contents(layer_row(memory=33), RULES, OPTIMUM)
    check_content(document, content)
    content["semantics"].update(change.pop("rules", {}))
    with pytest.raises(Rejected, match=words) as said:
        check_content(document, {**content, **change})
    assert "\n" not in str(said.value)


def test_layers_that_need_each_other_are_refused() -> None:
    instance = layer_row()
    ops = list(instance.graph.ops)
    ops[1], ops[3] = (op.model_copy(update={"colocation": "both"}) for op in (ops[1], ops[3]))
    graph = instance.graph.model_copy(update={"ops": tuple(ops)})
    files = contents(instance.with_graph(graph), RULES, 10)
    with pytest.raises(Rejected, match="need each other"):
        check_content(*files)


@pytest.mark.parametrize(
    ("module", "most", "instance", "semantics"),
    [
        (certificate_hybrid, "MOST_SETS", layer_row(), RULES),
        (certificate_hybrid, "MOST_STAGES", layer_row(), RULES),
        (certificate_ideals, "MOST_IDEALS", example(), CHAIN),
    ],
)
def test_it_says_where_it_gives_up(
    module: Any, most: str, instance: Instance, semantics: Semantics, monkeypatch: Any
) -> None:
    monkeypatch.setattr(module, most, 1)
    with pytest.raises(Rejected, match="too large"):
        check_content(*contents(instance, semantics, 100))


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
    # filling and draining have no certificate
    assert certify(instance, RULES.model_copy(update={"bubble": True})) is None


BEST_CHAIN = oracle(example(), CHAIN) or 0


@pytest.mark.parametrize(
    ("module", "instance", "semantics", "optimum"),
    [
        (certificate_hybrid, layer_row(33), RULES, OPTIMUM),
        (certificate_ideals, example(), CHAIN, BEST_CHAIN),
    ],
)
def test_it_runs_beside_the_checker_alone(
    module: Any, instance: Instance, semantics: Semantics, optimum: int, tmp_path: Path
) -> None:
    for each in (certificate_checker, module):
        file = Path(each.__file__)
        (tmp_path / file.name).write_text(file.read_text())
    for bound, status in ((optimum, 0), (optimum + 1, 1)):
        for name, part in zip("ic", contents(instance, semantics, bound), strict=True):
            (tmp_path / f"{name}.json").write_text(json.dumps(part))
        command = [sys.executable, "-S", Path(module.__file__).name, "i.json", "c.json"]
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
