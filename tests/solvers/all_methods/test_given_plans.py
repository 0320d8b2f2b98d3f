"""expert and data-parallel: plans that are given, or have no choice."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from draws import draw
from draws.tiny import SHARED, needs_dnn_partitioning

from placegap.instances import Instance, Makespan, MaxLoad, Op, Plan, example, save_plan
from placegap.instances.importers.reader import load_model
from placegap.solvers import run_method
from placegap.solvers.placers.baselines import expert as _expert  # noqa: F401 - it registers itself

ANY = MaxLoad(plans="any")
MAKESPAN = Makespan()
REPLICAS = MaxLoad(plans="any", replicas=True)


def test_a_plan_file_is_judged_as_it_is(tmp_path: Path) -> None:
    path, plan = tmp_path / "plan.json", Plan.on([0, 1, 0, 0], [[0, 2, 3], [1]])
    save_plan(example(), plan, MAKESPAN, path)
    result = run_method(example(), MAKESPAN, "expert", {"path": str(path)})
    assert (result.plan, result.value_ns) == (plan, 35)
    # under another semantics only the placement counts: 5 + 10 + 8 and what op 2 gets and gives,
    # 1 + 1, on device 0
    result = run_method(example(), ANY, "expert", {"path": str(path)})
    assert (result.plan, result.value_ns) == (replace(plan, device_order=None), 25)


def test_a_split_file_may_be_followed_by_messages(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    path.write_text('{"fpgas": [{"nodes": [0]}], "cpus": []}\nFAIL: different maxLoad')
    one = draw.instance_of("one", [Op(name="0", time_ns={"g": 4})], (), draw.devices("g"))
    assert run_method(one, ANY, "expert", {"path": str(path)}).value_ns == 4


@needs_dnn_partitioning
def test_human_experts_have_their_recorded_values() -> None:
    folder, compared = SHARED / "instances" / "dnn-partitioning", 0
    with (SHARED / "reference" / "dnn-partitioning.csv").open() as table:
        for row in csv.DictReader(table):
            file = Path(row["file"]).stem + "_expert.json"
            split = folder / "human-experts" / file
            if row["human_expert"] and split.exists():
                instance = load_model(folder / row["file"]).instance()
                value = run_method(instance, ANY, "expert", {"path": str(split)}).value_ns
                assert value / 1e6 == pytest.approx(float(row["human_expert"]), rel=1e-6)
                compared += 1
    assert compared == 6


def two(kinds: str, memory_bytes: int | None = None) -> Instance:
    """Two independent ops."""
    ops = (
        Op(name="a", time_ns={"g": 10, "h": 30}, resident_bytes=3, parameter_bytes=3),
        Op(name="b", time_ns={"g": 21, "h": 30}, resident_bytes=3, parameter_bytes=2),
    )
    links = draw.links(len(kinds), lambda a, b: (10**9, 0))
    return draw.instance_of("two", ops, (), draw.devices(kinds, lambda k: memory_bytes), links)


def test_all_equal_devices_share_the_samples_and_sum_up_the_weights() -> None:
    # ceil(31 / 3) + ceil(2 * 2 * 5 bytes / (3 * 1 byte per ns)) = 11 + 7
    result = run_method(two("ggg"), REPLICAS, "data-parallel")
    assert (result.plan.placement, result.value_ns) == (((0, 1, 2),) * 2, 18)


def test_of_several_classes_the_best_is_taken() -> None:
    # two g: ceil(31 / 2) + ceil(2 * 5 / 2) = 21; three h: 60 / 3 + 7 = 27
    result = run_method(two("hghgh"), REPLICAS, "data-parallel")
    assert (result.plan.placement[0], result.value_ns) == ((1, 3), 21)


def test_each_device_holds_everything() -> None:
    result = run_method(two("gg", memory_bytes=5), REPLICAS, "data-parallel")
    assert (result.status, result.message) == (
        "no_plan",
        "no device runs everything: 'd0' cannot run and hold all ops (6 bytes)",
    )
