"""CP-SAT proves optimal makespans, returns what it has when stopped, and never less than it got."""

import os
import signal
import threading

import pytest
from draws import draw
from draws.tiny import SHARED, needs_moirai, tiny_instance
from ortools.sat.python import cp_model
from references.brute_force import MAKESPAN_SEMANTICS, makespan_draws, oracle

from placegap.instances import Edge, InputError, Instance, Makespan, Op, Plan, Semantics, example
from placegap.instances.importers.reader import load_model
from placegap.solvers import run_method
from placegap.solvers.models import cp_sat

PORT = Makespan()
ONE = {"workers": 1}


@pytest.mark.parametrize(
    "semantics", MAKESPAN_SEMANTICS[::3], ids=lambda semantics: semantics.label
)
def test_it_equals_brute_force_without_a_start(semantics: Semantics) -> None:
    for instance in makespan_draws()[::10]:  # with one: test_agreement.py
        best = oracle(instance, semantics)
        result = run_method(instance, semantics, "cp-sat", {**ONE, "start": False})
        if best is None:
            assert (result.status, result.plan, result.bound_ns) == ("infeasible", None, None)
        else:
            assert (result.status, result.value_ns, result.bound_ns) == ("optimal", best, best)


def test_stopped_at_once_it_returns_its_start_and_a_valid_bound() -> None:
    gaps = 0
    for number, instance in enumerate(makespan_draws()[::8]):
        semantics = MAKESPAN_SEMANTICS[number % len(MAKESPAN_SEMANTICS)]
        best = oracle(instance, semantics)
        result = run_method(instance, semantics, "cp-sat", ONE, time_limit_s=0.0)
        if best is None:
            assert result.plan is None
        elif result.value_ns is not None and result.bound_ns is not None:
            assert result.bound_ns <= best <= result.value_ns
            gaps += result.bound_ns < result.value_ns
    assert gaps > 0


def hard() -> Instance:
    """60 ops on 4 devices: minutes away from a proof."""
    return tiny_instance(6, num_ops=60, num_devices=4, density=0.06)


def test_a_time_limit_is_kept_and_the_plan_is_no_worse_than_the_placers() -> None:
    result = run_method(hard(), PORT, "cp-sat", ONE, time_limit_s=1.0)
    assert result.build_s + result.solve_s < 30  # however slow the machine
    assert result.status == "feasible"
    assert result.message.startswith("time limit of 1 s reached")
    placers = [run_method(hard(), PORT, name).value_ns for name in ("heft", "peft", "etf")]
    assert result.bound_ns < result.value_ns <= min(v for v in placers if v is not None)


def test_an_incumbent_is_never_lost() -> None:
    # The optimum, 34, as incumbent; without it the placers start at 35 or more.
    best = run_method(example(), PORT, "brute-force").plan
    params = {**ONE, "start": False}
    stopped = run_method(example(), PORT, "cp-sat", params, time_limit_s=0.0, incumbent=best)
    assert stopped.value_ns == 34
    # one that breaks a rule, here of two bytes for all, is none
    tight = draw.with_ops(example(), resident_bytes=[1] * 4)
    tight = draw.with_devices(tight, memory_bytes=[2, 3])
    found = run_method(tight, PORT, "cp-sat", params, incumbent=Plan.on([0] * 4))
    assert found.value_ns == oracle(tight, PORT)


def test_the_requested_gap_ends_the_search() -> None:
    # all on one device takes 43 (5 + 20 + 10 + 8), the longest path 5 + 20 + 8 = 33 of it
    result = run_method(example(), PORT, "cp-sat", ONE, gap=0.5)
    assert result.status in ("gap_met", "optimal")
    assert result.gap <= 0.5


def test_several_workers_find_the_same_value() -> None:
    for instance in makespan_draws()[6:60:18]:
        found = run_method(instance, PORT, "cp-sat", {"workers": 2})
        assert found.value_ns == oracle(instance, PORT)


def test_an_interrupt_ends_the_search_and_keeps_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    real = cp_model.CpSolver.solve

    def interrupted(solver: object, model: object) -> object:
        alarm = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        alarm.start()
        try:
            return real(solver, model)  # type: ignore[arg-type]
        finally:
            alarm.cancel()

    monkeypatch.setattr(cp_model.CpSolver, "solve", interrupted)
    result = run_method(hard(), PORT, "cp-sat", ONE, time_limit_s=60.0)
    assert result.status == "feasible"
    assert result.solve_s < 30


def test_ctrl_c_is_pythons_again_after_a_solve() -> None:
    before = signal.getsignal(signal.SIGINT)
    run_method(example(), PORT, "cp-sat", ONE)
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):  # CP-SAT's own handler would have ended the process
        signal.raise_signal(signal.SIGINT)


def test_a_model_that_is_too_large_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cp_sat, "MOST_PARTS", 10)
    with pytest.raises(InputError, match="above 10"):
        run_method(example(), PORT, "cp-sat")  # 4 ops x 2 devices + 4 edges x 4 pairs


@needs_moirai
def test_moirais_example_1_takes_30_ms() -> None:
    # reference: 30, against 31 of the hand-made schedule in the workbook
    document = load_model(SHARED / "instances" / "moirai" / "example-1.xls")
    result = run_method(document.instance(), PORT, "cp-sat", ONE)
    assert (result.value_ns, result.bound_ns) == (30_000_000, 30_000_000)


@pytest.mark.parametrize(("method", "start"), [("cp-sat", True), ("decomposition", False)])
def test_the_unit_of_time_follows_from_the_horizon_in_use(method: str, start: bool) -> None:
    # 3, 5 and 7 ns on two fast devices: 8 at best; whatever runs on the slow one takes 1e12
    # and a bit. Without a start the first horizon is the slow one's serial time.
    ops = tuple(
        Op(name=f"op{i}", time_ns={"fast": time, "slow": 10**12 + time}, resident_bytes=time)
        for i, time in enumerate((3, 5, 7))
    )
    devices = draw.devices(["fast", "fast", "slow"], (8, 8, None).__getitem__)
    instance = draw.instance_of("slow-device", ops, (), devices)
    result = run_method(instance, PORT, method, {**ONE, "start": start})
    assert (result.status, result.value_ns, result.bound_ns) == ("optimal", 8, 8)


TIMES_NS = {
    "a": {"cpu": 416_007_965_562_206, "gpu": 1_087_080_903_021_551},
    "b": {"cpu": 511_725_344_119_490, "gpu": 592_791_276_963_581},
}
MOVES_NS = (
    (672_152_779_035_297, 469_488_858_041_300, 387_511_990_666_013),
    (569_655_427_321_917, 250_144_891_968_077, 624_519_914_541_446),
    (623_852_546_255_215, 654_329_123_583_696, 178_834_149_324_656),
)


@pytest.mark.parametrize("shift", [0, 9, 18])
def test_times_of_any_size_give_sound_bounds(shift: int) -> None:
    # With times of more than about 2**35 units CP-SAT took this instance for infeasible.
    ops = tuple(
        Op(
            name=name,
            time_ns={kind: time >> shift for kind, time in times.items()},
            resident_bytes=6 if name == "a" else 1,
        )
        for name, times in TIMES_NS.items()
    )
    matrix = tuple(tuple(time >> shift for time in row) for row in MOVES_NS)
    devices = draw.devices(["gpu", "cpu", "cpu"], (18, 4, None).__getitem__)
    edges = [Edge(producer="a", consumer="b", transfer_ns=matrix)]
    instance = draw.instance_of("large-times", ops, edges, devices)
    semantics = Makespan(channels="link", transfers="per_tensor")
    optimum = oracle(instance, semantics)
    found = run_method(instance, semantics, "cp-sat", {**ONE, "start": False})
    assert found.bound_ns <= optimum <= found.value_ns
    assert found.value_ns - found.bound_ns <= optimum * 1e-6  # rounding to units, nothing else
