"""What is proven on the command line beside a plan: by a method now, or by a certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from placegap.experiments.running.placing import Attempt, place, why_refused
from placegap.experiments.running.sources import Source, load_source
from placegap.instances.certificates.certificate_checker import Rejected
from placegap.instances.certificates.certificate_file import (
    Certificate,
    check_content,
    plain_document,
    save_certificate,
)
from placegap.instances.files.document import read_json
from placegap.instances.problem import Instance, Plan, Semantics, plan_class, stored_semantics
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import refuse_other
from placegap.solvers.core.result import PROOF, Bound, Result, fault_words
from placegap.solvers.solving.known_bounds import proven_by

SHARE, MOST_S = 0.25, 60.0
"""Of the time limit, and seconds at most, that a certificate takes after the method."""


@dataclass(frozen=True)
class Verdict:
    """What the checker finds: bound and semantics where the certificate holds, and else why not."""

    bound_ns: int | None = None
    semantics: Semantics | None = None
    kind: str = ""
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether the bound is proven."""
        return self.bound_ns is not None


def write_certificate(
    instance: Instance, result: Result, path: Path, time_limit_s: float
) -> Certificate | None:
    """Certify as much of a result's bound as some time allows, and write that; None: nothing."""
    from placegap.solvers.bounds.certificates.write import certify

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
    """Let the stand-alone checker judge the certificate of a file."""
    raw = read_json(path)
    refuse_other(raw, "a certificate", path)
    try:
        check_content(plain_document(instance), raw)
        rules = stored_semantics(raw["semantics"])
        return Verdict(raw["bound_ns"], rules, kind=raw["proof"]["kind"])
    except (Rejected, ValueError) as error:  # of semantics: the checker looks at few of its rules
        return Verdict(reason=str(error).splitlines()[0])


class Proof(NamedTuple):
    """A method that is to prove a bound, its parameters and its seconds."""

    method: str
    params: Mapping[str, str]
    time_limit_s: float


def proven(
    source: Source | Instance, semantics: Semantics, proof: Proof, start: Plan | None = None
) -> tuple[list[Bound], tuple[str, ...]]:
    """What a method proves in a worker process from a feasible plan `start`; and warnings."""
    instance = source if isinstance(source, Instance) else load_source(source)
    reason = why_refused(instance, semantics, proof.method, proof.params)
    if reason is not None:
        raise InputError(
            f"{proof.method} does not apply to {instance.name}: {reason}; leave out --method, or"
            f" name one that does {semantics.label}"
        )
    attempt = Attempt(
        source, semantics, proof.method, proof.params, proof.time_limit_s, incumbent=start
    )
    try:
        result, said = place(attempt)
    except RuntimeError as error:
        return [], (f"no bound: {error}",)
    return list(proven_by(result)), (*said, *map(fault_words, result.faults))


def certified_bounds(verdict: Verdict, semantics: Semantics) -> list[Bound]:
    """What a checked certificate proves; nothing where it is one under other rules."""
    if verdict.bound_ns is None or verdict.semantics != semantics:
        return []
    return [Bound(verdict.bound_ns, "certificate", PROOF, plan_class(semantics))]
