"""The ideal DP: optimal among all chains of ideals, and honest about limits."""

import csv
from functools import cache
from itertools import count

import pytest
from draws import draw
from draws.chains import best_chain, best_chain_of_ideals, chain_instance, wide_instance
from draws.tiny import SHARED, needs_dnn_partitioning
from references.agreement import proves
from references.brute_force import oracle

from placegap.instances import Device, Edge, Instance, MaxLoad, Op, Plan, Semantics, example
from placegap.instances.importers.reader import load_model
from placegap.solvers import Result, run_method
from placegap.solvers.chains import bracket as ideal_bracket

CHAIN = MaxLoad(plans="chain")
OVERLAP = MaxLoad(plans="chain", load="overlap")


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run over few ideals comes first: `test_any_kinds` has it, and all methods' tests."""
    monkeypatch.setattr(ideal_bracket, "FEW", 0)


def dp(instance: Instance, semantics: Semantics = CHAIN, **limits: object) -> Result:
    return run_method(instance, semantics, "ideal-dp", **limits)  # type: ignore[arg-type]


@cache
def draws() -> tuple[tuple[Instance, int | None, int | None], ...]:
    """60 instances with their optima (add, overlap); 3 at most are infeasible."""
    found, infeasible = [], 0
    for seed in count():
        instance = chain_instance(seed)
        values = best_chain(instance), best_chain(instance, overlap=True)
        infeasible += values[0] is None
        if values[0] is not None or infeasible <= 3:
            found.append((instance, *values))
        if len(found) == 60:
            return tuple(found)
    raise AssertionError("count ends")


def test_the_diamond_splits_into_1_3_and_2_4() -> None:
    # 5 + 10 + 1 + 10 and 20 + 8 + 1 + 10 ns; all on one device take 43 ns
    result = dp(example())
    assert result.plan == Plan.on([0, 1, 0, 1])
    proves(result, 39)


def test_it_equals_the_enumeration_of_all_chains() -> None:
    by_dp = 0
    for instance, added, overlapped in draws():
        for semantics, optimum in ((CHAIN, added), (OVERLAP, overlapped)):
            result = dp(instance, semantics)
            proves(result, optimum)
            by_dp += result.bound_origin == "ideal-dp"
    assert by_dp > 20


def test_the_enumeration_of_all_chains_equals_brute_force_over_assignments() -> None:
    for instance, added, overlapped in draws()[:20]:
        assert (oracle(instance, CHAIN), oracle(instance, OVERLAP)) == (added, overlapped)


@pytest.mark.parametrize("bisection", [0.0, 1.0])
def test_the_search_alone_finds_the_optimum(
    monkeypatch: pytest.MonkeyPatch, bisection: float
) -> None:
    """Without slices; by decisions only, or by one run for the value."""
    monkeypatch.setattr(ideal_bracket.Bracket, "cut", lambda bracket, max_ideals: None)
    monkeypatch.setattr(ideal_bracket, "BISECTION", bisection)
    for instance, added, overlapped in draws()[::3]:
        proves(dp(instance), added)
        proves(dp(instance, OVERLAP), overlapped)


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(100, 400), marks=pytest.mark.deep)])
def test_sets_of_more_than_64_blocks_and_nets_work(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds:
        instance = wide_instance(seed)
        optimum = best_chain_of_ideals(instance)
        proves(dp(instance), optimum)
        with monkeypatch.context() as patch:
            patch.setattr(ideal_bracket.Bracket, "cut", lambda bracket, max_ideals: None)
            proves(dp(instance), optimum)


def test_with_too_many_ideals_the_bound_and_the_value_enclose_the_optimum() -> None:
    stopped = 0
    for instance, optimum, _ in draws()[1::2]:
        result = dp(instance, params={"max_ideals": 3})
        if result.status == "optimal" or optimum is None:
            continue
        stopped += 1
        assert "more than 3 ideals" in result.message
        assert result.bound_ns <= optimum
        assert result.value_ns is None or optimum <= result.value_ns
    assert stopped >= 2


def test_where_ideals_fill_the_memory_lower_limits_are_decided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = parallel_chains(4, 6)
    optimum = dp(instance).value_ns
    monkeypatch.setattr(ideal_bracket, "bytes_per_ideal", lambda book: 1)
    bounds = []
    for room in (20, 60, 140):  # of 264 ideals for loads below that of the best order
        monkeypatch.setattr(ideal_bracket, "MOST_BYTES", room)
        result = dp(instance)
        assert f"{room} ideals fill the memory" in result.message
        assert result.bound_origin == "ideal-dp"
        assert result.bound_ns <= optimum <= result.value_ns
        bounds.append(result.bound_ns)
    assert bounds[0] < bounds[1] < bounds[2] == optimum


def test_it_stops_at_the_time_limit() -> None:
    # 11 ** 7 ideals
    dp(parallel_chains(2, 3))
    result = dp(parallel_chains(7, 10), time_limit_s=0.2, params={"max_ideals": 10**9})
    assert result.status == "feasible"
    assert result.solve_s + result.build_s < 30  # hours without a limit, however busy the machine


def test_it_stops_at_the_gap_that_suffices() -> None:
    instance = parallel_chains(3, 8)
    exact, near = dp(instance), dp(instance, gap=0.5)
    assert exact.status == "optimal"
    assert near.status == "gap_met"
    assert near.bound_ns <= exact.value_ns <= near.value_ns  # type: ignore[operator]


def test_a_good_incumbent_is_kept() -> None:
    instance = parallel_chains(4, 6)
    best, worse = dp(instance), dp(instance, params={"max_ideals": 2})
    assert worse.value_ns > best.value_ns  # type: ignore[operator]
    again = dp(instance, params={"max_ideals": 2}, incumbent=best.plan)
    assert again.value_ns == best.value_ns


def test_hosts_alone_and_accelerators_alone_work() -> None:
    for hosts in (True, False):
        instance = line([4, 4, 4, 4], draw.devices("xx", hosts=2 * hosts))
        # the accelerators pay 1 ns each for the tensor between them
        proves(dp(instance), 8 if hosts else 9)


def test_memory_of_hosts_counts() -> None:
    devices = [Device(name=k, kind="x", memory_bytes=2, is_host=k == "h") for k in "gh"]
    proves(dp(line([1, 1, 1, 9], devices)), 10)
    proves(dp(line([1, 1, 1, 1, 1], devices)), None)


TWO = draw.devices("xx", lambda k: 2)


def test_an_op_that_fits_nowhere_is_named() -> None:
    for ops, devices, word in ((2, draw.devices("x", lambda k: 0), "'op0'"), (5, TWO, "memory")):
        result = dp(line([1] * ops, devices))
        assert result.status == "infeasible"
        assert word in result.message


def test_unequal_devices_are_taken_by_the_engine_for_any_devices() -> None:
    # y takes 1 ns more per op; two ops each: 8 + 1 and 10 + 1; three and one: 12 + 1 and 5 + 1
    devices = [Device(name="d0", kind="x"), Device(name="d1", kind="y")]
    result = dp(line([4, 4, 4, 4], devices))
    assert result.details["kinds"] == 2
    proves(result, 11)


def rows() -> list[dict[str, str]]:
    table = SHARED / "reference" / "dnn-partitioning.csv"
    return list(csv.DictReader(table.open()))[::3] if table.is_file() else []


@needs_dnn_partitioning
@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"].removesuffix(".json"))
def test_published_optima_are_reproduced(row: dict[str, str]) -> None:
    """To 1e-6: the optima are in ms, the instance in whole ns."""
    document = load_model(SHARED / "instances" / "dnn-partitioning" / row["file"])
    result = dp(document.instance())
    assert result.status == "optimal"
    assert result.value_ns == pytest.approx(float(row["contiguous_max_load"]) * 1e6, rel=1e-6)
    assert result.details["ideals"] == int(row["ideals"])


@pytest.mark.deep
@pytest.mark.parametrize("start", range(1000, 9000, 1000))
def test_it_equals_the_enumeration_of_thousands_of_chains(start: int) -> None:
    for seed in range(start, start + 1000):
        instance = chain_instance(seed)
        proves(dp(instance), best_chain(instance))
        proves(dp(instance, OVERLAP), best_chain(instance, overlap=True))


def line(times: list[int], devices: list[Device]) -> Instance:
    """Ops of one byte in a row; every tensor takes 1 ns to or from a host."""
    ops = [
        Op(name=f"op{i}", time_ns={"x": t, "y": t + 1}, resident_bytes=1)
        for i, t in enumerate(times)
    ]
    edges = draw.row(ops, devices, host_time_ns=1).graph.edges
    return draw.instance_of("line", ops, edges, devices)


def parallel_chains(chains: int, length: int) -> Instance:
    """Chains without edges between them: (length + 1) ** chains ideals; times without a pattern."""
    total = range(chains * length)
    ops = [Op(name=f"op{i}", time_ns={"x": 3 + i * i * 7 % 23}) for i in total]
    edges = [
        Edge(producer=f"op{i}", consumer=f"op{i + 1}", host_time_ns=1 + i * 5 % 11)
        for i in total
        if (i + 1) % length
    ]
    return draw.instance_of(f"chains-{chains}-{length}", ops, edges, draw.devices("xxxx"))
