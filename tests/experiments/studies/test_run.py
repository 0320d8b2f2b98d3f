"""A study may be killed at any moment: nothing is lost, nothing is repeated."""

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from doubles.fake_study import log_lines, study_file, study_process, wait_for_lines
from doubles.processes import finish, no_session, send

from placegap.experiments.running import pool
from placegap.experiments.running.pool import run_here
from placegap.experiments.studies import run as study
from placegap.experiments.studies.run import run_study
from placegap.experiments.studies.runs import rows_of
from placegap.instances.files.document import save_document


def test_every_ending_is_a_line_of_the_log(
    tmp_path: Path, fakes: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = "{kind: crash}, {kind: error}, {kind: none}, {kind: infeasible}, {}"
    kinds += ", {kind: text}, {kind: nan}"
    path = study_file(tmp_path, kinds + ", {bound: 1}, {bound: 9000000000}")
    cells = rows_of(run_study(path, tmp_path / "out", workers=2, modules=fakes))
    ended = ["crashed", "error", "no_plan", "infeasible", "feasible", "error", "error"]
    ended += ["feasible", "disagreement"]
    assert [cell.status for cell in cells] == ended
    assert "SIGKILL" in cells[0].message
    assert re.fullmatch(r"fake_methods.py:\d+: RuntimeError: two lines", cells[1].message)
    assert capsys.readouterr().err.count("fake on zfnet512 failed: ") == 1  # its first, at once
    assert cells[5].message == "nodes must be a whole number (got 'many')"
    assert "not JSON compliant" in cells[6].message
    assert "no plan is better than 9000000000 ns" in cells[8].message
    lines = log_lines(tmp_path / "out")
    assert sorted(str(line["status"]) for line in lines) == sorted(cell.status for cell in cells)
    # a study that is complete runs nothing, failures included
    before = (tmp_path / "out" / "runs.jsonl").read_bytes()
    run_study(path, tmp_path / "out", workers=2, modules=fakes)
    assert (tmp_path / "out" / "runs.jsonl").read_bytes() == before


def test_plans_that_a_method_reports_on_the_way_are_in_the_log(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "run_pool", run_here)
    monkeypatch.chdir(tmp_path)
    path = study_file(tmp_path, "{tells: true, seconds: 0.3}, {}")
    tells, silent = rows_of(run_study(path, tmp_path / "out", workers=1, modules=fakes))
    ((at_s, value),) = tells.found
    assert tells.anytime == f"{at_s:.3f}:{value}"
    assert value == tells.value_ns == silent.value_ns
    assert tells.target_s == at_s < tells.solve_s - 0.2
    assert silent.anytime == ""
    assert silent.target_s == silent.time_s


def test_runs_are_known_by_content_not_by_name(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from placegap.instances import load_corpus

    monkeypatch.setattr(study, "run_pool", run_here)
    document = load_corpus("zfnet512")
    save_document(document.model_copy(update={"name": "copy"}), tmp_path / "copy.json")
    path = study_file(tmp_path, instances="zfnet512, copy.json")
    cells = rows_of(run_study(path, tmp_path / "out", workers=1, modules=fakes))
    assert [cell.instance for cell in cells] == ["zfnet512", "copy"]
    assert len(log_lines(tmp_path / "out")) == 1
    assert cells[0].value_ns == cells[1].value_ns is not None


def test_a_study_killed_at_any_moment_loses_and_repeats_nothing(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = study_file(tmp_path, "{seconds: 0.05}", seeds="0, 1, 2, 3, 4, 5, 6, 7"), tmp_path
    process = study_process(path, out, "--workers", "1")
    wait_for_lines(out, 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = (out / "runs.jsonl").read_bytes()
    whole = kept[: kept.rindex(b"\n") + 1]
    assert 2 <= whole.count(b"\n") < 8
    monkeypatch.setattr(study, "run_pool", run_here)
    run_study(path, out, workers=1, modules=fakes)
    assert (out / "runs.jsonl").read_bytes().startswith(whole)
    keys = [line["key"] for line in log_lines(out)]
    assert len(keys) == len(set(keys)) == 8


def test_after_a_signal_to_all_processes_every_run_is_done_exactly_once(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A worker that the signal reached would leave the line of a crash, and its run undone.
    path = study_file(tmp_path, "{seconds: 0.2}", seeds="0, 1, 2, 3, 4, 5")
    process = study_process(path, tmp_path, "--workers", "2")
    wait_for_lines(tmp_path, 2)
    send(process, signal.SIGTERM)
    send(process, signal.SIGTERM)  # as `timeout` does
    out, err = finish(process)
    assert (process.returncode, out) == (143, "")
    assert err.splitlines()[-1] == (
        f"placegap: stopped; {tmp_path / 'runs.jsonl'} has every finished run, and"
        " the same command continues from there"
    )
    assert no_session(process.pid)
    before = (tmp_path / "runs.jsonl").read_bytes()
    monkeypatch.setattr(study, "run_pool", run_here)
    run_study(path, tmp_path, workers=2, modules=fakes)
    assert (tmp_path / "runs.jsonl").read_bytes().startswith(before)
    lines = log_lines(tmp_path)
    assert [line["status"] for line in lines] == ["feasible"] * 6
    assert len({line["key"] for line in lines}) == 6


def test_what_has_been_computed_when_a_signal_comes_is_in_the_log(
    tmp_path: Path, fakes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # While the first line is written the second run ends, and Ctrl-C comes.
    path = study_file(tmp_path, "{seconds: 0.1}", seeds="0, 1")
    monkeypatch.setenv("PLACEGAP_TEST_ENDED", str(tmp_path))
    append = study.RunLog.append

    def interrupt_and_append(log: study.RunLog, record: dict[str, Any]) -> None:
        if not log.records:
            while not (tmp_path / "ended-0").exists() or not (tmp_path / "ended-1").exists():
                time.sleep(0.02)
            time.sleep(0.3)  # it is on its way
            signal.raise_signal(signal.SIGINT)
        append(log, record)

    monkeypatch.setattr(study.RunLog, "append", interrupt_and_append)
    with pool.handled(), pytest.raises(KeyboardInterrupt):
        run_study(path, tmp_path, workers=2, modules=fakes)
    assert [line["status"] for line in log_lines(tmp_path)] == ["feasible"] * 2
