"""The workloads by name, ``paper:network``, each with what its paper says of it.

Everything that a paper leaves open is a choice of ours, and stated: `Workload.note`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any

from placegap.instances.corpus.convolutional import (
    holography,
    inception_v3,
    nasnet_large,
    pnasnet_mobile,
    resnet,
    vgg16,
)
from placegap.instances.corpus.lowering import lower
from placegap.instances.corpus.tape import (
    MODULES,
    MODULES_TRAINING,
    ONNX,
    ONNX_ADAM,
    ONNX_SGD,
    Dialect,
    Tape,
)
from placegap.instances.corpus.transformers import (
    bert,
    bert_layers,
    evoformer,
    gpt3,
    swin,
    transformer,
)
from placegap.instances.corpus.translation import gnmt, nmt
from placegap.instances.io.document import Document
from placegap.instances.problem.instance import Provenance
from placegap.instances.reading.errors import InputError, instead_of, paused_collector

LARGEST_SIZE = 65_536
"""Of a batch or a number of steps: a limit against slips."""

MOST_STEPS = 1_024
"""Of time steps, each of which is hundreds of ops."""


@dataclass(frozen=True)
class Workload:
    """A network at the size that a paper placed it.

    Attributes
    ----------
    write : callable
        Writes the network on a tape; takes the tape and `sizes` by name.
    dialect : Dialect
        Framework and phase; which kinds of ops the graph has beside the layers'.
    sizes : dict of str to int
        What may be chosen: ``batch``, and ``steps`` of sentences.
    cluster : str
        The paper's cluster, among those that ship.
    ops, edges : int or None
        What the paper counts.
    ccr : float or None
        Its communication-to-computation ratio.
    parameters : float or None
        Millions of them in the published architecture, `cited` from there.
    note : str
        What the paper leaves open, and what was chosen.
    """

    write: Callable[..., None]
    dialect: Dialect
    sizes: Mapping[str, int]
    cluster: str
    ops: int | None
    edges: int | None = None
    ccr: float | None = None
    parameters: float | None = None
    cited: str = ""
    note: str = ""


SLIM = partial(
    Dialect,
    "tensorflow",
    training=True,
    optimizer="RMSProp",
    slots=2,
    decay_weights=True,
    initial_values=True,
    checkpoints=True,
    summaries=True,
)
"""TF-Slim's training script: RMSProp, penalties on weights, checkpoints and summaries."""

ADAM = partial(Dialect, "tensorflow", training=True, optimizer="Adam", slots=2, initial_values=True)

KERAS = "Keras Applications, trained ones"
CELERITAS, FD_DPS, TARNAWSKI = "celeritas-4xV100-pcie", "fd-dps-8xP100", "tarnawski-6x16GB"
MOIRAI = "moirai-intra-server"


def _celeritas() -> Mapping[str, Workload]:
    """Table 2; batches from section 6.2.1."""
    momentum = Dialect(
        "tensorflow",
        training=True,
        optimizer="Momentum",
        slots=1,
        decay_weights=True,
        initial_values=True,
    )
    watched = ADAM(decay_weights=True, checkpoints=True, summaries=True)
    return {
        "inception-v3": Workload(
            inception_v3,
            momentum,
            {"batch": 512},
            CELERITAS,
            6332,
            ccr=33.118,
            parameters=23.817352,
            cited=KERAS,
        ),
        "nmt": Workload(
            nmt,
            ADAM(),
            {"batch": 512, "steps": 30},
            CELERITAS,
            25463,
            ccr=18.63,
            note="30 steps and 32,000 pieces of words are ours",
        ),
        "transformer": Workload(
            transformer,
            ADAM(),
            {"batch": 256, "steps": 32},
            CELERITAS,
            36352,
            ccr=111.957,
            note="32 steps, 32,000 pieces of words and 8,192 feed-forward units are ours;"
            " heads one by one",
        ),
        "holography": Workload(
            holography,
            watched,
            {"batch": 32},
            CELERITAS,
            3810,
            ccr=49.147,
            note="a mean squared error stands for the loss, which propagates waves",
        ),
    }


def _fd_dps() -> Mapping[str, Workload]:
    """Table 3, with its batches."""
    apart = SLIM(fused_norms=False)
    every = SLIM(averages=True, clips=True, activity=True)
    return {
        "vgg-16": Workload(
            vgg16, every, {"batch": 64}, FD_DPS, 3932, 5461, parameters=138.357544, cited=KERAS
        ),
        "inception-v3": Workload(
            inception_v3,
            SLIM(averages=True),
            {"batch": 64},
            FD_DPS,
            12745,
            21928,
            parameters=23.817352,
            cited=KERAS,
        ),
        "resnet-50": Workload(
            resnet,
            apart,
            {"batch": 64},
            FD_DPS,
            12692,
            24345,
            parameters=25.557032,
            cited="torchvision, resnet50",
        ),
        "resnet-200": Workload(
            partial(resnet, layers=200),
            apart,
            {"batch": 16},
            FD_DPS,
            45472,
            82347,
            parameters=64.673832,
            cited="timm, resnet200",
        ),
        "pnasnet-mobile": Workload(
            pnasnet_mobile,
            SLIM(fused_norms=False, averages=True, clips=True),
            {"batch": 64},
            FD_DPS,
            62192,
            91957,
            parameters=5.1,
            cited="Liu et al. 2018, table 4",
        ),
        "nasnet-large": Workload(
            nasnet_large,
            apart,
            {"batch": 16},
            FD_DPS,
            83206,
            148548,
            parameters=88.753150,
            cited=KERAS,
        ),
    }


def _moirai() -> Mapping[str, Workload]:
    """Table IV. Every count there is layers x (11 + 12 heads)."""
    found: dict[str, Workload] = {}
    swins = (
        ("1.8b", (2, 2, 26, 2), 512, 16, 6496, 1800),
        ("6.6b", (2, 2, 40, 4), 768, 24, 14352, 6600),
        ("13b", (2, 2, 48, 4), 1024, 32, 22120, 13000),
    )
    for name, depths, width, heads, ops, rounded in swins:
        write = partial(swin, depths=depths, width=width, heads=heads)
        found[f"swin-{name}"] = Workload(
            write,
            MODULES,
            {"batch": 1},
            MOIRAI,
            ops,
            parameters=rounded,
            cited="Moirai, table IV, rounded",
            note=f"layers in stages of {', '.join(map(str, depths))} are ours",
        )
    gpts = (
        ("330m", 24, 1024, 16, 4872),
        ("1.3b", 24, 2048, 32, 9480),
        ("2.7b", 32, 2560, 32, 12640),
        ("13b", 40, 5120, 40, 19640),
    )
    for name, layers, width, heads, ops in gpts:
        tables = (50_257 + 2_048) * width  # of words and of positions
        millions = (layers * (12 * width**2 + 13 * width) + tables + 2 * width) / 1e6
        write = partial(gpt3, layers=layers, hidden=width, heads=heads)
        found[f"gpt-3-{name}"] = Workload(
            write,
            MODULES,
            {"batch": 1},
            MOIRAI,
            ops,
            parameters=millions,
            cited="GPT-2's architecture at the sizes of Brown et al. 2020, table 2.1",
            note="24 layers: the table says 32, its ops and parameters say 24"
            if name == "1.3b"
            else "",
        )
    stacks = (
        ("87m", 48, 256, 8, 128, 5136, 87),
        ("930m", 64, 512, 16, 612, 12992, 930),
        ("2.4b", 96, 1024, 32, 416, 37920, 2400),
        ("3.2b", 128, 1024, 32, 416, 50560, 3200),
    )
    for name, blocks, width, heads, pairs, ops, millions in stacks:
        write = partial(evoformer, blocks=blocks, width=width, heads=heads, pair_width=pairs)
        found[f"alphafold2-{name}"] = Workload(
            write,
            MODULES,
            {"batch": 128, "residues": 256},
            MOIRAI,
            ops,
            parameters=millions,
            cited="Moirai, table IV, rounded",
            note="256 residues are ours"
            + ("" if name == "87m" else f"; {pairs} channels of pairs meet the parameters"),
        )
    return found


def _tarnawski() -> Mapping[str, Workload]:
    """Inputs of dnn-partitioning, which holds the graphs; sizes are read off its files."""
    found: dict[str, Workload] = {}
    for layers, hidden, inner, ops, more, edges, more_edges in (
        (3, 128, 4096, 235, 600, 250, 817),
        (6, 128, 4096, 418, 1071, None, None),
        (12, 768, 3072, 783, 2012, 843, 2751),
    ):
        write = partial(bert, layers=layers, hidden=hidden, inner=inner)
        for end, dialect, count, links in (
            ("", ONNX, ops, edges),
            ("-training", ONNX_ADAM, more, more_edges),
        ):
            found[f"bert-{layers}{end}"] = Workload(
                write,
                dialect,
                {"batch": 24},
                TARNAWSKI,
                count,
                links,
                parameters=110.1 if layers == 12 else None,
                cited="Devlin et al. 2019: 110 M" if layers == 12 else "",
            )
    for end, dialect, count in (("", ONNX, 604), ("-training", ONNX_SGD, 1243)):
        found[f"resnet-50{end}"] = Workload(
            resnet,
            dialect,
            {"batch": 32},
            TARNAWSKI,
            count,
            parameters=25.557032,
            cited="torchvision, resnet50",
        )
    layered: tuple[tuple[str, Callable[..., None], int, int, int, float, str], ...] = (
        ("bert-24", bert_layers, 8, 32, 55, 336.2, "BERT-large with both heads, transformers"),
        ("gnmt", gnmt, 64, 96, 120, 0, ""),
        ("resnet-50", resnet, 128, 177, 193, 25.557032, "torchvision, resnet50"),
        ("inception-v3", inception_v3, 128, 326, 363, 23.817352, KERAS),
    )
    for name, written, batch, ops, edges, millions, cited in layered:
        for end, dialect, times in (("", MODULES, 1), ("-training", MODULES_TRAINING, 2)):
            found[f"{name}-layers{end}"] = Workload(
                written,
                dialect,
                {"batch": batch},
                TARNAWSKI,
                ops * times,
                None if name == "gnmt" else edges * times,
                parameters=millions or None,
                cited=cited,
            )
    return found


@cache
def workloads() -> Mapping[str, Workload]:
    """All workloads by name.

    Examples
    --------
    >>> workloads()["celeritas:nmt"].ops
    25463
    """
    papers = {
        "celeritas": _celeritas(),
        "fd-dps": _fd_dps(),
        "moirai": _moirai(),
        "tarnawski": _tarnawski(),
    }
    return dict(
        chain.from_iterable(
            ((f"{paper}:{name}", workload) for name, workload in found.items())
            for paper, found in papers.items()
        )
    )


def is_workload(name: str) -> bool:
    """Whether a name is meant for a workload: it begins with a paper's name and a colon.

    Examples
    --------
    >>> is_workload("celeritas:nmt"), is_workload("net.onnx")
    (True, False)
    """
    paper, colon, _ = name.partition(":")
    return bool(colon) and any(known.startswith(f"{paper}:") for known in workloads())


def find_workload(name: str) -> Workload:
    """A workload by name; an unknown name is an InputError that offers others."""
    found = workloads().get(name)
    if found is None:
        hint = instead_of(name, workloads(), "placegap instances")
        raise InputError(f"there is no workload {name!r}{hint}")
    return found


def build_workload(name: str, params: Mapping[str, Any] | None = None) -> Document:
    """The graph of a workload, as a document without a cluster; the same call gives the same graph.

    Parameters
    ----------
    name : str
        ``paper:network``, see `workloads`.
    params : mapping of str to int, optional
        Sizes other than the paper's: ``batch``, and ``steps`` where there are sentences; as
        numbers or as text.

    Raises
    ------
    InputError
        Unknown names, and sizes that are no positive integers.

    Notes
    -----
    O(ops). Times are costed when an instance is made of it.

    Examples
    --------
    >>> document = build_workload("tarnawski:bert-24-layers", {"batch": 1})
    >>> len(document.graph.ops), document.graph.provenance.parameters["batch"]
    (32, 1)
    """
    workload = find_workload(name)
    sizes = {**workload.sizes, **_read_sizes(name, workload, params or {})}
    with paused_collector():
        tape = Tape(workload.dialect)
        workload.write(tape, **sizes)
        provenance = Provenance(
            source=f"placegap generate {name}: the architecture as published, not a paper's file",
            changes=tuple(filter(None, (workload.note,))),
            parameters={**sizes, "dialect": workload.dialect.means},
        )
        graph = lower(tape, name, provenance)
    return Document(name=name, graph=graph)


def _read_sizes(name: str, workload: Workload, params: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for key, value in params.items():
        if key not in workload.sizes:
            known = ", ".join(workload.sizes)
            raise InputError(f"{name} has no parameter {key!r}; choose from {known}")
        most = MOST_STEPS if key == "steps" else LARGEST_SIZE
        text = str(value)
        if not (text.isascii() and text.isdigit() and len(text) < 9 and 0 < int(text) <= most):
            raise InputError(f"{name}: {key} must be an integer from 1 to {most} (got {text!r})")
        found[key] = int(text)
    return found


def count_parameters(name: str) -> int:
    """Trained parameters of a workload's network, without heads that only training has."""
    workload = find_workload(name)
    framework = workload.dialect.framework
    tape = Tape(MODULES if framework == "modules" else Dialect(framework))
    with paused_collector():
        workload.write(tape, **workload.sizes)
    found = {w.name: w.size for op in tape.ops for w in op.weights if w.trained}
    return sum(found.values())
