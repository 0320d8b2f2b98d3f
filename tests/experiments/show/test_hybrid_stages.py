"""A hybrid plan taken apart by stages: shares, bars, crossings and moves agree with the referee."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from draws.hybrid import hybrid_instance, hybrid_plan, hybrid_semantics

from placegap.experiments.cli import main
from placegap.experiments.running import placing
from placegap.experiments.running.pool import run_here
from placegap.experiments.show.anatomy import Anatomy, take_apart
from placegap.experiments.show.objectives.base import Judged
from placegap.experiments.show.objectives.hybrid import stages_apart
from placegap.experiments.show.page import plan_page
from placegap.instances import (
    Cluster,
    Device,
    Edge,
    Graph,
    HybridPipeline,
    Instance,
    Mode,
    Op,
    Plan,
    evaluate,
)
from placegap.instances.files.document import Document, save_document
from placegap.instances.problem.links import Group, Links
from placegap.solvers import run_method

RULES = HybridPipeline(microbatches=4, degrees="free")


def two_layers(memory: int = 100) -> Instance:
    """Layers a -> b with 3 bytes between, four devices at 1 byte/ns, two modes."""
    keep = Mode(name="keep", time_ns={"gpu": 10}, parameter_bytes=6, state_bytes=8, held_bytes=5)
    again = Mode(name="again", time_ns={"gpu": 14}, parameter_bytes=6, state_bytes=9, held_bytes=1)
    ops = tuple(Op(name=n, time_ns={"gpu": 1}, modes=(keep, again)) for n in "ab")
    names = tuple(f"d{k}" for k in range(4))
    devices = tuple(Device(name=n, kind="gpu", memory_bytes=memory) for n in names)
    cluster = Cluster(name="four", devices=devices, links=Links((Group(names, 10**9),)))
    graph = Graph(name="ab", ops=ops, edges=(Edge(producer="a", consumer="b", bytes=3),))
    return Instance(name="ab@four", graph=graph, cluster=cluster)


PLAN = Plan(((0, 1), (2,)), stage=(0, 1), tensor=(1, 1), mode=("again", "keep"))


def apart(instance: Instance, plan: Plan, rules: HybridPipeline = RULES) -> Anatomy:
    found = take_apart(instance, plan, rules)
    assert found is not None
    return found


def test_a_stage_is_told_by_its_parts() -> None:
    # stage 0, d = 2: 2 * 14 of ops, 2 * 4 / 2 * 3 out, 2 * 1 / 2 * 6 gradients: 28 + 12 + 6;
    # stage 1, d = 1: 4 * 10 and 2 * 4 * 3 in: 40 + 24. Memory 1: 8 + 5; 0: 9 + 1 * ceil(3 / 2)
    found = apart(two_layers(), PLAN)
    assert [(each.num_ops, each.memory_bytes) for each in found.devices] == [(1, 11), (1, 13)]
    bars = [(bar.row, bar.is_move, bar.end_ns, bar.label) for bar in found.drawn.bars]
    assert bars == [
        (0, False, 28, "again"),
        (0, True, 40, "communication"),
        (0, True, 46, "communication"),
        (1, True, 24, "communication"),
        (1, False, 64, "keep"),
    ]
    assert found.why[0] == (
        "Stage 1 takes longest, 64 ns per batch: 40 ns for the layers of 4 microbatches in each of"
        " 1 replicas, 24 ns of incoming and 0 ns of outgoing transfers, 0 ns to sum gradients."
    )
    assert "Each of its devices holds 8 B of state, 5 B of 1 microbatch in flight." in (found.why)
    assert found.why[-1] == "1 of 4 devices are not used."
    # b with a in stage 0: 2 * (14 + 10) and gradients 12; in mode again 2 * 28 + 12
    assert [(move.what, move.target, move.value) for move in found.next_moves.moves] == []


def test_parts_agree_with_the_referee_on_random_plans() -> None:
    shown = 0
    for seed in range(60):
        rng = random.Random(f"apart-{seed}")
        instance, rules = hybrid_instance(rng), hybrid_semantics(rng)
        plan = hybrid_plan(rng, instance)
        verdict = evaluate(instance, plan, rules)
        found = take_apart(instance, plan, rules, num_moves=0)
        assert (found is None) == (verdict.value_ns is None)
        if found is None:
            continue
        shown += 1
        for s, each in enumerate(stages_apart(Judged(instance, plan, rules, verdict))):
            use = each.use
            ends = [bar.end_ns for bar in found.drawn.bars if bar.row == s]
            assert max(ends) <= use.load_ns
            assert use.load_ns - max(ends) <= len(ends)  # roundings
            assert each.state_bytes >= 0
            parts = each.state_bytes + each.held_bytes + each.workspace_bytes
            assert parts == found.devices[s].memory_bytes == use.memory_bytes
        assert sum(share.in_bytes for share in found.devices) == (
            sum(share.out_bytes for share in found.devices)
        )
        assert plan_page(found) == plan_page(found)
    assert shown > 15


def test_plans_are_saved_shown_and_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "run_pool", run_here)
    model = str(tmp_path / "ab.json")
    save_document(Document.of(two_layers(memory=30)), model)
    rules = ["--objective", "hybrid_pipeline", "--microbatches", "4", "--degrees", "free"]
    plans = [str(tmp_path / f"{method}.json") for method in ("hybrid-cuts", "equal-split")]
    for path in plans:
        method = Path(path).stem
        assert main(["place", model, *rules, "--method", method, "-o", path]) == 0
        assert main(["verify", model, path]) == 0
    capsys.readouterr()
    assert main(["show", plans[0], "--model", model, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["value_ns"] == run_method(two_layers(memory=30), RULES, "hybrid-cuts").value_ns
    assert sum(stage["num_ops"] for stage in said["stages"]) == 2
    assert main(["show", plans[0], "--model", model]) == 0
    out = capsys.readouterr().out
    assert "in flight" in out
    assert "takes longest" in out
    assert main(["compare", *plans, "--model", model]) == 0
    assert "longest stage: ops" in capsys.readouterr().out
    assert main(["compare", *plans, "--model", model, "--json"]) == 0
    both = json.loads(capsys.readouterr().out)["plans"]
    assert both[0]["value_ns"] <= both[1]["value_ns"]
