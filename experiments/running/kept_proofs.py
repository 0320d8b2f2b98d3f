"""Bounds that ``placegap place`` proved, kept in the user's cache: ``show`` does not prove twice.

A plan file may come from anywhere, and its bound is a claim. This folder is written by placegap
alone. A bound is found again by the content of its instance, its rules and the version of placegap.
PLACEGAP_PROOFS names another folder; if it is empty, nothing is kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from placegap.instances.files.document import read_json, write_json
from placegap.instances.files.plan_file import StoredBound
from placegap.instances.kernels.kernel_folder import user_cache
from placegap.instances.problem import PLAN_CLASSES, Instance, Semantics
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.result import RECORDED, Bound, Result, is_better
from placegap.solvers.solving.known_bounds import bound_to_store

EARLIER = " of an earlier run"


def keep_proof(result: Result) -> None:
    """Keep the bound of a result, if none is kept that is as good; a full disk keeps nothing."""
    found, rules = bound_to_store(result), result.semantics
    if found is None or result.gap is None or result.split is not None:
        return  # without a gap no method has proven anything
    if result.bound_origin.startswith(RECORDED):
        return
    path = _path(found.content_hash, found.semantics)
    known = _read(path, found.content_hash, found.semantics)
    if path is not None and (known is None or is_better(known.bound, found.bound, rules)):
        with suppress(OSError, InputError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(found.model_dump(mode="json", exclude_none=True), path)


def kept_proofs(instance: Instance, semantics: Semantics) -> Iterator[Bound]:
    """What earlier runs proved of an instance, also of wider classes of plans."""
    for plans in PLAN_CLASSES[PLAN_CLASSES.index(semantics.plan_class) :]:
        rules, content = semantics.with_plans(plans), instance.content_hash
        said = _read(_path(content, rules), content, rules)
        if said is not None and rules.plan_class == plans:
            yield Bound(said.bound, said.bound_origin + EARLIER, said.rests_on, plans)


def _path(content_hash: str, rules: Semantics) -> Path | None:
    folder = os.environ.get("PLACEGAP_PROOFS", str(user_cache() / "placegap" / "proofs"))
    key = f"{version('placegap')} {content_hash} {rules.model_dump_json()}"
    return Path(folder) / f"{sha256(key.encode()).hexdigest()[:32]}.json" if folder else None


def _read(path: Path | None, content_hash: str, rules: Semantics) -> StoredBound | None:
    """The bound in a file; None if there is none, or one about anything else."""
    if path is None:
        return None
    with suppress(OSError, InputError, ValueError):
        said = StoredBound.model_validate(read_json(path))
        return said if (said.content_hash, said.semantics) == (content_hash, rules) else None
    return None
