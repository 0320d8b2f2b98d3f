"""``--write``: the MIP of a method, in a file, unsolved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from placegap.experiments.show.rendering import output, spinner
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Semantics

if TYPE_CHECKING:
    from placegap.experiments.running.placing import Attempt


def coarsened(instance: Instance, attempt: Attempt) -> tuple[Instance, Semantics]:
    """What the method of an attempt gets to see."""
    if attempt.coarsen is None:
        return instance, attempt.semantics
    from placegap.instances.problem.additive_memory import relax_memory
    from placegap.instances.transforms.table import coarsen

    instance, semantics = relax_memory(instance, attempt.semantics)
    found = coarsen(instance, attempt.coarsen, attempt.coarsen_params, semantics)
    return found.merge.coarse, semantics


def write_model_file(instance: Instance, attempt: Attempt, path: Path, as_json: bool) -> None:
    """Write the model of the method, and say so."""
    from placegap.solvers.models.export import write_model

    method = attempt.method
    with spinner(f"building the model of {method} for {instance.name}"):
        written = write_model(
            instance,
            attempt.semantics,
            method,
            attempt.params,
            path,
            time_limit_s=attempt.time_limit_s,
            seed=attempt.seed,
            incumbent=None if attempt.coarsen else attempt.incumbent,
        )
    if as_json:
        content = {
            "instance": instance.name,
            "semantics": attempt.semantics.model_dump(mode="json"),
            "method": method,
            "path": str(path),
            "rows": written.rows,
            "columns": written.columns,
            "unit_ns": written.unit_ns,
            "start_ns": written.start_ns,
        }
        print(json.dumps(content, ensure_ascii=False), flush=True)
        return
    size = f"{written.rows} rows, {written.columns} columns"
    output().print(
        f"{path}: {method}, {size}; 1 unit of the objective is {written.unit_ns:.15g} ns",
        markup=False,
        soft_wrap=True,
    )
