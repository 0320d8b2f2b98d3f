"""expert: a plan that a file states."""

from __future__ import annotations

from placegap.instances.io.dnn_partitioning import read_split
from placegap.instances.io.document import read_json
from placegap.instances.io.plan_file import is_plan, load_plan
from placegap.instances.problem.plan import Plan
from placegap.instances.problem.semantics import OBJECTIVES
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.method import Method, Params, Task
from placegap.solvers.core.registry import register
from placegap.solvers.core.result import Outcome


class ExpertParams(Params):
    """Parameters of ``expert``.

    Attributes
    ----------
    path : str or None
        The file: a split of dnn-partitioning, or a plan that placegap wrote.
    """

    path: str | None = None


def expert(task: Task, params: ExpertParams) -> Outcome:
    """The plan of a file, judged like any other.

    The human experts of Tarnawski et al. (NeurIPS 2020) are split files; a node that a split leaves
    out is on the device of its colour class, so that the split of the forward pass serves training
    graphs. Of a plan file made under another semantics only the placement counts: its orders were
    made for another problem. A heuristic, of whoever wrote the file. Deviation: the authors'
    program only warns of memory and never looks at support; here such a plan is no plan.

    Raises
    ------
    InputError
        If the file is neither, or names what the instance does not have.
    """
    assert params.path is not None
    if not _is_plan_file(params.path):
        return Outcome(read_split(task.instance, params.path))
    plan, semantics = load_plan(task.instance, params.path)
    return Outcome(plan if semantics == task.semantics else Plan(plan.placement))


def _is_plan_file(path: str) -> bool:
    try:
        return is_plan(read_json(path))
    except InputError:  # programs append text to splits: `read_split` knows, or says what is wrong
        return False


def applies(task: Task, params: ExpertParams) -> str | None:
    """Why there is no plan to read, or None."""
    if params.path is None:
        return "needs --param path=FILE: a split file of dnn-partitioning, or a plan file"
    return None


register(
    Method(
        name="expert",
        claim="heuristic",
        objectives=OBJECTIVES,
        paper="",
        summary="the plan of a file, `path=FILE`",
        run=expert,
        params=ExpertParams,
        applies=applies,
        memory_rules=("sum", "peak"),
    )
)
