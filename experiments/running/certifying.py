"""Bounds that commands prove beside a plan: by a method, or by a certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from placegap.experiments.running.placing import Attempt, place, why_refused
from placegap.experiments.running.sources import Source, load_source
from placegap.instances.certificates.certificate_checker import Rejected
from placegap.instances.certificates.certificate_file import (
    Certificate,
    IdealsProof,
    StagesProof,
    certificate_content,
    certificate_of,
    check_content,
    plain_document,
    save_certificate,
)
from placegap.instances.files.document import read_json
from placegap.instances.files.plan_file import StoredBound
from placegap.instances.problem import Instance, Plan, Semantics, stored_semantics
from placegap.instances.problem.modules import with_content
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.input_files import refuse_other
from placegap.instances.reading.printable import json_text
from placegap.solvers.core.clock import Clock, LimitReached
from placegap.solvers.core.result import PROOF, RECORDED, Bound, Result, fault_words
from placegap.solvers.solving.known_bounds import bound_to_store, proven_by

SHARE, MOST_S = 0.25, 60.0  # of the limit, and seconds at most, for a certificate after the method
KEEPING_S = 0.3  # seconds to check the certificate of a plan's file before it is written

# Proofs that the checker finds by itself, by the objective that they are about.
WITHOUT_DATA: Mapping[str, IdealsProof | StagesProof] = {
    "max_load": IdealsProof(),
    "hybrid_pipeline": StagesProof(),
}

# Times of edges from device to device that a plan's file may need to be checked (0.6 s), and its
# certificate's size: that of 66 ops on four cards has 99,000 bytes.
MOST_MOVES, MOST_BYTES = 1_000_000, 200_000


LATE = "its check takes too long here; 'placegap verify' has no limit"


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
        float("inf") if result.bound_value is None else result.bound_value,
    )
    if found is None:
        return None
    if result.bound_ns is not None and result.bound_ns > found.bound_ns:
        printed = {"printed_bound_ns": result.bound_value, "printed_rests_on": result.rests_on}
        found = found.model_copy(update=printed)
    save_certificate(found, path)
    return found


def check_certificate(instance: Instance, path: str | Path) -> Verdict:
    """Let the stand-alone checker judge the certificate of a file."""
    raw = read_json(path)
    refuse_other(raw, "a certificate", path)
    return check_carried(instance, raw)


def check_carried(instance: Instance, raw: Any, limit_s: float | None = None) -> Verdict:
    """Let the stand-alone checker judge a certificate that a file carries."""
    try:
        check_content(plain_document(instance), raw, Clock(limit_s).check)
        rules = stored_semantics(raw["semantics"])
        return Verdict(raw["bound_ns"], rules, kind=raw["proof"]["kind"])
    except LimitReached:
        return Verdict(reason=LATE)
    except (Rejected, ValueError) as error:  # of semantics: the checker looks at few of its rules
        return Verdict(reason=str(error).splitlines()[0])


def bound_to_keep(
    instance: Instance, result: Result, found: Certificate | None = None
) -> StoredBound | None:
    """What a plan file keeps of a bound, with a small certificate: `found`, or one without data."""
    bound, rules = bound_to_store(result), result.semantics
    whole = with_content(instance, result.instance_hash)
    if bound is None or whole is None or result.bound_origin.startswith(RECORDED):
        return bound  # what the corpus records needs no certificate
    seen, moves = whole[0], len(whole[0].graph.edges) * instance.num_devices**2
    proof = WITHOUT_DATA.get(rules.objective)
    if found is None and proof is not None and moves <= MOST_MOVES:
        found = certificate_of(seen, rules, bound.bound, proof)
        # the check proves all that is true of chains, in the end; of peaks it may prove less
        is_sure = bool(rules.load_passes) and rules.memory_rule == "sum"
        limit_s = 0.0 if is_sure else KEEPING_S
        verdict = check_carried(seen, certificate_content(found), limit_s)
        found = found if verdict.holds or (is_sure and verdict.reason == LATE) else None
    content = None if found is None else certificate_content(found)
    is_small = len(json_text(content)) <= MOST_BYTES
    return bound.model_copy(update={"certificate": content if is_small else None})


def kept_bounds(
    instance: Instance,
    semantics: Semantics,
    said: StoredBound | None,
    known: Bound | None = None,
    limit_s: float | None = None,
) -> tuple[list[Bound], tuple[str, ...]]:
    """The bound of a plan file's certificate, if it is above the known one; or why it has none."""
    if said is None or said.certificate is None or said.content_hash != instance.content_hash:
        return [], ()
    if known is not None and known.value >= said.bound:
        return [], ()
    verdict = check_carried(instance, said.certificate, limit_s)
    found, rules = certified_bounds(verdict, semantics), verdict.semantics
    reason = verdict.reason if rules is None else f"it is for {rules.label}"
    return found, () if found else (f"its certificate proves nothing here: {reason}",)


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
    return [Bound(verdict.bound_ns, "certificate", PROOF, semantics.plan_class)]
