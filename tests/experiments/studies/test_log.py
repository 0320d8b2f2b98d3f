"""The log of a study: append-only, synced, and never more than one line in danger."""

import json
from pathlib import Path

import pytest

from placegap.experiments.studies.log import RunLog, run_key
from placegap.experiments.studies.runs import row_of
from placegap.instances import InputError


def record(number: int) -> dict[str, object]:
    return {"key": f"k{number}", "status": "feasible", "value_ns": number}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log of three runs."""
    with RunLog(tmp_path / "runs.jsonl") as log:
        for number in range(3):
            log.append(record(number))
    return tmp_path / "runs.jsonl"


def test_the_log_is_cut_at_every_byte_of_its_last_line_and_goes_on(path: Path) -> None:
    data = path.read_bytes()
    start = data[:-1].rindex(b"\n") + 1
    for end in range(start, len(data) - 1):
        path.write_bytes(data[:end])
        with RunLog(path) as log:
            assert list(log.records) == ["k0", "k1"]
            log.append(record(7))
        lines = path.read_text().splitlines()
        assert [json.loads(line)["key"] for line in lines] == ["k0", "k1", "k7"]
    path.write_bytes(data[:-1])  # only the end of the line is missing
    with RunLog(path) as log:
        assert list(log.records) == ["k0", "k1", "k2"]
    assert path.read_bytes() == data


def test_a_bad_line_in_the_middle_is_named_and_nothing_is_changed(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = b'{"status": 3}\n'
    path.write_bytes(b"".join(lines))
    with pytest.raises(InputError, match=r"runs\.jsonl: line 2"):
        RunLog(path)
    assert path.read_bytes() == b"".join(lines)
    lines[1] = b'{"key":"k1","value_ns":"x"}\n'
    path.write_bytes(b"".join(lines))
    with pytest.raises(InputError, match=r"line 2 .*\(value_ns "):
        RunLog(path, row_of)


def test_two_studies_cannot_write_to_one_log(path: Path) -> None:
    with RunLog(path), pytest.raises(InputError, match="another study"):
        RunLog(path)
    RunLog(path).__exit__(None, None, None)


def test_the_key_does_not_depend_on_the_order_of_fields() -> None:
    one = {"method": "heft", "limits": {"gap": 0.0, "time_limit_s": 5.0}}
    two = {"limits": {"time_limit_s": 5.0, "gap": 0.0}, "method": "heft"}
    assert run_key(one) == run_key(two)
    assert run_key(one) != run_key({**one, "method": "etf"})
