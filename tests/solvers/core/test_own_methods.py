"""Methods from outside of the package: by a module, a file, a script or a distribution."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from references.own_methods import methods_restored, my_placer

import placegap
from placegap.experiments.cli import main
from placegap.instances import InputError, Makespan, example
from placegap.solvers import METHODS, run_method, use_module
from placegap.solvers.core.registry import MODULES, find_method
from placegap.solvers.core.result import Fault, fault_words

STUDY = (
    "name: mine\ntables:\n- name: a\n  semantics: {objective: makespan}\n"
    "  instances: [bvlc_alexnet]\n  clusters: [celeritas-4xV100-pcie]\n  methods: [shown-placer]\n"
)
PLACE = ("place", "bvlc_alexnet", "--cluster", "celeritas-4xV100-pcie", "--quiet", "--json")

MADE = """
from placegap.solvers.core.method import Method

WHO = {"paper": "after Topcuoglu et al. 2002", "cites": ("topcuoglu2002, section 4.1",)}
METHOD = Method(
    "shown-placer", "heuristic", ("makespan",), summary="", run=my_placer, params=Params, **WHO
)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with a placer; what it registers is forgotten at the end."""
    (tmp_path / "my_placer.py").write_text(my_placer())
    monkeypatch.chdir(tmp_path)
    with methods_restored(tmp_path):
        vars(METHODS).pop("_entries", None)
        yield tmp_path


def install(folder: Path, value: str, name: str = "shown-placer") -> None:
    """What pip leaves of a distribution that lists a method."""
    info = folder / "my_placers-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-placers\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(f"[placegap.methods]\n{name} = {value}\n")
    sys.path.insert(0, str(folder))


@pytest.mark.parametrize("module", ["my_placer", "my_placer.py", "./my_placer.py"])
def test_a_module_brings_its_methods(module: str) -> None:
    assert use_module(module) == use_module(module) == ("shown-placer",)
    assert run_method(example(), Makespan(), "shown-placer").status == "feasible"
    assert METHODS.origin("shown-placer").endswith(module.removeprefix("./"))
    # where other processes look, whatever folder is theirs
    known = os.environ[MODULES]
    assert known == "my_placer" if module == "my_placer" else Path(known).is_absolute()


def test_a_script_that_imports_a_method_has_it_in_worker_processes(folder: Path) -> None:
    sys.path.insert(0, str(folder))
    __import__("my_placer")
    found = placegap.solve(
        "bvlc_alexnet", "celeritas-4xV100-pcie", "makespan", method="shown-placer"
    )
    assert found.result.method == "shown-placer"
    assert METHODS.outside() == ("my_placer",)


@pytest.mark.parametrize("value", ["my_placer", "my_placer:METHOD"])
def test_an_installed_distribution_lists_methods(
    value: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = my_placer()
    if value == "my_placer:METHOD":  # which the module only makes
        text = re.sub(r"@method\(.*?\n\)\n", "", text, flags=re.DOTALL) + MADE
    (folder / "my_placer.py").write_text(text)
    install(folder, value)
    assert "shown-placer" in METHODS
    assert "my_placer" not in sys.modules
    assert "shown-placer" not in dict(METHODS.start_costs())
    result = run_method(example(), Makespan(), "shown-placer")
    assert result.versions["my-placers"] == "1.2"
    assert main(["methods", "--json"]) == 0
    listed = {row["method"]: row for row in json.loads(capsys.readouterr().out)["methods"]}
    assert listed["shown-placer"]["from"] == "my-placers 1.2"
    assert listed["heft"]["from"] == "placegap"
    assert listed["shown-placer"]["paper"] == "after Topcuoglu et al. 2002, section 4.1"


def test_a_broken_distribution_is_a_line_and_takes_nothing_else_away(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(folder, "nowhere")
    with pytest.raises(InputError, match=r"my-placers .* nowhere"):
        find_method("shown-placer")
    assert main(["methods"]) == 0
    out, err = capsys.readouterr()
    assert "heft" in out
    assert err.count("\n") == 1
    assert "'nowhere'" in err


def test_a_distribution_replaces_no_method_of_the_package(folder: Path) -> None:
    install(folder, "my_placer", "heft")
    assert METHODS["heft"].run.__module__.startswith("placegap.")
    assert METHODS.origin("heft") == "placegap"


def test_a_distribution_that_registers_another_name_says_so(folder: Path) -> None:
    install(folder, "my_placer", "other")
    with pytest.raises(InputError, match="my_placer"):
        find_method("other")


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("nowhere", "module nowhere cannot be loaded: ModuleNotFoundError"),
        ("nowhere.py", "nowhere.py: there is no such file"),
        ("empty.py", "empty.py registers no method"),
        ("json.py", "Python has another module 'json'"),
        ("taken.py", "the name 'heft' is taken"),
        ("broken.py", "broken.py cannot be loaded: SyntaxError"),
    ],
)
def test_a_bad_module_is_one_line_and_exit_status_2(
    module: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty.py").write_text("")
    (folder / "json.py").write_text(my_placer())
    (folder / "taken.py").write_text(my_placer().replace('"shown-placer"', '"heft"'))
    (folder / "broken.py").write_text("def (")
    command = ("study", "study.yaml") if module == "nowhere" else PLACE
    assert main([*command, "--module", module]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("home", "an Outcome, not a list"),
        ("None", "an Outcome, not None"),
        ("Outcome(home)", "an Outcome with a Plan, not with a list"),
        ("Outcome(Plan(home))", "a Plan whose placement is a tuple, not a list"),
        ("Outcome(Plan(tuple(home)))", "a Plan with a tuple of devices for each op, not an int"),
        ("Outcome(Plan((('gpu0',),) * len(home)))", "a Plan with numbers of devices, not a str"),
    ],
)
def test_what_is_no_outcome_is_a_sentence_that_says_what_to_return(
    returned: str, said: str, folder: Path
) -> None:
    assert "return Outcome(Plan.on(home))" in my_placer()
    text = my_placer().replace("return Outcome(Plan.on(home))", f"return {returned}")
    (folder / "my_placer.py").write_text(text)
    use_module("my_placer.py")
    sentence = (
        f"the run of shown-placer must return {said}; return Outcome(Plan.on(devices)), with the"
        " number of each op's device, or Outcome(message=...) where there is no plan"
    )
    with pytest.raises(InputError) as raised:
        run_method(example(), Makespan(), "shown-placer")
    assert str(raised.value) == sentence
    # among the placers that an exact method starts from, it only costs its plan
    with pytest.warns(Fault, match="shown-placer must"):
        result = run_method(example(), Makespan(), "cp-sat")
    assert (result.status, result.faults) == ("optimal", (sentence,))
    assert fault_words(sentence) == sentence


def test_place_and_studies_say_what_a_placer_has_to_return(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = my_placer().replace("return Outcome(Plan.on(home))", "return home")
    (folder / "my_placer.py").write_text(text)
    module = ("--module", "my_placer.py")
    assert main([*PLACE, "--method", "shown-placer", *module]) == 2  # in a process of its own
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("placegap: the run of shown-placer must return an Outcome, not a list;")
    assert err.count("\n") == 1
    (folder / "study.yaml").write_text(STUDY)
    assert main(["study", "study.yaml", "--workers", "1", *module]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "shown-placer: the run of shown-placer must return an Outcome, not a list;" in shown
