"""An objective is found by its folder: a new one is judged without a change elsewhere."""

import sys
from types import ModuleType
from typing import ClassVar, Literal

import pytest

from placegap.instances import InputError, Instance, Makespan, MaxLoad, Plan, evaluate, example
from placegap.instances.objectives.base import BY_OBJECTIVE, Semantics
from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.recheck import recheck
from placegap.instances.oracle.rules import judged, placed_rules
from placegap.instances.problem import Evaluation
from placegap.instances.problem.semantics import part
from placegap.instances.referee.rules import check_shape


class TotalWork(Semantics):
    """All op times together: the least objective that there can be."""

    folder: ClassVar[str] = "total_work"

    objective: Literal["total_work"] = "total_work"


del BY_OBJECTIVE["total_work"]  # of this file alone


def check(instance: Instance, rules: TotalWork) -> None:
    if instance.num_devices < 2:
        raise InputError("total_work needs two devices", instance.name)


def by_arrays(instance: Instance, plan: Plan, rules: TotalWork) -> Evaluation:
    device = check_shape(instance, plan)
    return Evaluation(int(instance.arrays.time_ns[range(instance.num_ops), device].sum()))


def by_fields(facts: Facts, plan: Plan, rules: TotalWork) -> Evaluation:
    found = placed_rules(facts, plan, rules)
    return judged(
        found, lambda: sum(facts.op_time(i, on[0]) for i, on in enumerate(plan.placement))
    )


@pytest.fixture
def _in_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, function in (("checks", check), ("referee", by_arrays), ("oracle", by_fields)):
        module = ModuleType(name)
        own = {"checks": "check", "referee": "evaluate", "oracle": "recheck"}[name]
        setattr(module, own, function)
        path = f"placegap.instances.objectives.total_work.{name}"
        monkeypatch.setitem(sys.modules, path, module)


@pytest.mark.usefixtures("_in_its_folder")
def test_an_objective_may_require_something_of_instances() -> None:
    cluster = example().cluster
    one_device = cluster.model_copy(update={"devices": cluster.devices[:1], "links": ()})
    alone = Instance(name="alone", graph=example().graph, cluster=one_device)
    with pytest.raises(InputError, match="two devices"):
        evaluate(alone, Plan.on([0] * 4), TotalWork())


@pytest.mark.usefixtures("_in_its_folder")
def test_a_new_objective_is_judged_by_both_referees() -> None:
    # the diamond's ops take 5 + 20 + 10 + 8 ns on either device
    plan = Plan.on([0, 1, 0, 0])
    verdicts = [judge(example(), plan, TotalWork()) for judge in (evaluate, recheck)]
    assert [(v.value, v.feasible) for v in verdicts] == [(43, True)] * 2
    wrong = Plan.on([0, 1])
    assert {j(example(), wrong, TotalWork()).violations[0].rule for j in (evaluate, recheck)} == {
        "shape"
    }


def test_every_objective_has_its_modules() -> None:
    needed = {"referee": "evaluate", "oracle": "recheck"}
    for kind in BY_OBJECTIVE.values():
        for name, function in needed.items():
            assert callable(getattr(part(kind(), name), function))


def test_an_objective_without_a_referee_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MaxLoad, "folder", "nowhere")
    with pytest.raises(InputError, match=r"max_load: there is no \S+\.nowhere\.") as error:
        evaluate(example(), Plan.on([0] * 4), MaxLoad())
    assert "\n" not in str(error.value)


def test_rules_name_the_fields_of_a_plan_that_they_define() -> None:
    assert Makespan.plan_fields == {"device_order", "channel_order"}
    defined = frozenset[str]().union(*(kind.plan_fields for kind in BY_OBJECTIVE.values()))
    assert defined == vars(Plan.on([0])).keys() - {"placement"}
