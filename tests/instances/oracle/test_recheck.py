"""The second referee: apart from the first, and of the same opinion."""

from __future__ import annotations

import ast
import random
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from draws.peak import add_state, with_peak
from draws.plans import every_instance, instances, random_plan, regrouped, semantics_for

from placegap.instances import (
    Evaluation,
    Graph,
    Instance,
    Op,
    Schedule,
    Transfer,
    evaluate,
    load_cluster,
    load_corpus,
    recheck,
)
from placegap.instances.objectives.hybrid.oracle import narrowest
from placegap.instances.objectives.makespan.oracle import planned_times
from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.memory import peak_bytes
from placegap.instances.problem import Times

PACKAGE = Path(__file__).parents[3] / "instances"
SECOND = (
    *(PACKAGE / "oracle" / f"{name}.py" for name in ("facts", "memory", "recheck", "rules")),
    *sorted(PACKAGE.glob("objectives/*/oracle.py")),
)
"""The files of the second referee; others of its room are brute force."""

PLANS_PER_INSTANCE = 10


def opinion(verdict: Evaluation) -> tuple[int | None, set[str]]:
    return verdict.value_ns, {violation.rule for violation in verdict.violations}


def times(schedule: Schedule) -> Times:
    table = schedule.transfers
    spans = list(zip(table.start_ns.tolist(), table.end_ns.tolist(), strict=True))
    moves = zip(table.item.tolist(), table.destination.tolist(), spans, strict=True)
    return Times(
        tuple(zip(schedule.start_ns.tolist(), schedule.end_ns.tolist(), strict=True)),
        {Transfer(item, k): span for item, k, span in moves},
    )


def compare(seed: int, number: int) -> tuple[Counter[str], Counter[str]]:
    """Judge random plans twice; how many per semantics, and how many broke each rule."""
    rng = random.Random(f"plans-{seed}")
    judged, rules = Counter[str](), Counter[str]()
    for instance in islice(instances(seed), -(-number // PLANS_PER_INSTANCE)):
        for draw in range(PLANS_PER_INSTANCE):
            semantics = semantics_for(instance, rng)
            plan = random_plan(instance, semantics, rng)
            verdict = evaluate(instance, plan, semantics)
            first, second = opinion(verdict), opinion(recheck(instance, plan, semantics))
            assert first == second, f"{instance.name}, draw {draw}, {semantics.label}: {plan}"
            if semantics.objective == "makespan" and verdict.schedule is not None:
                assert times(verdict.schedule) == planned_times(Facts(instance), plan, semantics)
            judged[semantics.label] += 1
            rules.update(first[1] or {"none"})
    return judged, rules


def test_both_referees_agree_on_800_random_plans() -> None:
    judged, rules = compare(1, 800)
    assert len(judged) == 41  # 8 makespan, 6 + 6 loads, 18 stages, 3 latencies
    assert set(rules) == {
        "none",
        "shape",
        "fields",
        "memory",
        "colocation",
        "replicas",
        "convex",
        "chain",
        "order",
    }
    assert min(rules.values()) >= 4
    assert rules["none"] >= 160


def compare_everything(seed: int, number: int) -> tuple[Counter[str], Counter[str]]:
    """Judge plans of all objectives twice; how many per objective or schedule, and per rule."""
    rng = random.Random(f"everything-{seed}")
    judged, rules = Counter[str](), Counter[str]()
    for instance in islice(every_instance(seed), -(-number // PLANS_PER_INSTANCE)):
        for draw in range(PLANS_PER_INSTANCE):
            own = semantics_for(instance, rng, iterations=True)
            has_peak = "memory" in type(own).model_fields
            semantics = with_peak(own) if has_peak and rng.random() < 0.3 else own
            plan = random_plan(instance, semantics, rng)
            judge = regrouped(instance, rng) if rng.random() < 0.3 else instance
            first = opinion(evaluate(judge, plan, semantics))
            second = opinion(recheck(judge, plan, semantics))
            assert first == second, f"{instance.name}, draw {draw}, {semantics.label}: {plan}"
            kind = getattr(semantics, "schedule", semantics.objective)
            judged[kind] += 1
            rules.update({(kind, rule) for rule in first[1] or {"none"}})
    return judged, rules


def test_both_referees_agree_on_plans_of_every_objective_and_schedule() -> None:
    judged, rules = compare_everything(1, 600)
    assert len(judged) == 8
    assert min(judged.values()) >= 10
    for kind in ("gpipe", "1f1b", "interleaved", "zero_bubble"):
        assert {rule for of, rule in rules if of == kind} >= {"none", "order", "colocation"}


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2, 12))
def test_both_referees_agree_on_50000_plans_of_every_objective(seed: int) -> None:
    assert compare_everything(seed, 5_000)[0].total() == 5_000


def compare_peaks(seed: int, number: int) -> Counter[str]:
    """Judge random plans twice under the rule `peak`: the verdicts, and every device's bytes."""
    rng = random.Random(f"peaks-{seed}")
    rules = Counter[str]()
    while rules["judged"] < number:
        for plain in islice(instances(seed + rules["judged"]), 10):
            instance = add_state(plain, rng.randrange(10**9))
            for _ in range(PLANS_PER_INSTANCE):
                own = semantics_for(instance, rng)
                if own.objective == "latency_subgraphs":
                    continue
                semantics = with_peak(own)
                plan = random_plan(instance, semantics, rng)
                verdict = evaluate(instance, plan, semantics)
                first, second = opinion(verdict), opinion(recheck(instance, plan, semantics))
                assert first == second, f"{instance.name}, {semantics.label}: {plan}"
                if verdict.uses:
                    table = verdict.schedule
                    facts, when = Facts(instance), None if table is None else times(table)
                    held = [use.memory_bytes for use in verdict.uses]
                    assert held == peak_bytes(facts, plan, semantics, when)
                rules.update(first[1] or {"none"})
                rules["judged"] += 1
    return rules


def test_both_referees_agree_on_the_peak_of_200_random_plans() -> None:
    rules = compare_peaks(1, 200)
    assert rules["none"] >= 30
    assert rules["memory"] >= 30


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2, 8))
def test_both_referees_agree_on_the_peak_of_30000_random_plans(seed: int) -> None:
    assert compare_peaks(1000 * seed, 5_000)["judged"] >= 5_000


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(2, 12))
def test_both_referees_agree_on_100000_random_plans(seed: int) -> None:
    judged, _ = compare(seed, 10_000)
    assert judged.total() == 10_000


def test_both_referees_agree_on_networks_of_the_corpus() -> None:
    rng = random.Random("corpus")
    for cluster in ("2x4-gpu-slow-link", "moirai-inter-server"):
        instance = load_corpus("squeezenet").instance(load_cluster(cluster))
        for _ in range(8):
            semantics = semantics_for(instance, rng)
            plan = random_plan(instance, semantics, rng)
            first = opinion(evaluate(instance, plan, semantics))
            assert first == opinion(recheck(instance, plan, semantics)), (semantics.label, plan)


def test_the_second_referee_shares_no_code_with_the_first() -> None:
    """It imports data types only: no arrays, no kernels, no library for graphs or numbers."""
    # problem: its data types alone; and the rules themselves, which are such types
    shared = {"reading.errors", "problem", "problem.links", "problem.semantics"}
    derived = {"arrays", "index", "op_index", "device_index", "best_known"}
    for path in SECOND:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        imported = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        imported |= {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
        for name in imported:
            module = name.removeprefix("placegap.instances.")
            assert (
                name.split(".")[0] in sys.stdlib_module_names
                or module in shared
                or (module.startswith("objectives.") and module.endswith(".rules"))
                or PACKAGE / f"{module.replace('.', '/')}.py" in SECOND
            ), f"{path.name} imports {name}"
        for node in nodes:
            if isinstance(node, ast.Attribute):
                assert node.attr not in derived, f"{path.name} reads {ast.unparse(node)}"
                assert ast.unparse(node) != "plan.devices", path.name  # an array


def test_the_narrowest_path_of_many_servers_takes_no_walk_for_each_pair() -> None:
    # most of 128 x 127 pairs have no link, and go by one of 25 GB/s and NVLinks of 450
    graph = Graph(name="one", ops=(Op(name="a", time_ns={"H100-80GB": 1}),))
    for text, width in (("16x8xH100", 25 * 10**9), ("8xH100", 450 * 10**9), ("1xH100", 1)):
        instance = Instance(name=text, graph=graph, cluster=load_cluster(text))
        facts = Facts(instance)
        assert narrowest(facts) == width
        assert not facts._paths
