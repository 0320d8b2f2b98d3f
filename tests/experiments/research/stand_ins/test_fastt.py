"""FastT: DPOS by its definition, and splits that pay."""

import pytest
from draws import draw
from draws.splittable import splittable_diamond, splittable_instance
from references.placers import table_instance

from placegap.instances import Instance, Makespan
from placegap.instances.transforms.op_splitting import Cut
from placegap.solvers import Task, run_method
from placegap.solvers.core.clock import Clock
from placegap.solvers.core.method import Limits

FREE = Makespan(channels="free")
PORT = Makespan(channels="port")


def chain(*bytes_of: int, memory: tuple[int | None, int | None]) -> Instance:
    """A chain of ops, twice as fast on p1 as on p2."""
    edges = ", ".join(f"{i}-{i + 1} 1" for i in range(1, len(bytes_of)))
    drawn = table_instance([(1, 2)] * len(bytes_of), edges)
    return draw.with_devices(draw.with_ops(drawn, resident_bytes=bytes_of), memory_bytes=memory)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ((None, None), {0: 0, 1: 0, 2: 0}),  # all on the faster device
        ((4, None), {0: 1, 1: 1, 2: 1}),  # which does not hold the path: on the other, whole
        ((4, 3), {0: 0, 1: 0, 2: 1}),  # neither does: the longest stretch, and then the next
        ((1, 3), {0: 1, 2: 0}),  # no room for the second (here 3 bytes) beside the first
    ],
)
def test_the_path_goes_to_the_device_that_runs_it_in_the_least_time_within_memory(
    memory: tuple[int | None, int | None], expected: dict[int, int]
) -> None:
    from placegap.experiments.research.stand_ins.fastt import path_devices

    sizes = (2, 2, 1) if memory != (1, 3) else (2, 3, 1)
    assert path_devices(chain(*sizes, memory=memory).arrays, [0, 1, 2]) == expected


def test_a_split_is_kept_only_if_the_makespan_falls() -> None:
    from placegap.experiments.research.stand_ins.fastt import FastTParams, improvements, place

    task = Task(splittable_diamond(), FREE)
    first = place(task, {})
    assert first.value_ns == 43
    values = [first.value_ns]
    for found in improvements(task, FastTParams(), first, Clock(None)):
        values.append(found.value_ns)
    assert values == sorted(set(values), reverse=True)
    # op 3 is tried first (10 ns, the dearest of the path 1-3-4), then 4 and 1
    assert place(task, {2: Cut("batch", 2)}).value_ns == 38
    assert run_method(task.instance, FREE, "fastt").value_ns == values[-1] == 38


def test_it_is_never_worse_than_dpos_and_sometimes_better() -> None:
    better = 0
    for seed in range(11, 21):
        instance = splittable_instance(seed, num_ops=8)
        whole = run_method(instance, PORT, "fastt", {"patience": 0})
        assert whole.split is None
        result = run_method(instance, PORT, "fastt")
        if whole.value_ns is None:
            assert result.value_ns is None
            assert result.message == whole.message
            continue
        assert result.value_ns <= whole.value_ns
        assert (result.split is not None) == (result.value_ns < whole.value_ns)
        better += result.split is not None
    assert better >= 2


def test_when_the_time_is_over_the_best_plan_so_far_comes_back() -> None:
    result = run_method(splittable_diamond(), FREE, "fastt", time_limit_s=0.0)
    assert (result.value_ns, result.split) == (43, None)
    assert result.message == "the time limit has passed"


def test_ctrl_c_keeps_the_best_plan_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    from placegap.experiments.research.stand_ins import fastt as module

    def interrupted(*_: object) -> object:
        yield module.place(Task(splittable_diamond(), FREE), {2: Cut("batch", 2)})
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "improvements", interrupted)
    outcome = module.fastt(Task(splittable_diamond(), FREE, Limits(10.0)), module.FastTParams())
    assert outcome.split is not None
    assert outcome.message.startswith("stopped; the plan of another instance")
