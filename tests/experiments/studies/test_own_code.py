"""A study repeats the runs of a method from outside of the package whose source was edited."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from references.own_methods import methods_restored

from placegap.experiments.studies import own_code
from placegap.experiments.studies.config import Study, load_study
from placegap.experiments.studies.own_code import code_of
from placegap.experiments.studies.plan import plan_study
from placegap.experiments.studies.run import run_task
from placegap.experiments.studies.runs import Run
from placegap.instances import InputError
from placegap.solvers import METHODS, use_module

PLACER = """
from placegap.instances import Plan
from placegap.solvers import Method, Outcome, Params, register


def mine(task, params):
    from helper import device

    return Outcome(Plan.on([device(task)] * task.instance.num_ops))


about = {"claim": "heuristic", "objectives": ("makespan",), "paper": "", "cites": ()}
register(Method(name="mine", run=mine, summary="", params=Params, **about))
"""

STUDY = """
name: mine
tables:
  - name: one pass
    semantics: {objective: makespan}
    instances: [squeezenet]
    clusters: [celeritas-4xV100-pcie]
    methods: [mine, single-device]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A placer, a module that it imports when it runs, one that this imports, and a study."""
    (tmp_path / "mine.py").write_text(PLACER)
    (tmp_path / "helper.py").write_text("import my_numbers as n\ndevice = lambda task: n.ONE\n")
    (tmp_path / "my_numbers.py").write_text("ONE = 1\n")
    (tmp_path / "stranger.py").write_text("")
    (tmp_path / "study.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    with methods_restored(tmp_path):
        yield tmp_path


def edit(file: Path) -> None:
    file.write_text(file.read_text() + "\n")
    own_code._sources.clear()  # as in the next process


def runs_of(study: Study) -> list[Run]:
    return [cell.run for cell in plan_study(study, "study.yaml") if cell.run is not None]


def test_the_code_is_that_of_the_module_and_of_what_it_imports_from_its_folder(
    folder: Path,
) -> None:
    use_module("mine.py")
    code = code_of(METHODS["mine"], "makespan")
    edit(folder / "stranger.py")
    assert code_of(METHODS["mine"], "makespan") == code
    codes = {code}
    for name in ("mine.py", "helper.py", "my_numbers.py"):
        edit(folder / name)
        codes.add(code_of(METHODS["mine"], "makespan"))
    assert len(codes) == 4


def test_the_code_of_placegap_s_own_methods_is_no_part_of_their_keys(folder: Path) -> None:
    use_module("mine.py")
    mine, ours = (run.identity for run in runs_of(load_study("study.yaml")))
    assert mine["code"] == code_of(METHODS["mine"], "makespan")
    assert "code" not in ours


def test_a_study_is_refused_while_the_process_has_the_old_code(folder: Path) -> None:
    use_module("mine.py")
    study = load_study("study.yaml")
    before = runs_of(study)[0]
    (folder / "mine.py").write_text(PLACER + "# edited\n")
    assert run_task(before)["status"] == "feasible"  # what runs is what the study began with
    with pytest.raises(InputError, match=r"mine\.py: .*start"):
        list(plan_study(study, "study.yaml"))


def test_the_code_of_a_placer_counts_for_the_methods_that_start_from_its_plans(
    folder: Path,
) -> None:
    text = PLACER.replace('summary=""', 'summary="", starts={"makespan": Cost(1, 1)}')
    text = "from placegap.solvers.core.method import Cost" + text
    (folder / "mine.py").write_text(text)
    assert code_of(METHODS["cp-sat"], "makespan") == ""
    use_module("mine.py")
    assert code_of(METHODS["cp-sat"], "makespan") == code_of(METHODS["mine"], "makespan") != ""
    assert code_of(METHODS["ideal-dp"], "max_load") == code_of(METHODS["heft"], "makespan") == ""


def test_a_worker_with_other_code_than_the_study_s_refuses_the_run(folder: Path) -> None:
    use_module("mine.py")
    run, _ = runs_of(load_study("study.yaml"))
    edit(folder / "helper.py")
    assert run_task(run)["message"].startswith("the code of mine has changed since the study began")
