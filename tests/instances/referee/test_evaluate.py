"""The referee judges every plan by the same rules."""

from __future__ import annotations

import pytest

from placegap.instances import Makespan, MaxLoad, Plan, evaluate, example
from placegap.instances.problem.memory_pressure import with_device_memory


@pytest.mark.parametrize("channels", ["free", "link", "port", "half_duplex"])
@pytest.mark.parametrize(("placement", "expected"), [([0, 0, 1, 0], 53), ([0, 1, 0, 0], 35)])
def test_fd_dps_figure_3(channels: str, placement: list[int], expected: int) -> None:
    # paper-notes: op 2 on device 0 and op 3 on device 1 end at 53, the other way round at 35
    semantics = Makespan(channels=channels)  # type: ignore[arg-type]
    assert evaluate(example(), Plan.on(placement), semantics).value_ns == expected


def test_a_plan_that_breaks_memory_has_a_value_but_is_not_feasible() -> None:
    base = example()
    ops = tuple(op.model_copy(update={"resident_bytes": 1}) for op in base.graph.ops)
    heavy = base.with_graph(base.graph.model_copy(update={"ops": ops}))
    tight = with_device_memory(heavy, 0.5)  # 2 of 4 bytes
    verdict = evaluate(tight, Plan.on([0] * 4), Makespan())
    assert (verdict.value_ns, verdict.feasible) == (43, False)


def test_idle_devices_are_named() -> None:
    verdict = evaluate(example(), Plan.on([0] * 4), MaxLoad(plans="any"))
    assert verdict.idle_devices == ("gpu1",)
