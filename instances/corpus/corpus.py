"""The corpus: graphs that ship with the package, and the best values that are known for them.

Graphs lie in ``data/corpus/<family>/<name>.json.gz``; each family's README says where they come
from, under which licence, what was changed, and what builds them. The graphs of `ONNX_FAMILY` bring
no cluster, those of `PARTITIONING_FAMILY` their own devices and semantics, and those of
`NETWORK_FAMILY` a cluster that ships, on which placement matters.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import StringConstraints, TypeAdapter, model_validator

from placegap.instances.costing.costing import with_costs
from placegap.instances.files.document import Document, load_document, read_json
from placegap.instances.problem import BestKnown, Cluster, Instance, Name, Semantics
from placegap.instances.reading.errors import InputError, as_input_error, instead_of
from placegap.instances.reading.input_files import data_path

ONNX_FAMILY, PARTITIONING_FAMILY = "onnx-light", "dnn-partitioning"
NETWORK_FAMILY = "networks"


@cache
def _paths() -> dict[str, Path]:
    found = sorted(data_path("corpus").glob("*/*.json.gz"), key=lambda path: path.name)
    return {path.name.removesuffix(".json.gz"): path for path in found}


def corpus_names(family: str | None = None) -> tuple[str, ...]:
    """Names of the graphs that ship with the package, sorted; all, or those of one family.

    Examples
    --------
    >>> "resnet50" in corpus_names()
    True
    """
    return tuple(name for name, path in _paths().items() if family in (None, path.parent.name))


def corpus_path(name: str) -> Path:
    """File of a graph of the corpus; an unknown name is an InputError that offers others."""
    path = _paths().get(name)
    if path is None:
        hint = instead_of(name, corpus_names(), "placegap instances")
        raise InputError(f"there is no graph {name!r} in the corpus{hint}")
    return path


def load_corpus(name: str) -> Document:
    """A graph of the corpus, as a document; with a cluster where its family has them.

    Parameters
    ----------
    name : str
        One of `corpus_names`.

    Examples
    --------
    >>> len(load_corpus("bvlc_alexnet").graph.ops)
    24
    """
    found = load_document(corpus_path(name))
    graph = with_costs(found.graph, "roofline")
    return found.model_copy(update={"graph": graph}).read_from(name)


class BestEntry(BestKnown):
    """What is known of one instance under one semantics.

    `content_hash` is the instance's: an entry says nothing about a graph or a cluster that changed
    under its name since.
    """

    graph: Name
    cluster: Name
    content_hash: Annotated[str, StringConstraints(strict=True, pattern="^[0-9a-f]{64}$")]

    @model_validator(mode="after")
    def _bound_below_value(self) -> Self:
        value, bound = self.value_ns, self.bound_ns
        if value is not None and bound is not None and bound > value:
            raise ValueError(
                f"bound {bound} ({self.bound_origin}) of {self.graph} on {self.cluster},"
                f" {self.semantics.label}, is above the value {value} ({self.value_origin})"
            )
        return self

    @property
    def key(self) -> tuple[str, str, str]:
        """Graph, cluster and semantics: an entry is the only one of its key."""
        return self.graph, self.cluster, self.semantics.label


def load_best_known(path: str | Path | None = None) -> tuple[BestEntry, ...]:
    """All entries of a best-known file: the package's own, or another."""
    path = data_path("corpus", "best-known.json") if path is None else path
    raw = read_json(path)
    with as_input_error(raw, path):
        entries = TypeAdapter(tuple[BestEntry, ...]).validate_python(raw)
    seen = set()
    for number, entry in enumerate(entries):
        if entry.key in seen:
            raise InputError(f"[{number}]: {' / '.join(entry.key)} appears twice", path)
        seen.add(entry.key)
    return entries


def best_known(
    name: str, cluster: str | Cluster, semantics: Semantics, path: str | Path | None = None
) -> BestKnown | None:
    """Best-known value and bound of a graph on a cluster under one semantics, or None.

    Parameters
    ----------
    name : str
        Name of the graph.
    cluster : str or Cluster
        The cluster, or its name.
    semantics : Semantics
    path : str or Path, optional
        A best-known file; the package's own by default.

    Examples
    --------
    >>> from placegap.instances import Makespan
    >>> best_known("bvlc_alexnet", "moirai-intra-server", Makespan()).bound_ns
    453743
    """
    wanted = (name, cluster if isinstance(cluster, str) else cluster.name, semantics.label)
    for entry in load_best_known(path):
        if entry.key == wanted:
            return BestKnown(**{field: getattr(entry, field) for field in BestKnown.model_fields})
    return None


def known_of(instance: Instance, semantics: Semantics) -> tuple[BestKnown, ...]:
    """What the corpus records of this very content under one semantics."""
    # Not what the instance's file states (`Instance.best_known`), which anybody can write.
    found = _recorded().get(instance.content_hash, ())
    return tuple(entry for entry in found if entry.semantics == semantics)


@cache
def _recorded() -> dict[str, list[BestEntry]]:
    """The package's own entries by the content that they are about."""
    entries: dict[str, list[BestEntry]] = {}
    for entry in load_best_known():
        entries.setdefault(entry.content_hash, []).append(entry)
    return entries
