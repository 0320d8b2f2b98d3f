"""Kill -9 at random moments: afterwards every run stands in the log exactly once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from doubles.fake_study import log_lines, study_file, study_process
from doubles.processes import no_session

from placegap.experiments.studies.run import run_study

SEEDS = range(60)


def kill_often(path: Path, options: list[str], kills: int) -> None:
    """Start a study as often as it is killed: at a moment between its start and some runs later.

    A study that has begun to write is the one to hit, so half of the moments count from there.
    """
    draw, log = random.Random(1), path.parent / "runs.jsonl"
    for number in range(kills):
        lines = log.read_bytes().count(b"\n") if log.exists() else 0
        process = study_process(path, path.parent, *options)
        if number % 2:
            patience = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < patience:
                if log.exists() and log.read_bytes().count(b"\n") > lines:
                    break
                time.sleep(0.005)
            time.sleep(draw.uniform(0.0, 0.3))
        else:
            time.sleep(draw.uniform(0.0, 8.0))
        process.kill()
        process.communicate()
        assert no_session(process.pid)


@pytest.mark.deep
@pytest.mark.parametrize("options", [["--workers", "2"], ["--dask", "2"]], ids=["local", "dask"])
def test_twenty_kills_lose_and_repeat_nothing(
    tmp_path: Path, fakes: list[str], options: list[str]
) -> None:
    if "--dask" in options:
        pytest.importorskip("distributed", reason="needs the dask extra")
    path = study_file(tmp_path, "{seconds: 0.05}", ", ".join(map(str, SEEDS)))
    kill_often(path, options, kills=20)
    kept = (tmp_path / "runs.jsonl").read_bytes()
    whole = kept[: kept.rindex(b"\n") + 1]
    run_study(path, tmp_path, workers=2, modules=fakes)
    assert (tmp_path / "runs.jsonl").read_bytes().startswith(whole)
    lines = log_lines(tmp_path)
    assert len({line["key"] for line in lines}) == len(lines) == len(SEEDS)
    assert {line["status"] for line in lines} == {"feasible"}
