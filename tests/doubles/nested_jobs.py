"""A worker's task that starts workers of its own, as decomposition does."""

from __future__ import annotations

import time
from pathlib import Path

from placegap.instances import Makespan, example
from placegap.solvers.decomposition import section_jobs
from placegap.solvers.decomposition.section_jobs import Job


def nest(name: str) -> None:
    """Wait for a minute, with two section workers that are ready; a file says when they are."""
    section_jobs.SPAWN_AFTER_S = 0.0
    with section_jobs.SectionWorkers(2) as workers:
        while workers.wanted < 2:
            time.sleep(0.02)
        workers.submit(Job(example(), Makespan(), "cp", None, 9.0, 0, None))
        Path(name).touch()
        time.sleep(60)
