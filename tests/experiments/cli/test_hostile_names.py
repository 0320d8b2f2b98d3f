"""No command passes a control character of a name in a file on: to terminals, pages or texts."""

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from draws.hostile import hostile_diamond

import placegap
from placegap.experiments.cli import main
from placegap.experiments.running.pool import run_here
from placegap.experiments.studies import run as study_run
from placegap.instances import example
from placegap.instances.files.document import Document, load_document, save_document

Capture = pytest.CaptureFixture[str]

HOSTILE = "\x1b[2J\x1b]0;title\x07\nforged \x7f\x9b31m\u202e\u2066\u200b[red]x[/red] :smile: $x^2"
"""What erases a screen, names a window, begins a line, turns the direction of writing, ..."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The model, and a plan of it."""
    monkeypatch.setattr(study_run, "run_pool", run_here)
    model, plan = str(tmp_path / "model.json"), str(tmp_path / "plan.json")
    save_document(Document.of(hostile_diamond(HOSTILE)), model)
    placegap.solve(hostile_diamond(HOSTILE), objective="makespan", method="heft").save(plan)
    content = json.loads(Path(plan).read_text())
    content |= {"method": HOSTILE}
    content["bound"]["bound_origin"] = HOSTILE
    Path(plan).write_text(json.dumps(content))
    return model, plan


def assert_plain(text: str) -> None:
    odd = {sign for sign in text if not sign.isprintable()} - {"\n"}
    assert not odd, (odd, text)
    assert not [line for line in text.splitlines() if line.startswith("forged")]


def commands(model: str, plan: str, folder: Path) -> Iterator[list[str]]:
    place = ["place", model, "--method", "heft"]
    for more in ([], ["--json"]):
        yield [*place, "-o", f"{folder}/out.json", *more]
        yield [*place, "--start", plan, "--certificate", f"{folder}/certificate.json", *more]
        yield [*place, "--log", f"{folder}/log.jsonl", "--second-opinion", *more]
        yield [*place, "--granularity", "layer", *more]
        yield ["show", model, *more]
        yield ["show", plan, *more]
        yield ["show", plan, "--model", model, *more]
        yield ["compare", plan, plan, "--model", model, *more]
        yield ["verify", model, plan, *more]
        yield ["coarsen", model, "--with", "co-placement", "-o", f"{folder}/coarse.json", *more]
    yield ["convert", model, f"{folder}/converted.json"]
    yield [*place, "--export", f"csv={folder}/exported.csv"]
    for kind in ("device_map", "torchtitan", "pipelining"):
        yield ["place", model, "--objective", "max_load", "--export", f"{kind}={folder}/{kind}"]


def test_no_command_passes_a_control_character_on(
    files: tuple[str, str], tmp_path: Path, capsys: Capture
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    for command in commands(*files, folder):
        assert main(command) in (0, 1), capsys.readouterr()
        out, err = capsys.readouterr()
        assert_plain(out)
        assert_plain(err)
    written = list(folder.iterdir())
    assert len(written) > 8
    for file in written:
        assert_plain(file.read_text())
    # JSON keeps the names, its readers get them as they are
    assert load_document(folder / "converted.json").graph == hostile_diamond(HOSTILE).graph
    assert next(iter(json.loads((folder / "device_map").read_text()))) == f"{HOSTILE}.0"


def test_errors_have_no_control_characters(
    files: tuple[str, str], tmp_path: Path, capsys: Capture
) -> None:
    model, plan = files
    content = json.loads(Path(model).read_text())
    content["graph"]["edges"][0]["consumer"] = f"none{HOSTILE}"
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(content))
    assert main(["show", str(bad)]) == 2
    out, err = capsys.readouterr()
    assert_plain(out + err)
    # placed for another model, whose names are others
    save_document(Document.of(example()), tmp_path / "other.json")
    assert main(["verify", str(tmp_path / "other.json"), plan]) == 2
    assert_plain(capsys.readouterr().err)


def test_pictures_and_pages_show_escapes(files: tuple[str, str], tmp_path: Path) -> None:
    model, plan = files
    show = ["show", plan, "--model", model]
    html, svg, plot = (tmp_path / name for name in ("plan.html", "plan.svg", "search.svg"))
    assert main([*show, "--html", str(html), "--gantt", str(svg)]) == 0
    assert main(["place", model, "--method", "heft", "--plot", str(plot)]) == 0
    assert_plain(html.read_text())
    for picture in (svg, plot):
        ElementTree.fromstring(picture.read_text())  # raw ESC is no XML


def test_tables_of_studies_show_escapes(
    files: tuple[str, str], tmp_path: Path, capsys: Capture
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        "name: mine\ntables:\n  - name: t\n    semantics: {objective: makespan}\n"
        "    instances: [model.json]\n    methods: [heft, brute-force]\n"
    )
    out = str(tmp_path / "results")
    assert main(["study", str(study), "--out", out, "--workers", "1", "--rows"]) == 0
    said, err = capsys.readouterr()
    assert_plain(said + err)
    for name in ("table.md", "runs.csv", "runs.jsonl"):
        assert_plain((tmp_path / "results" / name).read_text())


def test_what_python_prints_shows_escapes(files: tuple[str, str]) -> None:
    instance = hostile_diamond(HOSTILE)
    found = placegap.solve(instance, objective="makespan", method="heft", start=files[1])
    for text in (str(instance), repr(instance), str(found), *found.warnings, *found.notes):
        assert_plain(text)
