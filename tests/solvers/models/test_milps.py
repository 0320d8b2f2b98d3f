"""Moirai's MILP, Pesto's and the throughput IP: what is special to each."""

import pytest
from draws import draw
from draws.equal_devices import equal_device_draws, layered
from draws.tiny import SHARED, needs_dnn_partitioning, needs_moirai
from draws.twins import CLUSTERS, twin_instance
from references.brute_force import makespan_draws, max_load_draws, oracle, scattered_instance

from placegap.formulations import pesto as formulation
from placegap.formulations.moirai import count_rows
from placegap.formulations.pesto import SEMANTICS, Form
from placegap.formulations.shared.families import exclude_overload
from placegap.instances import (
    Edge,
    Instance,
    Makespan,
    MaxLoad,
    MaxLoadFwdBwd,
    Op,
    Semantics,
    evaluate,
    example,
    load_model,
)
from placegap.instances.problem import Channels
from placegap.instances.transforms.merge import expand_plan
from placegap.instances.transforms.pesto_merge import merge_ops
from placegap.solvers import run_method
from placegap.solvers.models import milps

# ----------------------------------------------------------------------------------------- Moirai


PORT = Makespan()


@pytest.mark.deep
@pytest.mark.parametrize("channels", ["free", "link", "port", "half_duplex"])
def test_it_equals_brute_force_on_many_instances(channels: Channels) -> None:
    semantics = Makespan(channels=channels)
    twins = tuple(
        twin_instance(seed, num_ops=4 + seed % 2, kinds=list(CLUSTERS[seed % len(CLUSTERS)]))
        for seed in range(200)
    )
    for instance in makespan_draws() + twins:
        for symmetry in (True, False):
            result = run_method(instance, semantics, "moirai", {"symmetry": symmetry})
            optimum = oracle(instance, semantics)
            assert (result.value_ns, result.bound_ns) == (optimum, optimum), instance.name


def test_identical_devices_change_no_optimum() -> None:
    for seed in range(4):
        instance = twin_instance(seed, num_ops=5, kinds=list(CLUSTERS[seed % len(CLUSTERS)]))
        semantics = Makespan(channels=("port", "link")[seed % 2])
        optimum = oracle(instance, semantics)
        for symmetry in (True, False):
            result = run_method(instance, semantics, "moirai", {"symmetry": symmetry})
            assert (result.value_ns, result.bound_ns) == (optimum, optimum), instance.name


@needs_moirai
def test_moirais_example_1_takes_30_ms() -> None:
    # the published optimum, proven from CP-SAT's plan; the published form takes the solver too long
    instance = load_model(SHARED / "instances/moirai/example-1.xls").instance()
    known = run_method(instance, PORT, "cp-sat", {"workers": 1})
    result = run_method(instance, PORT, "moirai", incumbent=known.plan)
    assert result.status == "optimal"
    assert result.value_ns == result.bound_ns == 30_000_000
    published = run_method(instance, PORT, "moirai", {"form": "as_published"}, time_limit_s=0.0)
    # 14 ops, 19 edges, 3 devices, memory rows included; a horizon only makes the strengthened less
    assert (published.details["rows"], published.details["columns"]) == (1760, 362)
    assert int(result.details["rows"]) <= 883
    assert int(result.details["columns"]) <= 451


@needs_moirai
def test_googlenet_has_fewer_rows_than_the_target() -> None:
    # a tenth of the 257,113 rows of the program that Moirai's authors published
    instance = load_model(SHARED / "instances/moirai/GoogLeNet.xls").instance()
    for channels in ("port", "link"):
        semantics = Makespan(channels=channels)
        assert count_rows(instance, semantics, "strengthened") <= 25_711


# ------------------------------------------------------------------------------------------ Pesto


def test_verbatim_starts_from_no_plan_and_proves_nothing() -> None:
    # with a limit of 0 s the solver ends without a plan, and nobody else's is there; with time it
    # finds figure 3's 34, and states its bound as its own
    for limit_s, value_ns in ((0.0, None), (60.0, 34)):
        result = run_method(example(), PORT, "moirai", {"form": "verbatim"}, time_limit_s=limit_s)
        assert (result.value_ns, result.bound_ns) == (value_ns, None)
        assert "proves nothing" in result.message
    published = run_method(example(), PORT, "moirai", {"form": "as_published"}, time_limit_s=0.0)
    assert published.value_ns is not None  # a placer's


FORMS: tuple[Form, ...] = ("as_published", "strengthened")
both_forms = pytest.mark.parametrize("form", FORMS)


@both_forms
def test_it_proves_the_optimum_of_the_graph_as_it_is(form: Form) -> None:
    # FD-DPS, figure 3: 5 + 1 + 20 + 8; merging to 4 ops or more merges nothing
    for num_ops in (None, 4):
        result = run_method(example(), SEMANTICS, "pesto", {"form": form, "num_ops": num_ops})
        assert (result.status, result.value_ns, result.bound_ns) == ("optimal", 34, 34)


@both_forms
def test_a_merged_graph_gives_a_plan_and_no_bound(form: Form) -> None:
    # of the diamond's edges 1 -> 3 is the dearest, 20 ns: op 1 and op 3 are one op of 15. All on
    # one device: 15 + 20 + 8 = 43; op 2 alone elsewhere, 15 + 1 + 20 + 1 + 8 = 45; op 4 with it,
    # 15 + 1 + 20 + 8 = 44. But op 2 may start when op 1 ends: the plan is 43 still.
    result = run_method(example(), SEMANTICS, "pesto", {"form": form, "num_ops": 3})
    assert (result.status, result.value_ns, result.bound_ns) == ("feasible", 43, None)
    assert "merged to 3 ops, so there is no bound" in result.message
    assert "on the merged graph the plan takes 43 ns, with a bound of 43 ns" in result.message
    assert result.details["merged_ops"] == 3


def test_a_plan_of_a_merged_graph_is_expanded_and_judged() -> None:
    instance = layered(24)
    merge = merge_ops(instance, 6)
    result = run_method(instance, SEMANTICS, "pesto", {"num_ops": 6})
    coarse = run_method(merge.coarse, SEMANTICS, "pesto")
    assert result.bound_ns is None
    expanded = evaluate(instance, expand_plan(merge, coarse.plan, SEMANTICS), SEMANTICS)
    assert expanded.feasible
    assert result.value_ns == expanded.value_ns


def test_no_plan_of_a_merged_graph_proves_nothing() -> None:
    # two devices of 4 bytes hold a 2 + c 2 and b 3 + d 1; with a and d merged, of 3 bytes, there
    # are 3 + 3 + 2 left, no two of which fit on one device
    sizes = {"a": 2, "b": 3, "c": 2, "d": 1}
    ops = [Op(name=x, time_ns={"gpu": 1}, resident_bytes=size) for x, size in sizes.items()]
    edges, devices = (
        [Edge(producer="a", consumer="d", bytes=1)],
        draw.devices(["gpu"] * 2, lambda k: 4),
    )
    instance = draw.instance_of("tight", ops, edges, devices, draw.fast_links(devices))
    exact = run_method(instance, SEMANTICS, "pesto")
    assert exact.status == "optimal"
    result = run_method(instance, SEMANTICS, "pesto", {"num_ops": 3})
    assert (result.status, result.plan) == ("no_plan", None)
    assert "which proves nothing about the model" in result.message


@needs_moirai
def test_googlenet_merged_to_60_ops_is_solved() -> None:
    instance = load_model(SHARED / "instances/moirai/GoogLeNet.xls").instance()
    merge = merge_ops(instance, 60)
    result = run_method(instance, SEMANTICS, "pesto", {"num_ops": 60})
    # the merged graph's optimum, 2.0445 ms; the plan is shorter, as ops need not wait for all of
    # the merged op before them
    assert (
        "on the merged graph the plan takes 2044500 ns, with a bound of 2044500 ns"
        in result.message
    )
    assert result.status == "feasible"
    assert result.value_ns <= 2_044_500
    assert formulation.count_rows(merge.coarse, "strengthened") <= 5_404


# ---------------------------------------------------------------------------------- throughput-ip


ADD, OVERLAP = (MaxLoad(plans="any", load=load) for load in ("add", "overlap"))


def agree(instance: Instance, semantics: Semantics, *, start: bool = True) -> None:
    result = run_method(instance, semantics, "throughput-ip", {"start": start})
    best = oracle(instance, semantics)
    assert result.status == ("infeasible" if best is None else "optimal"), instance.name
    assert (result.value_ns, result.bound_ns) == (best, best), instance.name


@pytest.mark.parametrize(
    "semantics",
    [
        MaxLoad(plans="chain"),
        MaxLoadFwdBwd(plans="convex", load="overlap"),
        MaxLoad(plans="any", replicas=True, levels=2),
    ],
    ids=lambda semantics: semantics.label,
)
def test_it_equals_brute_force_without_a_start(
    semantics: MaxLoad | MaxLoadFwdBwd, monkeypatch: pytest.MonkeyPatch
) -> None:
    # test_agreement.py has the large samples; these devices are alike in threes and fours
    monkeypatch.setattr(milps, "STARTS", ())
    staged = semantics == MaxLoad(plans="any", replicas=True, levels=2)
    for instance in (equal_device_draws() if staged else max_load_draws())[::30]:
        agree(instance, semantics, start=False)


def test_a_replicated_plan_may_be_the_start() -> None:
    semantics, instance = MaxLoad(plans="chain", replicas=True), equal_device_draws()[0]
    best = run_method(instance, semantics, "brute-force")
    assert best.plan is not None
    given = best.plan
    result = run_method(instance, semantics, "throughput-ip", time_limit_s=0.0, incumbent=given)
    assert result.value_ns == best.value_ns


@pytest.mark.parametrize("seed", [123, 234])
def test_the_installed_highs_does_not_lose_optima_in_presolve(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # HiGHS 1.14.0 calls larger values optimal on these: 15 and 11
    monkeypatch.setattr(milps, "STARTS", ())
    instance = scattered_instance(seed, num_ops=4, num_devices=2, max_edges=5)
    optimum = {123: 13, 234: 9}[seed]
    assert oracle(instance, ADD) == optimum
    result = run_method(instance, ADD, "throughput-ip", {"start": False})
    assert (result.value_ns, result.bound_ns) == (optimum, optimum)


def test_plans_that_exceed_memory_by_one_byte_are_excluded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Three ops of a little over 10**12 bytes; a device holds one of them, and lacks a few bytes of
    # 2 * 10**12 for two. So one each, the least (1 ns) no better on the slow device: 50.
    excluded = []

    def counted(*arguments: object) -> bool:
        excluded.append(exclude_overload(*arguments))  # type: ignore[arg-type]
        return excluded[-1]

    monkeypatch.setattr("placegap.formulations.shared.families.exclude_overload", counted)
    monkeypatch.setattr(milps, "STARTS", ())
    big = 10**12
    ops = tuple(
        Op(name=f"op{i}", time_ns={"gpu": time, "cpu": 50}, resident_bytes=big + extra)
        for i, (time, extra) in enumerate(((9, 1), (5, 3), (1, 5)))
    )
    devices = draw.devices(["gpu", "gpu", "cpu"], lambda k: 2 * big)
    instance = draw.instance_of("tight", ops, (), devices)
    result = run_method(instance, ADD, "throughput-ip", {"start": False})
    assert (result.status, result.value_ns) == ("optimal", 50)
    assert any(excluded)


@needs_dnn_partitioning
def test_operator_bert_3_is_solved_to_a_millionth() -> None:
    # 21.908377 ms: Tarnawski et al.'s operator graph of BERT-3, inference, 3 accelerators, 1 CPU;
    # the best known split has 21.9084, its bound 21.9062; the contiguous optimum is 27.9186
    path = SHARED / "instances/dnn-partitioning/throughput-inputs/OperatorGraphs"
    instance = load_model(path / "bert_l-3_inference.json").instance()
    result = run_method(instance, ADD, "throughput-ip", gap=1e-5, time_limit_s=60)
    assert result.status == "gap_met"
    assert result.bound_ns <= 21_908_377 <= result.value_ns <= 21_908_377 * (1 + 1e-5)


@pytest.mark.parametrize(("parameter_bytes", "start"), [(10**4, True), (10**12, False)])
def test_weights_too_large_to_synchronise_do_not_blunt_the_bound(
    parameter_bytes: int, start: bool
) -> None:
    # A unit of time that fits the synchronisation of all weights leaves nothing of 26 ns: the
    # model's optimum of 0 units was said to be proven, with a bound of 0.
    sizes = (parameter_bytes, 2 * parameter_bytes, parameter_bytes // 2, parameter_bytes)
    ops = tuple(
        Op(name=f"op{i}", time_ns={"gpu": 5 + i}, resident_bytes=size, parameter_bytes=size)
        for i, size in enumerate(sizes)
    )
    devices, links = draw.devices(["gpu"] * 3), draw.links(3, lambda a, b: (10**6, 0))
    instance = draw.instance_of("weights", ops, draw.row(ops, devices).graph.edges, devices, links)
    # 5, 6, 7 and 8 ns on three devices: 11, 7 and 8, and replicas would take milliseconds
    result = run_method(
        instance, MaxLoad(plans="any", replicas=True), "throughput-ip", {"start": start}
    )
    assert (result.status, result.value_ns, result.bound_ns) == ("optimal", 11, 11)
