"""The house: folders, packages, the wheel, and what is documented."""

import doctest
import importlib
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from doubles.hidden_extras import EACH, Done
from references.own_methods import methods_restored

from placegap import instances, solvers
from placegap.experiments import research
from placegap.instances import InputError

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("instances", "formulations", "solvers", "experiments")
FACADE = "experiments/facade"
"""The folder that is `placegap` itself."""

RESEARCH = "experiments/research"
"""What only we run: importable in a checkout, and in no wheel."""


def test_the_layers_are_folders_at_the_top() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folders = {f"placegap.{name}": name for name in LAYERS}
    assert project["tool"]["setuptools"]["package-dir"] == {"placegap": FACADE, **folders}
    assert not (ROOT / "placegap").exists()


def committed() -> list[str]:
    """All files of the checkout, those that are new, too."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [name for name in files.split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the wheel is unpacked."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in committed():
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "source" / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder)]
    source = str(folder / "source")
    done = subprocess.run([*command, source], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = folder.glob("*.whl")
    zipfile.ZipFile(file).extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_all_code_and_data_but_research_and_studies(wheel: Path) -> None:
    files = [path for path in (wheel / "placegap").rglob("*") if path.is_file()]
    shipped = {path.relative_to(wheel / "placegap").as_posix() for path in files}
    code = (".py", ".pyi", ".html", ".css", ".js", "py.typed")
    data = (".bib", ".yaml", ".json", ".json.gz", ".csv.gz")
    wanted = {
        name.removeprefix(f"{FACADE}/")
        for name in committed()
        if name.startswith(tuple(f"{layer}/" for layer in LAYERS))
        and not name.startswith(f"{RESEARCH}/")
        and name.endswith((*data, "LICENSE.txt") if name.startswith("instances/data/") else code)
    }
    assert shipped == wanted
    assert {"__init__.py", "__init__.pyi", "__main__.py", "solving.py", "py.typed"} <= shipped
    assert not [path for path in wheel.iterdir() if path.suffix not in ("", ".dist-info")]
    (metadata,) = wheel.glob("*.dist-info/METADATA")
    assert "# placegap" in metadata.read_text(encoding="utf-8")


STUDY = """
name: small
tables:
  - name: makespan
    semantics: {objective: makespan}
    instances: [bvlc_alexnet]
    clusters: [2xT4-pcie]
    methods: [single-device]
    limits: {time_limit_s: 2}
"""
WORKLOAD = "fd-dps:vgg-16"
COMMANDS: dict[str, tuple[str, ...]] = {
    "instances": ("instances", "--json"),
    "methods": ("methods", "--json"),
    "workload": ("place", WORKLOAD, "--cluster", "2xP100-pcie"),
    "hrl": ("place", "bvlc_alexnet", "--cluster", "2xT4-pcie", "--method", "hrl"),
    "place": ("place", "bvlc_alexnet", "--cluster", "2xT4-pcie", "--method", "single-device"),
    "study": ("study", "study.yaml", "--workers", "1"),
}


def test_the_wheel_lists_what_it_has_and_one_line_says_what_needs_a_checkout(
    wheel: Path, tmp_path: Path
) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    places = os.pathsep.join([str(wheel), str(ROOT / "tests")])
    command = [sys.executable, "-c", f"import sys\n{EACH}", json.dumps([*COMMANDS.values()])]
    env = {**os.environ, "PYTHONPATH": places}
    run = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    done = {name: Done(*each) for name, each in zip(COMMANDS, json.loads(run.stdout), strict=True)}
    instances = json.loads(done["instances"].out)
    assert instances["workloads"] == []
    assert {"bvlc_alexnet", "vgg-16-train"} <= {row["name"] for row in instances["corpus"]}
    methods = {row["method"] for row in json.loads(done["methods"].out)["methods"]}
    assert {"heft", "auto"} <= methods
    assert not {"hrl", "placeto"} & methods
    needs = f"placegap: {WORKLOAD} needs a checkout of placegap; wheels do not contain it\n"
    assert done["workload"] == Done(2, "", needs)
    status, out, err = done["hrl"]
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "'hrl'" in err
    assert done["place"].status == done["study"].status == 0


NEED_TORCH = (
    "placegap.instances.torch_models.op_times",
    "placegap.instances.torch_models.joint_program",
    "placegap.instances.torch_models.training_graph",
    "placegap.experiments.research.learned.hrl",
    "placegap.experiments.research.learned.placeto",
)
"""Modules of torch's own classes, loaded where such a model is asked for."""


@pytest.mark.parametrize(
    ("urls", "shown"),
    [
        ("", "![a](docs/a.png) [b](docs/b.md#c) [d](https://d.org) [e](#e)"),
        (
            'Repository = "https://x.org/p"',
            "![a](https://x.org/p/raw/HEAD/docs/a.png) [b](https://x.org/p/blob/HEAD/docs/b.md#c)"
            " [d](https://d.org) [e](#e)",
        ),
    ],
)
def test_links_of_the_readme_work_on_a_package_index(
    urls: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, object] = {}
    monkeypatch.setattr("setuptools.setup", lambda **options: given.update(options))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(f"[project.urls]\n{urls}\n")
    text = "![a](docs/a.png) [b](docs/b.md#c) [d](https://d.org) [e](#e)"
    (tmp_path / "README.md").write_text(text)
    runpy.run_path(str(ROOT / "setup.py"))
    assert given["long_description"] == shown


def documented_modules() -> list[str]:
    """The modules with examples."""
    found = (ROOT / layer for layer in LAYERS)
    paths = [path for folder in found for path in sorted(folder.rglob("*.py"))]
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    facade = FACADE.replace("/", ".")
    return [
        "placegap." + name.removeprefix(f"{facade}.")
        for name, path in names.items()
        if ">>> " in path.read_text() and name != facade
    ]


@pytest.mark.parametrize("name", documented_modules())
def test_examples_in_docstrings_run(name: str) -> None:
    if name in NEED_TORCH:
        pytest.importorskip("torch", reason="needs the torch extra")
    with methods_restored(Path(research.__file__).parent / "stand_ins"):  # they register
        result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
    assert result.attempted > 0


def public_names() -> list[tuple[str, str]]:
    """What the package and its four layers export."""
    import placegap

    packages = [placegap, *(importlib.import_module(f"placegap.{layer}") for layer in LAYERS)]
    names = ((package, name) for package in packages for name in getattr(package, "__all__", ()))
    return [(package.__name__, name) for package, name in names]


@pytest.mark.parametrize(("package", "name"), public_names())
def test_what_is_exported_is_documented(package: str, name: str) -> None:
    exported = getattr(importlib.import_module(package), name)
    if not (inspect.isclass(exported) or inspect.isfunction(exported)):
        return  # a module, a table or a union has the comment where it is made
    text = inspect.getdoc(exported) or ""
    assert text
    if inspect.isfunction(exported):
        parameters = inspect.signature(exported).parameters
        assert [each for each in parameters if not re.search(rf"\b{each}\b", text)] == []
        is_old = hasattr(exported, "__deprecated__")
        # those by name change the process
        assert is_old or ">>> " in text or name in ("register", "use_module")


def test_an_old_name_warns_and_does_what_the_new_one_does(tmp_path: Path) -> None:
    for old, error in ((instances.read_model, InputError), (instances.read_split, TypeError)):
        with pytest.warns(DeprecationWarning, match=r"is now load_"), pytest.raises(error):
            old(tmp_path / "none.json")
    with pytest.warns(DeprecationWarning, match="is now run_method"):
        found = solvers.solve(instances.example(), instances.MaxLoad(plans="any"), "brute-force")
    assert found.status == "optimal"


@pytest.mark.parametrize("order", ["highspy, ortools", "ortools, highspy"])
def test_highspy_and_ortools_load_in_one_process_in_either_order(order: str) -> None:
    first, second = (name.strip() for name in order.split(","))
    load = {
        "highspy": "import highspy; highspy.Highs()",
        "ortools": "from ortools.sat.python import cp_model; cp_model.CpSolver()",
    }
    code = f"{load[first]}\n{load[second]}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_one_version_is_stated_everywhere() -> None:
    stated = {
        "pyproject.toml": r'^version = "([\d.]+)"$',
        "CITATION.cff": r"^version: ([\d.]+)$",
        "CHANGELOG.md": r"^## ([\d.]+)$",
    }
    found = {
        name: re.findall(form, (ROOT / name).read_text(), re.MULTILINE)[:1]
        for name, form in stated.items()
    }
    assert list(found.values()) == [found["pyproject.toml"]] * 3, found
    assert found["pyproject.toml"]
