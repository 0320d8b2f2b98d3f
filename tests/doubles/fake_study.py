"""A study of the fake methods, in this process or in one that a test may kill."""

import json
import time
from pathlib import Path
from subprocess import Popen

from doubles.processes import begin

STUDY = """
name: fakes
tables:
  - name: t
    semantics: {objective: makespan}
    instances: [%s]
    clusters: [celeritas-4xV100-pcie]
    methods: [{name: fake, params: [%s]}]
    seeds: [%s]
    limits: {time_limit_s: 0.2}
"""


def study_file(
    tmp_path: Path, params: str = "{}", seeds: str = "0", instances: str = "zfnet512"
) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY % (instances, params, seeds))
    return path


def log_lines(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]


STUDY_WITH_FAKES = """
import sys
from functools import partial
import doubles.fake_methods
from placegap.experiments.studies import run as study
study.run_rows_of = partial(study.run_rows_of, modules=['doubles.fake_methods'])
from placegap.experiments.cli import main
sys.exit(main(['study', *sys.argv[1:]]))
"""


def study_process(path: Path, out: Path, *options: str) -> Popen[str]:
    """A study in a process of its own."""
    return begin(STUDY_WITH_FAKES, str(path), "--out", str(out), *options)


def wait_for_lines(out: Path, count: int) -> None:
    log, patience = out / "runs.jsonl", time.monotonic() + 30
    while not log.exists() or log.read_bytes().count(b"\n") < count:
        assert time.monotonic() < patience
        time.sleep(0.01)
