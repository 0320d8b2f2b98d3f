"""Outputs: whole or not there, what was there stays until then, and refused before the work."""

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from doubles.full_disk import full_disk

from placegap.instances import InputError
from placegap.instances.files.output_files import (
    OutputError,
    OutputFile,
    attempt,
    release_outputs,
    reserve_outputs,
    write_bytes,
    write_text,
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder, in which nothing temporary may stay."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    release_outputs()
    assert [path for path in tmp_path.rglob("*") if ".tmp-" in path.name] == []


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_on_a_full_disk_the_old_file_stays_whole_and_there_is_no_new_one(here: Path) -> None:
    Path("plan.json").write_text("old")
    for name in ("plan.json", "new.json"):
        with full_disk(100), pytest.raises(OutputError, match=f"{name}: "):
            write_bytes(b"x" * 1000, name)
    assert (Path("plan.json").read_text(), names(here)) == ("old", ["plan.json"])


def test_a_file_takes_its_place_at_once_and_can_grow_there(here: Path) -> None:
    Path("run.jsonl").write_text("old")
    with OutputFile("run.jsonl") as file:
        file.write(b"1\n")
        assert Path("run.jsonl").read_text() == "old"
        file.place()
        file.write(b"2\n")
        assert Path("run.jsonl").read_text() == "1\n2\n"
        with full_disk(5), pytest.raises(OutputError):  # room for one byte more
            file.write(b"33\n")
    assert Path("run.jsonl").read_text() == "1\n2\n"  # no half line
    # an interrupt before it has its place leaves the old file
    with suppress(KeyboardInterrupt), OutputFile("run.jsonl") as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert (Path("run.jsonl").read_text(), names(here)) == ("1\n2\n", ["run.jsonl"])


def test_a_link_stays_a_link_and_its_target_is_written(here: Path) -> None:
    Path("far").mkdir()
    Path("plan.json").symlink_to("far/plan.json")
    for content in ("first", "second"):  # the target is not there, and then it is
        reserve_outputs(Path("plan.json"))
        write_text(content, "plan.json")
        assert Path("plan.json").is_symlink()
        assert (Path("far/plan.json").read_text(), names(here / "far")) == (content, ["plan.json"])


def test_the_permissions_of_a_file_stay_and_a_new_one_has_the_usual() -> None:
    Path("old.json").write_text("old")
    Path("old.json").chmod(0o604)
    before = os.umask(0o027)
    try:
        for name in ("old.json", "new.json"):
            reserve_outputs(Path(name))
            write_text("new", name)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(Path(name).stat().st_mode) for name in ("old.json", "new.json")]
    assert modes == [0o604, 0o640]  # 666 without 027


def test_temporary_files_are_there_from_the_start_to_the_end(here: Path) -> None:
    Path("b.csv").write_text("old")
    reserve_outputs(Path("a.json"), None, Path("b.csv"))
    reserved = [f"{name}.tmp-{os.getpid()}" for name in ("a.json", "b.csv")]
    assert names(here) == sorted([*reserved, "b.csv"])
    write_text("new", "a.json")
    assert release_outputs() == []
    assert (names(here), Path("b.csv").read_text()) == (["a.json", "b.csv"], "old")


def test_what_cannot_be_written_is_refused_at_once(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("folder").mkdir()
    Path("file").write_text("old")
    Path("loop").symlink_to("loop")
    for name, words in (
        ("folder", "folder: is a folder"),
        ("none/a.json", "none/a.json: .*folder"),
        ("loop", "loop: .*links"),
        ("/proc/a.json", "/proc/a.json: "),
    ):
        with pytest.raises(InputError, match=words) as error:
            reserve_outputs(Path(name))
        assert not isinstance(error.value, OutputError)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write to any file
    with pytest.raises(InputError, match=r"file: .*Permission denied"):
        reserve_outputs(Path("file"))
    with pytest.raises(OutputError, match=r"file: .*Permission denied"):
        write_text("new", "file")
    assert Path("file").read_text() == "old"


def test_an_output_that_is_an_input_is_refused_by_whatever_name(here: Path) -> None:
    Path("m.json").write_text("model")
    Path("link.json").symlink_to("m.json")
    Path("hard.json").hardlink_to("m.json")
    for name in ("m.json", "./m.json", str(here / "m.json"), "link.json", "hard.json"):
        for given in ("m.json", "link.json", here / "m.json"):
            with pytest.raises(InputError, match=f"'{given}'; choose another"):
                reserve_outputs(Path(name), inputs=["2xT4, pcie3", "\0", "z" * 300, given])
    assert Path("m.json").read_text() == "model"
    for other in ("./m.json", "link.json"):
        with pytest.raises(InputError, match=r"; choose another"):
            reserve_outputs(Path("m.json"), Path(other))
    reserve_outputs(Path("n.json"), inputs=["m.json", "n.json"])  # none of that name is read


def test_devices_and_pipes_are_written_to_as_they_are() -> None:
    os.mkfifo("pipe")
    reserve_outputs(Path("pipe"), Path("/dev/null"), Path("/dev/null"))  # waits for no reader
    read = list[bytes]()
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_bytes()))
    reader.start()
    write_bytes(b"plan", "pipe")
    reader.join()
    write_bytes(b"plan", "/dev/null")
    assert read == [b"plan"]
    assert stat.S_ISFIFO(Path("pipe").stat().st_mode)


STDOUT = """
from pathlib import Path
from placegap.instances.files.output_files import release_outputs, reserve_outputs, write_text
print("before")
reserve_outputs(Path("/dev/stdout"))
write_text("plan\\n", "/dev/stdout")
print("after")
print(release_outputs(), Path("/dev/stdout").is_symlink())
"""


@pytest.mark.parametrize("redirection", ["> out.txt", "| cat > out.txt"])
def test_stdout_keeps_what_is_printed_before_and_after(redirection: str) -> None:
    # opened anew, the file would be cut off; replaced, what is printed later would be lost
    Path("program.py").write_text(STDOUT)
    subprocess.run(["sh", "-c", f"{sys.executable} program.py {redirection}"], check=True)
    assert Path("out.txt").read_text() == "before\nplan\nafter\n[] True\n"


def test_an_attempt_goes_on_and_its_reason_is_kept() -> None:
    with attempt("a.json") as failed:
        raise OSError(28, "No space left on device")
    with attempt("b.json"):
        raise InputError("no format", "b.json")
    with attempt("c.json"):
        write_text("c", "c.json")
    lines = ["a.json: cannot be written: No space left on device", "b.json: no format"]
    assert [str(error) for error in release_outputs()] == lines
    assert [str(error) for error in failed] == lines[:1]
    assert release_outputs() == []
