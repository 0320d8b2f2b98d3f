"""Where an instance comes from, in a form that can be sent to a worker process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

from placegap.instances.cluster_file import cluster_names, load_cluster
from placegap.instances.corpus import corpus_names, load_corpus
from placegap.instances.document import Document
from placegap.instances.errors import InputError
from placegap.instances.model import Cluster, Instance
from placegap.instances.near_names import instead_of
from placegap.instances.reader import read_model
from placegap.instances.time_unit import TimeUnit


@dataclass(frozen=True)
class Source:
    """A model (corpus name, path, or generator family), and the cluster it is placed on.

    Attributes
    ----------
    model : str
        Name in the corpus, path of a readable file, or name of a generator family.
    cluster : str or None
        Name of a cluster that ships with the package, or a path; None: the file's own devices.
    time_unit : str or None
        Unit of the file's times, where its format leaves that open.
    generated : tuple or None
        Parameters as (name, value) pairs and the seed, if `model` is a generator family.
    """

    model: str
    cluster: str | None = None
    time_unit: TimeUnit | None = None
    generated: tuple[tuple[tuple[str, int | float | str | bool], ...], int] | None = None


@lru_cache(maxsize=4)
def load_source(source: Source) -> Instance:
    """The instance of a source; the last few are kept.

    Raises
    ------
    InputError
        One line that names the file, the place and what is wrong there.
    """
    document = _load_document(source.model, source.time_unit, source.generated)
    if source.cluster is None and document.cluster is None:
        raise InputError(
            f"{source.model} brings no devices; choose a cluster (--cluster): a file, or a name"
            " that 'placegap instances' lists"
        )
    return document.instance(None if source.cluster is None else find_cluster(source.cluster))


@lru_cache(maxsize=4)
def _load_document(
    model: str,
    time_unit: TimeUnit | None,
    generated: tuple[tuple[tuple[str, int | float | str | bool], ...], int] | None,
) -> Document:
    if generated is None:
        return find_model(model, time_unit)
    from placegap.instances.generate import generate

    params, seed = generated
    graph = generate(model, dict(params), seed)
    return Document(name=graph.name, graph=graph)


def find_model(model: str, time_unit: TimeUnit | None = None) -> Document:
    """A document by its name in the corpus, or from a file of any readable format.

    A name of the corpus wins over a file of that name; ``./name`` is the file.
    """
    if model in corpus_names():
        if time_unit is not None:
            raise InputError(f"{model} states its times in ns; leave out --time-unit")
        return load_corpus(model)
    if not os.path.exists(model) and "." not in os.path.basename(model):
        hint = instead_of(model, corpus_names(), "placegap instances")
        raise InputError(f"there is no file {model!r}, and no such graph in the corpus{hint}")
    return read_model(model, time_unit)


def find_cluster(cluster: str) -> Cluster:
    """A cluster by name, or from a file."""
    return load_cluster(cluster)


def is_shipped_cluster(cluster: str) -> bool:
    """Whether a cluster of that name ships with the package."""
    return cluster in cluster_names()
