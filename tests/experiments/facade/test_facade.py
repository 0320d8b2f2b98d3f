"""``placegap`` itself: its version, ``python -m placegap``, and one call that solves."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import placegap
from placegap.experiments.cli import main
from placegap.instances import (
    Makespan,
    Plan,
    example,
    load_cluster,
    load_corpus,
    load_plan,
    save_document,
)
from placegap.instances.files.document import Document

MAKESPAN = Makespan()


def python(*args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        [sys.executable, *args], env=env, check=False, capture_output=True, text=True
    )


def test_the_package_knows_its_version() -> None:
    assert placegap.__version__ == version("placegap")
    done = python("-m", "placegap", "--version")
    assert (done.returncode, done.stdout) == (0, f"placegap {placegap.__version__}\n")


WINDOWS = ("import sys; sys.platform = 'win32'", "import signal; del signal.SIGUSR1")
ELSEWHERE = "placegap runs on Linux and macOS; on Windows use WSL\n"


@pytest.mark.parametrize(
    ("windows", "command"),
    [
        (WINDOWS[0], "sys.argv = ['C:/placegap.exe']; from placegap.experiments.cli import main"),
        (
            WINDOWS[1],
            "import runpy; sys.argv = ['-m']; runpy.run_module('placegap', run_name='__main__')",
        ),
    ],
)
def test_on_windows_the_command_is_one_line_and_exit_status_2(windows: str, command: str) -> None:
    done = python("-c", f"import sys; {windows}; {command}")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", ELSEWHERE)


def test_on_windows_an_import_says_where_placegap_runs() -> None:
    done = python("-c", f"{WINDOWS[0]}; import placegap.solvers")
    assert done.returncode == 1
    assert done.stderr.endswith(f"\nImportError: {ELSEWHERE}")


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, placegap\n"
        "heavy = {'numba', 'numpy', 'typer', 'rich', 'pydantic', 'pyomo', 'ortools', 'highspy'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert {'solve', 'Solution', '__version__'} <= set(dir(placegap))\n"
        "assert placegap.instances.Semantics and placegap.solvers.solve\n"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


def test_names_paths_and_objects_give_the_same(tmp_path: Path) -> None:
    graph, cluster = load_corpus("zfnet512"), load_cluster("moirai-intra-server")
    bound = graph.instance(cluster)
    save_document(Document.of(bound), tmp_path / "zfnet.json")
    models = [
        ("zfnet512", "moirai-intra-server"),
        (graph, cluster),
        (graph.graph, cluster),
        (bound, None),
        (bound, cluster),
        (tmp_path / "zfnet.json", None),
        (str(tmp_path / "zfnet.json"), "moirai-intra-server"),
    ]
    values = {
        placegap.solve(model, where, "max_load", method="m-topo").value_ns
        for model, where in models
    }
    assert len(values) == 1
    assert values != {None}


@pytest.mark.parametrize(
    ("model", "cluster", "value_ns", "bound_ns", "gap", "words"),
    [
        # HEFT puts the diamond on one device, 5 + 20 + 10 + 8; no path is longer than 5 + 20 + 8.
        # Nothing but that path is known of it
        ("diamond", None, 43, 33, None, "unknown; at most 23.3 % (critical path only)"),
        # the corpus records the optimum, 786,996 ns
        (
            "inception_v1",
            "celeritas-4xV100-pcie",
            913_572,
            786_996,
            1 - 786_996 / 913_572,
            "13.9 % to 787.0 us (recorded: decomposition",
        ),
    ],
)
def test_a_gap_is_to_a_bound_that_says_something_in_both_doors(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    model: str,
    cluster: str | None,
    value_ns: int,
    bound_ns: int,
    gap: float | None,
    words: str,
) -> None:
    save_document(Document.of(example()), tmp_path / "diamond.json")
    name = str(tmp_path / f"{model}.json") if cluster is None else model
    found = placegap.solve(name, cluster, method="heft")
    command = ["place", name, *(() if cluster is None else ("--cluster", cluster))]
    assert main([*command, "--method", "heft", "--json"]) == 0
    placed = json.loads(capsys.readouterr().out)
    assert placed["gap"] == found.gap == (gap if gap is None else pytest.approx(gap))
    result, proven = found.result, (value_ns, bound_ns, found.bound_origin)
    assert (placed["value_ns"], placed["bound_ns"], placed["bound_origin"]) == proven
    assert (result.value_ns, result.bound_ns, result.bound_origin) == proven
    assert main([*command, "--method", "heft"]) == 0
    for text in (str(found), capsys.readouterr().out):
        assert f"gap     {words}" in text


def test_a_start_is_never_made_worse_and_a_solution_is_saved(tmp_path: Path) -> None:
    best = Plan.on([0, 1, 0, 0])  # 35 ns; all on one device take 43
    found = placegap.solve(example(), objective=MAKESPAN, method="single-device", start=best)
    assert (found.value_ns, found.plan, found.result.method) == (35, best, "start")
    assert found.result.message == "single-device found no better plan"
    found.save(tmp_path / "plan.json")
    assert load_plan(example(), tmp_path / "plan.json") == (best, MAKESPAN)
    again = placegap.solve(example(), method="heft", start=tmp_path / "plan.json")
    assert again.value_ns is not None
    assert again.value_ns <= 35


def test_a_solution_without_a_plan_says_what_memory_is_missing() -> None:
    base = example()
    ops = tuple(op.model_copy(update={"resident_bytes": 5}) for op in base.graph.ops)
    devices = tuple(d.model_copy(update={"memory_bytes": 8}) for d in base.cluster.devices)
    tight = base.model_copy(
        update={
            "graph": base.graph.model_copy(update={"ops": ops}),
            "cluster": base.cluster.model_copy(update={"devices": devices}),
        }
    )
    found = placegap.solve(tight, method="heft")
    assert found.plan is None
    # 4 x 5 bytes of 2 x 8, and no two of 5 fit a device
    missing = "all 4 ops need 20 B on gpu0, gpu1: 16 B together, 2 B per device short"
    assert missing in found.result.message
    assert "what would help: 2 more devices like gpu0" in " ".join(str(found).split())
