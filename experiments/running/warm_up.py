"""What every worker does around a run: load what it needs, and put what failed in one line."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from placegap.instances.kernels.kernel import all_compiled
from placegap.instances.problem import Semantics
from placegap.instances.problem.example import example
from placegap.instances.reading.errors import InputError
from placegap.solvers import run_method
from placegap.solvers.core.registry import OURS, find_method

# A run's hard limit is its time limit plus this: the method's own clock leaves out reading the
# instance and compiling kernels, and some methods look at theirs only now and then.
GRACE_S = 180.0

_warm: set[tuple[str, str, str]] = set()


def one_line(error: BaseException) -> str:
    """``etf.py:57: KeyError: 'conv1'``: the last line of a user's code, or where it was raised."""
    places = [
        (str(frame.f_globals.get("__name__")).partition(".")[0], frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    users = next((top for top, *_ in places if top not in (OURS, *sys.stdlib_module_names)), None)
    said = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    if users is not None or not isinstance(error, InputError):  # one of ours is a sentence
        for _, file, line in [each for each in places if users in (None, each[0])][-1:]:
            said = f"{Path(file).name}:{line}: {said}"
    return " ".join(said.split())


EXAMPLE_S = 1.0  # of a run on the larger example


def warm_up(method: str, semantics: Semantics, params: Mapping[str, Any]) -> None:
    """Load a method's modules and kernels by runs on small examples."""
    # So no run's time includes that; kernels that are not kept yet are compiled. The example of
    # four ops is solved at once. In the one of 48 ops, searches branch, and exact methods ask for
    # all bounds. A search that would go on for as long as it may gets a few steps.
    # a warm-up with parameters that say how long to search could take as long as the run
    schema = find_method(method).params
    effort = schema.efforts()
    params = {key: value for key, value in params.items() if key not in effort}
    params |= schema.little_effort()
    what = (method, semantics.label, repr(sorted(params.items())))
    if what in _warm:
        return
    _warm.add(what)
    from placegap.instances.corpus.generate import generate
    from placegap.instances.files.document import Document

    small = example()
    graph = generate("layered", {"ops": 48, "width": 4}, seed=2)
    large = Document(name="warm-up", graph=graph).instance(small.cluster)
    for instance, limit_s in ((small, GRACE_S), (large, EXAMPLE_S)):
        # what fails here fails in the run itself, where it is reported
        with contextlib.suppress(Exception), all_compiled():
            run_method(instance, semantics, method, params, time_limit_s=limit_s)
