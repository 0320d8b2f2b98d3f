"""Without the extras: a cell, a line, a command to install what is missing; never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

from doubles.hidden_extras import without_extras
from draws.tiny import needs_moirai

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
CLI = "from placegap.experiments.cli import main; sys.exit(main(sys.argv[1:]))"
PLACE = ["place", "zfnet512", "--cluster", "celeritas-4xV100-pcie"]

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
[1] metis: needs pymetis: pip install 'placegap[metis]'
[2] mt-kahypar: needs mtkahypar: pip install 'placegap[kahypar]'
[3] scotch: needs Scotch's program gpart on the PATH (Debian: apt install scotch)
[4] archer-exact: does not do makespan
[5] moirai solver=scip: solver=scip needs pyscipopt: pip install 'placegap[scip]'
"""


def test_a_method_that_is_not_installed_is_a_cell_with_the_command_below(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(STUDY % "")
    done = without_extras(CLI, "study", "s.yaml", "--workers", "1", "--rows", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert PIP_LINES in done.stdout
    assert done.stdout.count("not installed") == 4
    # what is installed has run, and nothing else stands in the log: it runs once it is there
    log = (tmp_path / "results" / "partial" / "runs.jsonl").read_text().splitlines()
    assert [json.loads(line)["method"] for line in log] == ["single-device"]


def test_the_studies_that_ship_need_no_extra(tmp_path: Path) -> None:
    code = (
        "import json\n"
        "from placegap.experiments.studies.config import load_study\n"
        "from placegap.experiments.studies.plan import plan_study\n"
        "cells = list(plan_study(load_study(sys.argv[1]), sys.argv[1], tell=lambda said: None))\n"
        "print(json.dumps(sorted({cell.method for cell in cells if cell.is_missing})))\n"
    )
    done = without_extras(code, str(EXPERIMENTS / "ours" / "placers.yaml"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["metis", "mt-kahypar", "scotch"]


@needs_moirai
def test_an_optional_workbook_that_nothing_can_read_is_left_out(tmp_path: Path) -> None:
    from draws.tiny import SHARED

    workbook = SHARED / "instances" / "moirai" / "example-1.xls"
    entry = "{model: %s%s}"
    (tmp_path / "s.yaml").write_text(STUDY % f", {entry % (workbook, ', optional: true')}")
    done = without_extras(CLI, "study", "s.yaml", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{workbook}: needs xlrd: pip install 'placegap[xls]'\n" in done.stderr
    # one that is asked for is an error
    (tmp_path / "s.yaml").write_text(STUDY % f", {entry % (workbook, '')}")
    done = without_extras(CLI, "study", "s.yaml", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("needs xlrd: pip install 'placegap[xls]'")


def test_place_says_in_one_line_what_to_install(tmp_path: Path) -> None:
    # workers are processes of their own: what is hidden here has to be hidden there
    code = (
        "from placegap.experiments.running import placing\n"
        "from placegap.experiments.cli import main\n"
        "from placegap.experiments.running.pool import Ending\n"
        "placing.run_pool = lambda tasks, function, **options: (\n"
        "    Ending(task, 'done', function(task), '', 0.0) for task in tasks)\n"
        f"place = {PLACE!r}\n"
        "for method in ('metis', 'scotch'):\n"
        "    print(main([*place, '--method', method]))\n"
        "print(main([*place, '--method', 'moirai', '--param', 'solver=scip']))\n"
    )
    done = without_extras(code, cwd=tmp_path)
    assert done.stdout.split() == ["2", "2", "2"]
    metis, scotch, scip = done.stderr.splitlines()
    assert metis == "placegap: metis needs pymetis: pip install 'placegap[metis]'"
    assert scotch.startswith("placegap: scotch needs Scotch's program gpart on the PATH")
    assert scip == "placegap: solver=scip needs pyscipopt: pip install 'placegap[scip]'"


def test_the_list_of_methods_says_what_to_install(tmp_path: Path) -> None:
    done = without_extras(CLI, "methods", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    missing = {row["method"]: row["missing"] for row in json.loads(done.stdout)["methods"]}
    assert missing["metis"] == "needs pymetis: pip install 'placegap[metis]'"
    assert missing["hrl"] == "needs torch: pip install 'placegap[torch]'"
    partitioners, learned = ["metis", "mt-kahypar", "scotch"], ["hrl", "placeto"]
    assert {name for name, what in missing.items() if what} == {*partitioners, *learned}


def test_the_benchmarks_say_what_to_install(tmp_path: Path) -> None:
    code = (
        "from placegap.experiments.research.bench.placers import layered, measure\n"
        "from placegap.experiments.research.bench.measuring import workbooks\n"
        "print(measure(layered(200, 4), 'metis'))\n"
        "print(workbooks(__import__('pathlib').Path('.')))\n"
    )
    (tmp_path / "moirai").mkdir()
    (tmp_path / "moirai" / "a.xls").write_text("")
    done = without_extras(code, cwd=tmp_path)
    assert done.stdout.splitlines() == [
        "needs pymetis: pip install 'placegap[metis]'",
        "left out, needs xlrd, pip install 'placegap[xls]': moirai/a.xls",
        "[]",
    ], done.stderr
