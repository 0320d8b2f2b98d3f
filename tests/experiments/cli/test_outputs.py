"""Nothing found is lost: on a full disk, by an interrupt, or by an output that is an input."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pyomo.environ  # noqa: F401 (loading it makes a semaphore, which is a file)
import pytest
from doubles import processes
from doubles.fake_study import log_lines, study_file
from doubles.full_disk import full_disk
from doubles.processes import finish, send, wait_for
from draws.splittable import splittable_diamond

from placegap.experiments.cli import main
from placegap.experiments.running import placing
from placegap.experiments.running.pool import run_here
from placegap.experiments.studies import run as study
from placegap.instances import Makespan, Plan, example
from placegap.instances.files.document import Document, save_document
from placegap.instances.files.plan_file import load_stated_plan, save_plan
from placegap.solvers.core import registry

Capture = pytest.CaptureFixture[str]

PLACE = ("place", "model.json", "--method", "single-device", "--time-limit", "20")
VALUE_NS = 43  # of all ops on one device: 5 + 20 + 10 + 8

COMMANDS: dict[str, tuple[tuple[str, ...], dict[str, str], str]] = {
    "place": (
        PLACE,
        {
            "-o": "plan.json",
            "--export csv=": "plan.csv",
            "--certificate": "bound.json",
            "--log": "run.jsonl",
            "--plot": "run.svg",
        },
        "value   43 ns",
    ),
    "write": ((*PLACE[:3], "moirai"), {"--write": "model.lp"}, ""),
    "model": (("model", "moirai", "model.json"), {"--write": "model.mps"}, "makespan port"),
    "show": (
        ("show", "start.json", "--model", "model.json"),
        {"--gantt": "plan.png", "--html": "plan.html"},
        "43 ns",
    ),
    "convert": (("convert", "model.json"), {"": "other.json.gz"}, ""),
    "split": (
        ("split", "finer.json", "--param", "min_share=0.4"),
        {"-o": "parts.json", "--map": "map.json"},
        "1 op split into 2 parts",
    ),
    "standard-evaluation": (
        ("standard-evaluation", "model.json", "m.csv", "--batch", "16"),
        {"-o": "big.json", "--plan": "plan.json", "--plot": "off.png"},
        "batch 16 from batches 1, 2",
    ),
}
"""What is asked, the options that name outputs and their files, and what is printed."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models, a plan and measurements."""
    monkeypatch.chdir(tmp_path)
    save_document(Document.of(example()), "model.json")
    save_document(Document.of(splittable_diamond()), "finer.json")
    save_plan(example(), Plan.on([0, 0, 0, 0]), Makespan(), "start.json")
    rows = ["op,device,batch,time_us,memory_bytes"]
    for op in example().graph.ops:
        rows += [f"{op.name},gpu,{batch},{2 * batch},{10 * batch}" for batch in (1, 2, 16)]
    Path("m.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def command_of(name: str, outputs: dict[str, str]) -> list[str]:
    """The arguments of a command with these files for its outputs."""
    command = list(COMMANDS[name][0])
    for option, file in outputs.items():
        first, _, kind = option.partition(" ")
        command += [*filter(None, [first]), kind + file]
    return command


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


@pytest.mark.parametrize("name", COMMANDS)
def test_on_a_full_disk_all_is_printed_each_file_is_named_and_old_ones_stay(
    name: str, capsys: Capture
) -> None:
    _, outputs, printed = COMMANDS[name]
    for file in outputs.values():
        Path(file).write_text("old")
    before = names()
    with full_disk():
        assert main(command_of(name, outputs)) == 1
    out, err = capsys.readouterr()
    assert printed in out
    for file in outputs.values():
        assert err.count(f"placegap: {file}: cannot be written: File too large\n") == 1
        assert Path(file).read_text() == "old"
    assert names() == before


@pytest.mark.parametrize("name", COMMANDS)
def test_outputs_that_have_room_are_written_and_nothing_else_is_left(
    name: str, capsys: Capture
) -> None:
    before, outputs = names(), COMMANDS[name][1]
    assert main(command_of(name, outputs)) == 0
    assert names() == sorted([*before, *outputs.values()])
    assert all(Path(file).stat().st_size for file in outputs.values())
    capsys.readouterr()
    (lost, file) = list(outputs.items())[-1]
    for written in outputs.values():
        Path(written).unlink()
    full = f"full{''.join(Path(file).suffixes)}"
    Path(full).symlink_to("/dev/full")
    assert main(command_of(name, {**outputs, lost: full})) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == f"placegap: {full}: cannot be written: No space left on device"
    assert names() == sorted([*before, *list(outputs.values())[:-1], full])


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_plan_that_cannot_be_written_is_printed_as_its_file(
    options: list[str], capsys: Capture
) -> None:
    assert main([*PLACE, "-o", "/dev/full", *options]) == 1
    out, _ = capsys.readouterr()
    printed = json.loads(out.splitlines()[-1])
    if options:
        assert printed["value_ns"] == VALUE_NS
        printed = printed["plan"]
    Path("plan.json").write_text(json.dumps(printed))
    stated = load_stated_plan(example(), "plan.json")
    assert (stated.plan.devices.tolist(), stated.value) == ([0, 0, 0, 0], VALUE_NS)


def test_what_fails_after_the_search_loses_no_plan(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(placing, "ask_second", fail)
    assert main([*PLACE, "-o", "plan.json", "--second-opinion", "-q"]) == 2
    out, err = capsys.readouterr()
    assert ("value   43 ns" in out, err) == (True, "placegap: out of memory\n")
    assert load_stated_plan(example(), "plan.json").value == VALUE_NS


def test_an_output_that_cannot_be_is_refused_before_the_search(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("folder").mkdir()
    before = names()
    monkeypatch.setattr(placing, "place", None)
    for option in (*COMMANDS["place"][1], *COMMANDS["write"][1]):
        for file in ("none/a.svg", "folder"):
            assert main(command_of("place", {"-o": "good.json", option: file})) == 2
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            assert err.startswith(f"placegap: {file}: ")
            assert names() == before


INPUTS = {
    "place": ("", "--start", "--devices", "--times", "--cluster", "--module"),
    "convert": ("",),
    "show": ("", "--model"),
    "standard-evaluation": ("--links", "--tensors"),
}


@pytest.mark.parametrize("name", INPUTS)
def test_no_output_is_written_over_an_input(
    name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "use_module", lambda module: ())
    outputs = COMMANDS[name][1]
    for option in INPUTS[name]:
        read = {"": COMMANDS[name][0][1], "--module": "mine.py"}.get(option, "input.json")
        if option:
            Path(read).write_text("input")
        content, given = Path(read).read_bytes(), [option, read] if option else []
        Path("link.json").hardlink_to(read)
        for output in outputs:
            assert main([*command_of(name, {**outputs, output: "link.json"}), *given]) == 2
            said = f"placegap: link.json: is read as '{read}'; choose another output\n"
            assert capsys.readouterr() == ("", said)
        assert Path(read).read_bytes() == content
        Path("link.json").unlink()


SEARCH = """
import sys
from functools import partial
from placegap.experiments.running import placing
placing.place = partial(placing.place, modules=['doubles.fake_methods'])
import doubles.fake_methods
from placegap.experiments.cli import main
sys.exit(main(['place', 'model.json', '-o', 'plan.json', '--method', 'fake', *sys.argv[1:]]))
"""


@pytest.mark.parametrize(("number", "has_plan"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_stopped_search_leaves_old_files_or_whole_ones(
    here: Path, number: int, has_plan: bool
) -> None:
    graph = example().graph.model_copy(update={"name": "real"})  # the fake takes it for real
    save_document(Document.of(example()).model_copy(update={"graph": graph}), "model.json")
    files = ("plan.json", "plan.csv", "run.jsonl")
    for file in files:
        Path(file).write_text("old")
    before = names()
    options = ("--param", "seconds=60", "--export", "csv=plan.csv", "--log", "run.jsonl")
    tells = ("--param", f"tells={str(has_plan).lower()}")
    process = processes.begin(SEARCH, *options, *tells, cwd=here)
    beside = [Path(f"{file}.tmp-{process.pid}") for file in files]
    wait_for(process, *([here / "now"] if has_plan else beside))
    while has_plan and Path("run.jsonl").read_text() == "old" and process.poll() is None:
        time.sleep(0.02)  # its first line comes a little later
    assert Path("plan.json").read_text() == "old"
    send(process, number)
    finish(process)
    assert process.returncode == 128 + number
    assert sorted({*names()} - {"now"}) == before
    whole = [Path(file).read_text() == "old" for file in files]
    assert whole == [not has_plan] * 3


def study_of(path: Path) -> int:
    return main(["study", str(path), "--out", "out", "--workers", "1"])


@pytest.fixture
def fake_study(fakes: list[str], monkeypatch: pytest.MonkeyPatch, here: Path) -> Path:
    """A study of three runs, which run in this process."""
    monkeypatch.setattr(study, "run_pool", run_here)
    return study_file(here, seeds="0, 1, 2")


def test_a_study_on_a_full_disk_stops_with_one_line_and_goes_on_later(
    fake_study: Path, capsys: Capture
) -> None:
    assert study_of(fake_study) == 0
    whole = Path("out/runs.jsonl").read_bytes()
    first = whole.index(b"\n") + 1
    Path("out/runs.jsonl").write_bytes(whole[:first])
    (Path("out/table.md")).write_text("old")
    capsys.readouterr()
    with full_disk(first + 10):
        assert study_of(fake_study) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(
        "placegap: out/runs.jsonl: cannot be written: File too large; the 1 runs"
    )
    assert Path("out/runs.jsonl").read_bytes() == whole[:first]
    assert Path("out/table.md").read_text() == "old"
    assert study_of(fake_study) == 0
    assert len(log_lines(Path("out"))) == 3


def test_a_study_whose_report_has_no_room_prints_it_and_names_the_files(
    fake_study: Path, capsys: Capture
) -> None:
    assert study_of(fake_study) == 0
    table = capsys.readouterr().out.partition("written: ")[0]
    for name in ("runs.csv", "gaps.png"):
        Path("out", name).unlink()
        Path("out", name).symlink_to("/dev/full")
    assert study_of(fake_study) == 1
    out, err = capsys.readouterr()
    assert out == f"{table}written: out/table.md\n"
    assert err.splitlines()[-2:] == [
        f"placegap: out/{name}: cannot be written: No space left on device"
        for name in ("runs.csv", "gaps.png")
    ]
