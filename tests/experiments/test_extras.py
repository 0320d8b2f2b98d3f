"""Without the extras: a cell, a line, a command to install what is missing; never a traceback."""

import json
from pathlib import Path

import pytest
from doubles.hidden_extras import Done, each_without_extras
from draws.tiny import SHARED, needs_moirai

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
PLACE = ["place", "zfnet512", "--cluster", "celeritas-4xV100-pcie", "--method"]
WORKBOOK = (SHARED / "instances" / "moirai" / "example-1.xls").resolve()
MISSING_OF_A_STUDY = f"""
import json
from placegap.experiments.studies.config import load_study
from placegap.experiments.studies.plan import plan_study
path = {str(EXPERIMENTS / "ours" / "placers.yaml")!r}
cells = list(plan_study(load_study(path), path))
print(json.dumps(sorted({{cell.method for cell in cells if cell.status == "not_installed"}})))
"""

STUDY = """
name: partial
tables:
  - name: makespan
    semantics: {objective: makespan, channels: port}
    instances: [zfnet512%s]
    clusters: [celeritas-4xV100-pcie]
    methods: [single-device, metis, mt-kahypar, scotch, archer-exact, {name: moirai, params: {solver: scip}}]
    limits: {time_limit_s: 2}
"""  # noqa: E501

PIP_LINES = """\
metis: needs pymetis: pip install 'placegap[metis]'
mt-kahypar: needs mtkahypar: pip install 'placegap[kahypar]'
scotch: needs Scotch's program gpart on the PATH (Debian: apt install scotch)
archer-exact: does not do makespan
moirai solver=scip: solver=scip needs pyscipopt: pip install 'placegap[scip]'
"""


STEPS: dict[str, str | list[str]] = {
    "study": ["study", "study.yaml", "--workers", "1", "--rows"],
    "optional": ["study", "optional.yaml", "--workers", "1"],
    "asked for": ["study", "asked.yaml", "--workers", "1"],
    "metis": [*PLACE, "metis"],
    "scotch": [*PLACE, "scotch"],
    "scip": [*PLACE, "moirai", "--param", "solver=scip", "--quiet"],
    "methods": ["methods", "--json"],
    "missing": MISSING_OF_A_STUDY,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run."""
    folder = tmp_path_factory.mktemp("extras")
    entry = ", {model: %s%s}"
    (folder / "study.yaml").write_text(STUDY % "")
    (folder / "optional.yaml").write_text(STUDY % entry % (WORKBOOK, ", optional: true"))
    (folder / "asked.yaml").write_text(STUDY % entry % (WORKBOOK, ""))
    return folder


@pytest.fixture(scope="module")
def done(folder: Path) -> dict[str, Done]:
    """How each step ends where no extra is installed; one program runs them all."""
    return dict(zip(STEPS, each_without_extras(list(STEPS.values()), folder), strict=True))


def test_a_method_that_is_not_installed_is_a_cell_with_the_command_below(
    done: dict[str, Done], folder: Path
) -> None:
    status, out, err = done["study"]
    assert status == 0, err
    assert PIP_LINES in out
    assert out.count("not installed") == 4
    line = "placegap: no plot: figures need matplotlib: pip install 'placegap[plots]'\n"
    assert err.endswith(line)
    # what is installed has run, and nothing else stands in the log: it runs once it is there
    log = (folder / "results" / "partial" / "runs.jsonl").read_text().splitlines()
    assert {json.loads(line)["method"] for line in log} == {"single-device"}


def test_the_studies_that_ship_need_no_extra(done: dict[str, Done]) -> None:
    assert json.loads(done["missing"].out) == ["metis", "mt-kahypar", "scotch"]


@needs_moirai
def test_an_optional_workbook_that_nothing_can_read_is_left_out(done: dict[str, Done]) -> None:
    needed = "needs xlrd: pip install 'placegap[xls]'"
    assert done["optional"].status == 0, done["optional"].err
    assert f"{WORKBOOK}: {needed}\n" in done["optional"].err
    # one that is asked for is an error
    assert done["asked for"].status == 2
    assert done["asked for"].err.splitlines()[-1].endswith(needed)


def test_place_says_in_one_line_what_to_install(done: dict[str, Done]) -> None:
    asked = [done[name] for name in ("metis", "scotch", "scip")]
    assert [(status, out) for status, out, _ in asked] == [(2, "")] * 3
    metis, scotch, scip = (err for _, _, err in asked)
    assert metis == "placegap: metis needs pymetis: pip install 'placegap[metis]'\n"
    assert scotch.startswith("placegap: scotch needs Scotch's program gpart on the PATH")
    assert scotch.count("\n") == 1
    assert scip == "placegap: solver=scip needs pyscipopt: pip install 'placegap[scip]'\n"


def test_the_list_of_methods_says_what_to_install(done: dict[str, Done]) -> None:
    status, out, err = done["methods"]
    assert status == 0, err
    missing = {row["method"]: row["missing"] for row in json.loads(out)["methods"]}
    assert missing["metis"] == "needs pymetis: pip install 'placegap[metis]'"
    assert missing["hrl"] == "needs torch: pip install 'placegap[torch]'"
    partitioners, learned = ["metis", "mt-kahypar", "scotch"], ["hrl", "placeto"]
    assert {name for name, what in missing.items() if what} == {*partitioners, *learned}
