"""Certificates as JSON: a lower bound, and the integers that prove it to any reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from placegap.instances.certificates import (
    certificate_checker,
    certificate_flow,
    certificate_hybrid,
    certificate_ideals,
)
from placegap.instances.certificates.certificate_layers import LayerTerms
from placegap.instances.files.document import Document, Version, write_json
from placegap.instances.problem import Count, Instance, InstancePart, Semantics, StatedSemantics

# An op, an edge, a device or a channel, counted from 0; or a weight.
Number = Annotated[int, Field(strict=True, ge=0)]

Price = Annotated[int, Field(strict=True)]


class PathProof(InstancePart):
    """The longest path, every op on the device that is best for the path as a whole."""

    kind: Literal["path"] = "path"


class LongestProof(InstancePart):
    """The longest colocation group, where it is fastest."""

    kind: Literal["longest"] = "longest"


class WorkProof(InstancePart):
    """Work shared out over devices."""

    kind: Literal["work"] = "work"
    #: Of the devices, not all 0.
    weights: tuple[Number, ...]
    #: Whose work counts; what must come before and after them is added. None stands for all.
    ops: tuple[Number, ...] | None = None


class WorkWindow(InstancePart):
    """Ops between two others, whose work and transfers must fall between these."""

    #: The op before, those between, the op after; None stands for all of the section.
    ops: tuple[Number, ...] | None = None
    #: Weight of the work of each device.
    devices: tuple[Number, ...]
    #: Weights of what channels carry. Channels are numbered as in `referee.channels`.
    channels: tuple[tuple[Number, Number], ...] = ()


class Leaf(InstancePart):
    """Multipliers of a relaxation: any of them prove something."""

    #: Flow along the edges, by which paths count.
    flows: tuple[tuple[Number, Number], ...] = ()
    #: More flow through an op, from the start to the end of all.
    alone: tuple[tuple[Number, Number], ...] = ()
    windows: tuple[WorkWindow, ...] = ()
    #: What it brings that the producer (end 0) or the consumer (1) of an edge is on a device, and
    #: costs the edge.
    prices: tuple[tuple[Number, Number, Number, Price], ...] = ()
    #: Price of a byte on each device.
    memory: tuple[Number, ...] | None = None


class Branch(InstancePart):
    """Cases of one op: sets of devices that together cover all that it can be on."""

    op: Number
    cases: tuple[tuple[Number, ...], ...]
    nodes: tuple[Branch | Leaf, ...]


class TreeProof(InstancePart):
    """A tree of cases of the whole graph, with multipliers for each leaf."""

    kind: Literal["tree"] = "tree"
    tree: Branch | Leaf


class ArcRow(InstancePart):
    """What a section takes at least from one device to another; null stands for every device."""

    start: Number | None = None
    end: Number | None = None
    tree: Branch | Leaf


class SectionArc(InstancePart):
    """The ops strictly between two ops of a chain, and what is proven of them beside paths."""

    inside: tuple[Number, ...] = ()
    rows: tuple[ArcRow, ...] = ()


class ChainProof(InstancePart):
    """Ops one after the other, and the sections between them."""

    kind: Literal["chain"] = "chain"
    ops: tuple[Number, ...]
    arcs: tuple[SectionArc, ...] = ()


class MachinePrices(InstancePart):
    """Prices of a nanosecond of devices and channels."""

    devices: tuple[Number, ...]
    #: Channels are numbered as in `referee.channels`; others cost nothing.
    channels: tuple[tuple[Number, Number], ...] = ()


class LayersProof(InstancePart):
    """Ops in a row, and prices of what lies between each two of them."""

    kind: Literal["layers"] = "layers"
    #: Each behind the one before.
    ops: tuple[Number, ...]
    prices: tuple[MachinePrices, ...] = ()
    #: Of each two neighbours, numbers of the prices that are tried; all prove something.
    windows: tuple[tuple[Number, ...], ...] = ()


class IdealsProof(InstancePart):
    """No data: the checker goes through all ideals, and finds no chain of a lower load."""

    kind: Literal["ideals"] = "ideals"


class StagesProof(InstancePart):
    """No data: the checker goes through all rows of stages, and finds no faster hybrid plan."""

    kind: Literal["stages"] = "stages"


class PricesProof(InstancePart):
    """Prices of machines, by which all layers cost more than these pay (serving_flow)."""

    kind: Literal["prices"] = "prices"
    #: Units of the bound in which throughputs are counted, rounded up.
    grid: Number
    #: Of the machines in the order of the cluster's devices.
    prices: tuple[Number, ...]


Proof = Annotated[
    PathProof
    | LongestProof
    | WorkProof
    | TreeProof
    | ChainProof
    | LayersProof
    | IdealsProof
    | StagesProof
    | PricesProof,
    Field(discriminator="kind"),
]


class Certificate(InstancePart):
    """A lower bound on all plans of an instance under a semantics, and its proof."""

    format: Literal["placegap-certificate"] = "placegap-certificate"
    version: Version = 1
    #: instance, instance_hash: Name of the instance, and the SHA-256 of its content.
    instance: str
    instance_hash: str
    semantics: StatedSemantics
    #: What the proof proves; of serving_flow in millionths of a token per second, at most.
    bound_ns: Count
    proof: Proof
    #: A higher bound that was found too, proved by `printed_rests_on`; nothing checks it.
    printed_bound_ns: Count | None = None
    printed_rests_on: str = ""


def certificate_of(
    instance: Instance, semantics: Semantics, bound_ns: int, proof: Proof
) -> Certificate:
    return Certificate(
        instance=instance.name,
        instance_hash=instance.content_hash,
        semantics=semantics,
        bound_ns=bound_ns,
        proof=proof,
    )


def certificate_content(certificate: Certificate) -> dict[str, Any]:
    """The JSON of a certificate: what a file holds, and the checker reads."""
    return certificate.model_dump(mode="json", exclude_none=True)


def save_certificate(certificate: Certificate, path: str | Path) -> None:
    write_json(certificate_content(certificate), path)


def plain_document(instance: Instance) -> dict[str, Any]:
    """The JSON of an instance, as the checker reads it from a file."""
    return Document.of(instance).model_dump(mode="json", exclude_defaults=True)


def check_content(document: Any, certificate: Any, tick: Callable[[], None] = lambda: None) -> None:
    """Let the checker of its kind judge a certificate; `tick` may raise to end a long check."""
    proof = certificate.get("proof") if isinstance(certificate, dict) else None
    kind = proof.get("kind") if isinstance(proof, dict) else None
    own = {
        "ideals": certificate_ideals.check,
        "stages": certificate_hybrid.check,
        "prices": certificate_flow.check,
    }
    if judge := own.get(str(kind)):
        judge(document, certificate, tick)
    else:
        certificate_checker.check(document, certificate, LayerTerms)
