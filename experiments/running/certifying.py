"""Certificates on the command line: written for a result, and checked for an instance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from placegap.instances.io.certificate_checker import Rejected
from placegap.instances.io.certificate_file import (
    Certificate,
    check_content,
    plain_document,
    save_certificate,
)
from placegap.instances.io.document import read_json
from placegap.instances.problem.instance import Instance
from placegap.instances.problem.semantics import Semantics, parse_semantics
from placegap.instances.reading.input_files import refuse_other
from placegap.solvers.core.result import Result

SHARE, MOST_S = 0.25, 60.0
"""Of the time limit, and seconds at most, that a certificate takes after the method."""


@dataclass(frozen=True)
class Verdict:
    """What the checker finds: bound and semantics where the certificate holds, and else why not."""

    bound_ns: int | None = None
    semantics: Semantics | None = None
    kind: str = ""
    words: tuple[str, ...] = ()
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether the bound is proven, or a solver's word."""
        return self.bound_ns is not None


def write_certificate(
    instance: Instance, result: Result, path: Path, time_limit_s: float
) -> Certificate | None:
    """Certify as much of a result's bound as some time allows, and write that; None: nothing."""
    from placegap.solvers.bounds.certificates import certify

    found = certify(
        instance,
        result.semantics,
        min(MOST_S, SHARE * time_limit_s),
        float("inf") if result.bound_ns is None else result.bound_ns,
    )
    if found is None:
        return None
    if result.bound_ns is not None and result.bound_ns > found.bound_ns:
        printed = {"printed_bound_ns": result.bound_ns, "printed_rests_on": result.rests_on}
        found = found.model_copy(update=printed)
    save_certificate(found, path)
    return found


def check_certificate(instance: Instance, path: str | Path) -> Verdict:
    """Let the stand-alone checker judge the certificate of a file.

    Raises
    ------
    InputError
        If the file cannot be read, or holds no JSON, or something else of placegap's.
    """
    raw = read_json(path)
    refuse_other(raw, "a certificate", path)
    try:
        words = check_content(plain_document(instance), raw)
        return Verdict(
            raw["bound_ns"],
            parse_semantics(raw["semantics"]),
            kind=raw["proof"]["kind"],
            words=tuple(words),
        )
    except (Rejected, ValueError) as error:  # of semantics: the checker looks at few of its rules
        return Verdict(reason=str(error).splitlines()[0])
