"""What the log keeps of a run."""

from __future__ import annotations

from placegap.experiments.running.pool import Ending
from placegap.experiments.running.sources import Source
from placegap.experiments.studies.plan import Run
from placegap.experiments.studies.run import describe_ending, run_task, unfit
from placegap.instances import Makespan
from placegap.solvers.core.registry import find_method
from placegap.solvers.solving.run_method import versions_of

LIMIT_S = 10.0


def run(**changes: object) -> Run:
    facts = {
        "source": Source("zfnet512", "celeritas-4xV100-pcie"),
        "instance_hash": "h",
        "semantics": Makespan(),
        "method": "heft",
        "params": {},
        "seed": 0,
        "time_limit_s": LIMIT_S,
        "gap": 0.0,
        "versions": versions_of(find_method("heft")),
    }
    return Run(**{**facts, **changes})


def is_marked(fate: str, **outcome: object) -> bool:
    return describe_ending(Ending(run(), fate, outcome or None, "killed", 1.0))["clock_limited"]


def test_runs_that_the_clock_ended_are_marked() -> None:
    assert is_marked("timeout")
    assert is_marked("done", status="feasible", build_s=4.0, solve_s=5.5)
    assert is_marked("done", status="no_plan", message="time limit of 10 s reached, no plan found")
    # these ended by themselves
    assert not is_marked("crashed")
    assert not is_marked("done", status="error", message="KeyError: 'conv1'")
    assert not is_marked("done", status="optimal", build_s=4.0, solve_s=1.0, message="")


def test_a_machine_with_other_versions_is_unfit() -> None:
    assert unfit(run()) is None
    why = unfit(run(versions={"placegap": "0.0.1"}))
    assert why is not None
    assert why.startswith("has placegap ")
    assert why.endswith(", and the study needs 0.0.1")


def test_an_instance_that_changes_while_the_study_runs_is_an_error() -> None:
    outcome = run_task(run(instance_hash="other"))
    assert outcome["status"] == "error"
    assert "has changed since the study began" in outcome["message"]
