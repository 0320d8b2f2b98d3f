"""Importing this makes runs of studies read their instances slowly; a test undoes it."""

import time
from typing import Any

from placegap.experiments.studies import run

READING_S = 4.0

_load_source = run.load_source


def load_slowly(source: Any) -> Any:
    time.sleep(READING_S)
    return _load_source(source)


run.load_source = load_slowly  # type: ignore[assignment]
