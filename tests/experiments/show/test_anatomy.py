"""What is said of a plan is what the referee counts, under every objective."""

from __future__ import annotations

import sys

import pytest

from placegap.experiments.show.anatomy import Anatomy, take_apart
from placegap.experiments.show.page import plan_page
from placegap.experiments.show.rendering import output
from placegap.experiments.show.timeline import NO_OP
from placegap.experiments.show.words import move_sentence, print_anatomy
from placegap.instances import Edge, Graph, Instance, MaxLoad, Op, Plan, evaluate, example
from placegap.instances.corpus.generate import generate
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import Document
from placegap.instances.problem import (
    LatencySubgraphs,
    Makespan,
    MaxLoadFwdBwd,
    PipelineIteration,
    Semantics,
)
from placegap.instances.problem.modules import with_granularity
from placegap.instances.problem.semantics import part
from placegap.solvers.core.result import Bound

RULES: tuple[Semantics, ...] = (
    Makespan(),
    Makespan(channels="link", transfers="per_tensor"),
    Makespan(channels="free", memory="peak"),
    MaxLoad(plans="any"),
    MaxLoad(plans="any", memory="peak"),
    MaxLoadFwdBwd(plans="any"),
    LatencySubgraphs(),
    PipelineIteration(microbatches=3),
)

CHAIN = Plan.on([0, 0, 1, 1])
"""Ops 1 and 2 of the diamond on one device, 3 and 4 on the other: stages under all objectives."""


def layered() -> Instance:
    """30 ops in layers on four equal devices."""
    graph = generate("layered", {"ops": 30, "width": 4}, 1)
    return Document(name="layered", graph=graph).instance(load_cluster("celeritas-4xV100-pcie"))


def apart(instance: Instance, plan: Plan, rules: Semantics) -> Anatomy:
    found = take_apart(instance, plan, rules, num_moves=0)
    assert found is not None
    return found


def in_slices(instance: Instance) -> Plan:
    """A quarter of a topological order on each device."""
    position = instance.arrays.index.topological_position.tolist()
    return Plan.on([4 * at // instance.num_ops for at in position])


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: rules.label)
@pytest.mark.parametrize("instance", [example(), layered()], ids=["diamond", "layered"])
class TestEveryObjective:
    def plan(self, instance: Instance) -> Plan:
        return CHAIN if instance.num_ops == 4 else in_slices(instance)

    def test_the_bars_end_with_the_value(self, instance: Instance, rules: Semantics) -> None:
        found = apart(instance, self.plan(instance), rules)
        assert found.drawn.end_ns == found.value

    def test_every_op_that_is_a_bar_is_in_the_row_of_its_device(
        self, instance: Instance, rules: Semantics
    ) -> None:
        plan = self.plan(instance)
        drawn = apart(instance, plan, rules).drawn
        rows = {bar.op: bar.row for bar in drawn.bars if bar.op != NO_OP and not bar.is_move}
        assert all(plan.placement[op] == (row,) for op, row in rows.items())
        if not isinstance(rules, LatencySubgraphs | PipelineIteration):
            assert sorted(rows) == list(range(instance.num_ops))

    def test_a_critical_path_has_no_pause(self, instance: Instance, rules: Semantics) -> None:
        found = apart(instance, self.plan(instance), rules)
        if isinstance(rules, MaxLoad | MaxLoadFwdBwd):
            assert found.path == ()
            return
        assert (found.path[0].start_ns, found.path[-1].end_ns) == (0, found.value)
        ends = [link.end_ns for link in found.path]
        assert [link.start_ns for link in found.path[1:]] == ends[:-1]

    def test_the_highest_level_of_memory_is_what_the_referee_counts(
        self, instance: Instance, rules: Semantics
    ) -> None:
        found = apart(instance, self.plan(instance), rules)
        highest = [max(size for _, size in levels) for levels in found.memory]
        assert highest == [use.memory_bytes for use in found.verdict.uses]

    def test_bytes_that_go_out_come_in(self, instance: Instance, rules: Semantics) -> None:
        found = apart(instance, self.plan(instance), rules)
        out = sum(each.bytes for each in found.crossings)
        assert sum(device.out_bytes for device in found.devices) == out
        assert sum(device.in_bytes for device in found.devices) >= out


def test_loads_are_what_comes_in_then_ops_then_what_goes_out() -> None:
    # op 3 alone: its input of 20 ns, 10 ns of work, its output of 10 ns
    drawn = apart(example(), Plan.on([0, 0, 1, 0]), MaxLoad(plans="any")).drawn
    second = [(bar.name, bar.start_ns, bar.end_ns) for bar in drawn.bars if bar.row == 1]
    assert second == [("op1 comes in", 0, 20), ("op3", 20, 30), ("op3 goes out", 30, 40)]


def test_the_best_move_is_the_referees() -> None:
    before = take_apart(example(), CHAIN, Makespan())
    assert before is not None
    found = before.next_moves
    for move in found.moves:
        value_ns = evaluate(example(), move.plan, Makespan()).value_ns
        assert value_ns == move.value == before.value - (move.gain or 0)
    assert [move.value for move in found.moves] == sorted(m.value for m in found.moves)
    assert found.tried == found.all == 4


def test_a_plan_that_breaks_a_rule_gets_moves_that_mend_it() -> None:
    small = example()
    ops = tuple(op.model_copy(update={"resident_bytes": 10}) for op in small.graph.ops)
    devices = tuple(d.model_copy(update={"memory_bytes": 30}) for d in small.cluster.devices)
    full = Instance(
        name="full",
        graph=small.graph.model_copy(update={"ops": ops}),
        cluster=small.cluster.model_copy(update={"devices": devices}),
    )
    plan = Plan.on([0, 0, 0, 0])  # 40 bytes of 30
    broken = take_apart(full, plan, Makespan())
    assert broken is not None
    found = broken.next_moves
    assert found.moves
    assert all(evaluate(full, move.plan, Makespan()).feasible for move in found.moves)
    assert {move.gain for move in found.moves} == {None}


def test_an_optimal_plan_says_among_which_plans() -> None:
    # a0 and b0 take 10 ns each, and then a1 and b1, which both read both, in tensors of no bytes.
    # With the layers {a0, b0} and {a1, b1} whole that is 40 ns; side by side, a beside b, it is 20
    ops = [
        Op(name=f"{name}{layer}", module=f"net.h.{layer}", time_ns={"gpu": 10})
        for layer in range(2)
        for name in "ab"
    ]
    edges = [Edge(producer=f"{a}0", consumer=f"{b}1", bytes=0) for a in "ab" for b in "ab"]
    graph = Graph(name="rows", ops=tuple(ops), edges=tuple(edges))
    instance = example().with_graph(graph)
    whole = with_granularity(instance, "layer")
    rules = Makespan()

    def said(plan: list[int], bound_ns: int, whole: Instance | None) -> str:
        bound = Bound(bound_ns, "by hand")
        found = take_apart(instance, Plan.on(plan), rules, bound, whole=whole)
        assert found is not None
        return move_sentence(found)

    layers = said([0] * 4, 40, whole)
    assert "moves of whole layers" in layers
    assert "proven optimal under makespan port per_edge among plans of whole layers" in layers
    assert "'placegap place --granularity op' splits them" in layers
    assert "(the plan is" not in layers
    assert "optimal" not in said([0] * 4, 20, whole)
    best = said([0, 1, 0, 1], 20, None)
    assert best.endswith(
        "none improves it (the plan is proven optimal under makespan port per_edge)"
    )


def test_an_objective_without_a_module_is_shown_plainly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    referee = part(Makespan(), "referee")
    monkeypatch.setattr(Makespan, "folder", "unheard_of")
    monkeypatch.setitem(sys.modules, "placegap.instances.objectives.unheard_of.referee", referee)
    found = apart(example(), CHAIN, Makespan())
    assert (found.drawn.bars, found.path, found.why) == ((), (), ())
    print_anatomy(output(), found)
    shown = capsys.readouterr().out
    assert "diamond: makespan port per_edge" in shown
    assert f"value   {found.value} ns" in shown
    assert plan_page(found)
