"""m-SCT's LP has the published rows and rounding; truncated, it bounds every makespan."""

import random

import pyomo.environ as pyo
import pytest
from features.makespan import anywhere, instance, pinned
from references.brute_force import makespan_draws, oracle

from placegap.formulations import m_sct
from placegap.formulations.m_sct import SctTimes, truncate
from placegap.instances import Instance, Makespan
from placegap.solvers import Limits
from placegap.solvers.core.back_ends import solve_model

FREE = Makespan(channels="free")


def solved(case: Instance, form: m_sct.Form = "as_published") -> tuple[pyo.ConcreteModel, float]:
    """The solved model, and its optimum in ns."""
    model = m_sct.build(case, FREE, form=form)
    found = solve_model(model, Limits())
    assert found.objective is not None
    return model, found.objective * float(pyo.value(model.unit_ns))


def fork(*, move: int = 2) -> Instance:
    """a takes 2 and hands b, which takes 3, and c, which takes 4, a tensor each."""
    ops = [anywhere("a", 2), anywhere("b", 3), anywhere("c", 4)]
    return instance("fork", ops, [("a", "b", move), ("a", "c", move)])


def test_a_fork_has_one_favourite() -> None:
    # x_ab + x_ac >= 1; b ends at 2 + 2 x_ab + 3, c at 2 + 2 x_ac + 4. With x_ab = 1 - x_ac both end
    # at 6.5 for x_ac = 1/4: c is the favourite. (The best schedule has 7: b arrives at 4.)
    model, optimum = solved(fork())
    assert optimum == pytest.approx(6.5)
    assert model.apart["a", "c"].value == pytest.approx(0.25)
    assert m_sct.extract(model, fork()) == [2, None, None]
    assert m_sct.extract(model, fork(), threshold=0.1) == [None, None, None]
    assert oracle(fork(), FREE) == 7


def test_a_changed_transfer_is_solved_anew() -> None:
    # b ends at 7 - 2 x_ac, and c, whose transfer takes 4 now, at 6 + 4 x_ac: x_ac = 1/6
    model, _ = solved(fork())
    model.least_transfer_ns["a", "c"] = 4
    assert solve_model(model, Limits()).ending == "optimal"
    assert pyo.value(model.makespan_ns) == pytest.approx(6 + 4 / 6)


def test_what_truncated_transfers_rest_on_may_only_grow() -> None:
    model, _ = solved(fork(move=20), "truncated")
    model.least_ns["b"] = 9
    with pytest.raises(ValueError, match="least_ns"):
        model.least_ns["b"] = 2
    with pytest.raises(TypeError):
        model.least_transfer_ns["a", "c"] = 1


def test_times_do_not_depend_on_devices() -> None:
    # a runs on d0 only: the cheapest pair from there is d0 -> d1, 7 + 3 ns; b takes 4 or 6
    fast = anywhere("b", 4).model_copy(update={"time_ns": {"kind0": 6, "kind1": 4}})
    case = instance("least", [pinned("a", 0, 2), fast], [("a", "b", 3)], latency_ns=7)
    assert m_sct.sct_times(case) == SctTimes([2, 4], {(0, 1): 10})


@pytest.mark.parametrize(("move", "small"), [(0, True), (2, True), (3, False)])
def test_communication_is_small_if_no_transfer_exceeds_any_op(move: int, small: bool) -> None:
    assert m_sct.is_sct(fork(move=move)) == small


def test_transfers_are_cut_to_siblings_and_fellow_parents() -> None:
    # op 0 (9 ns) feeds 2 (1 ns) and 3 (5 ns), op 1 (4 ns) feeds 3. Edge 0 -> 2: its sibling 3 takes
    # 5; 0 -> 3: sibling 2 takes 1, fellow parent 1 takes 4; 1 -> 3: fellow parent 0 takes 9
    times = SctTimes([9, 4, 1, 5], {(0, 2): 7, (0, 3): 7, (1, 3): 7})
    assert truncate(times).move_ns == {(0, 2): 5, (0, 3): 1, (1, 3): 7}


def test_without_small_communication_the_published_value_bounds_nothing() -> None:
    # b and c after a on its device end at 2 + 3 + 4; with a transfer of 20, x_ab + x_ac >= 1 makes
    # the published LP wait. Cut to c's 4 and b's 3 ns, the LP ends at 5 + 4 x = 6 + 3 (1 - x),
    # x = 4/7
    case = fork(move=20)
    assert oracle(case, FREE) == 9
    assert solved(case)[1] > 15
    assert solved(case, "truncated")[1] == pytest.approx(5 + 16 / 7)


def test_truncated_it_bounds_every_makespan() -> None:
    # free channels have the least optimum: other channels only delay
    tight = 0
    for case in makespan_draws()[::5]:
        best = oracle(case, FREE)
        if best is not None:
            value = solved(case, "truncated")[1]
            assert value <= best + 1e-6
            tight += value > best - 1e-6
    assert tight > 0


def test_with_small_communication_times_the_published_model_bounds_every_makespan() -> None:
    rng = random.Random(11)
    for number in range(8):
        ops = [anywhere(f"o{i}", rng.randrange(3, 9)) for i in range(5)]
        pairs = [(a, b) for a in range(5) for b in range(a + 1, 5) if rng.random() < 0.5]
        edges = [(f"o{a}", f"o{b}", rng.randrange(4)) for a, b in pairs]
        case = instance(f"small-{number}", ops, edges, devices=rng.choice([2, 3]))
        best = oracle(case, FREE)
        assert m_sct.is_sct(case)
        assert best is not None
        assert solved(case)[1] <= best + 1e-6


def test_later_edges_override_earlier_ones() -> None:
    # favourites by x: a -> c, b -> c, b -> e in this order. b takes c over from a, then turns to e,
    # and c is nobody's
    ops = [anywhere(op, 1) for op in "abce"]
    case = instance("override", ops, [("a", "c", 1), ("b", "c", 1), ("b", "e", 1)])
    model = m_sct.build(case, FREE)
    for variable in model.component_data_objects(pyo.Var):
        variable.set_value(0)
    assert m_sct.extract(model, case, check=False) == [None, 3, None, None]
    model.apart["b", "e"].set_value(1)
    assert m_sct.extract(model, case, check=False) == [None, 2, None, None]
