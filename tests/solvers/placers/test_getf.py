"""GETF: ops stay in the group of devices that the LP is rounded to."""

import pytest
from draws import draw
from draws.tiny import tiny_instance
from references.placers import table_instance

from placegap.formulations.shared.devices import groups_with_a_choice
from placegap.instances import Instance, Makespan
from placegap.solvers import Task
from placegap.solvers.core.back_ends.outcome import MipOutcome
from placegap.solvers.placers.earliest_start import etf
from placegap.solvers.placers.getf import GetfParams, getf

FREE = Makespan(channels="free")


def with_memory(instance: Instance, size: int, memory: tuple[int, ...]) -> Instance:
    """The instance with ops of so many bytes, and devices that hold so many."""
    sized = draw.with_ops(instance, resident_bytes=[size] * instance.num_ops)
    return draw.with_devices(sized, memory_bytes=memory)


@pytest.mark.parametrize("groups", ["auto", "columns"])
def test_a_chain_goes_to_the_fast_device_that_earliest_starts_overlook(groups: str) -> None:
    # p2 is ten times faster. ETF starts T1 on p1, the first of equals, and T2 behind it; the LP's
    # makespan is the chain's time on p2, with all ops there
    instance = table_instance(((100, 10), (100, 10)), "1-2 5")
    params = GetfParams.model_validate({"groups": groups})
    plan, slow = getf(Task(instance, FREE), params).plan, etf(Task(instance, FREE)).plan
    assert plan.placement == ((1,), (1,))
    assert slow.placement == ((0,), (0,))


def test_with_one_group_of_devices_it_is_etf() -> None:
    drawn = draw.with_ops(tiny_instance(1, num_ops=20, num_devices=3), time_ns=[{"gpu0": 3}] * 20)
    instance = draw.with_devices(drawn, kind=["gpu0"] * 3)
    outcome = getf(Task(instance, FREE))
    assert outcome.plan == etf(Task(instance, FREE)).plan
    assert "rows" not in outcome.details


def test_devices_that_are_all_unlike_are_grouped_by_mean_speed() -> None:
    # No speeds explain the times of three devices. In all, an op takes 11, 12 and 50: the first two
    # are within a factor of 2, and which of them has an op is ETF's choice.
    instance = table_instance(((4, 6, 25), (7, 6, 25)), "1-2 100")
    groups = groups_with_a_choice(instance)
    assert groups.devices == ((2,), (0, 1))
    assert groups.speed.tolist() == pytest.approx([1, 11 / 12, 11 / 50])
    # one device each, T2 would go to p2, behind a transfer of 100 for the 1 that it saves
    params = GetfParams(groups="columns")
    assert getf(Task(instance, FREE), params).plan.placement == ((0,), (1,))
    assert getf(Task(instance, FREE)).plan.placement == ((0,), (0,))


def test_ops_without_room_in_their_group_go_to_another() -> None:
    # Three ops of 2 bytes: rounding half of each share up, p2 (4 times faster, 5 bytes) gets more
    # than the two that it holds
    drawn = table_instance(((4, 1), (4, 1), (4, 1)), "1-2 1, 2-3 1")
    outcome = getf(Task(with_memory(drawn, 2, (9, 5)), FREE))
    assert sorted(outcome.plan.devices.tolist()) == [0, 1, 1]
    assert outcome.details["moved"] == 1


def test_too_little_memory_is_proven_by_the_lp() -> None:
    drawn = table_instance(((4, 1), (4, 1), (4, 1)), "1-2 1")
    outcome = getf(Task(with_memory(drawn, 2, (3, 2)), FREE), GetfParams())
    assert outcome.plan is None
    assert outcome.proven_infeasible


def test_without_time_for_the_lp_it_is_etf(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain whose LP would choose p2: without it, earliest starts decide."""
    over = MipOutcome("time_limit")
    monkeypatch.setattr("placegap.solvers.placers.getf.solve_model", lambda *_, **__: over)
    instance = table_instance(((100, 10), (100, 10)), "1-2 5")
    outcome = getf(Task(instance, FREE))
    assert outcome.plan == etf(Task(instance, FREE)).plan
    assert outcome.message == "no groups of devices: time limit reached"
