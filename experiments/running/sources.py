"""Where an instance comes from, in a form that can be sent to a worker process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from placegap.instances.corpus.corpus import corpus_names, load_corpus
from placegap.instances.corpus.workloads.registry import build_workload, is_workload
from placegap.instances.files.cluster_file import cluster_names, load_cluster
from placegap.instances.files.document import Document
from placegap.instances.importers.onnx.model import ASSUMED_DIMS
from placegap.instances.importers.reader import read_model
from placegap.instances.importers.time_unit import TimeUnit
from placegap.instances.problem.instance import Cluster, Graph, Instance
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.near_names import instead_of


@dataclass(frozen=True)
class Source:
    """A model (corpus name, path, or generator family), and the cluster it is placed on.

    Attributes
    ----------
    model : str
        Name in the corpus, path of a readable file, name of a workload or of a generator family.
    cluster : str or None
        Name of a cluster that ships with the package, or a path; None: the file's own devices.
    time_unit : str or None
        Unit of the file's times, where its format leaves that open.
    generated : tuple or None
        Parameters as (name, value) pairs and the seed, if `model` is a generator family.
    dims : tuple of (str, int)
        Sizes of the dimensions that an ONNX file leaves open, or of a workload.
    """

    model: str
    cluster: str | None = None
    time_unit: TimeUnit | None = None
    generated: tuple[tuple[tuple[str, int | float | str | bool], ...], int] | None = None
    dims: tuple[tuple[str, int], ...] = ()


@lru_cache(maxsize=4)
def load_source(source: Source) -> Instance:
    """The instance of a source; the last few are kept.

    Raises
    ------
    InputError
        One line that names the file, the place and what is wrong there.
    """
    document = _load_document(source.model, source.time_unit, source.generated, source.dims)
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
    dims: tuple[tuple[str, int], ...],
) -> Document:
    if generated is None:
        return find_model(model, time_unit, dims)
    from placegap.instances.corpus.generate import generate

    params, seed = generated
    graph = generate(model, dict(params), seed)
    return Document(name=graph.name, graph=graph)


def find_model(
    model: str, time_unit: TimeUnit | None = None, dims: tuple[tuple[str, int], ...] = ()
) -> Document:
    """A document by its name in the corpus, or from a file of any readable format.

    A name of the corpus wins over a file of that name; ``./name`` is the file. So does a workload
    (``celeritas:nmt``), whose sizes `dims` may choose.
    """
    if is_workload(model):
        if time_unit is not None:
            raise InputError(f"{model} has no times: they are costed; leave out --time-unit")
        return build_workload(model, dict(dims))
    if model in corpus_names():
        if time_unit is not None:
            raise InputError(f"{model} states its times in ns; leave out --time-unit")
        if dims:
            raise InputError(f"{model} has no open dimensions; leave out --dim")
        return load_corpus(model)
    if not os.path.exists(model) and "." not in os.path.basename(model):
        hint = instead_of(model, corpus_names(), "placegap instances")
        raise InputError(f"there is no file {model!r}, and no such graph in the corpus{hint}")
    return read_model(model, time_unit, dict(dims))


def assumed_dims(graph: Graph, model: str) -> str | None:
    """One line on the sizes that an ONNX file left open and nobody stated, None if there is none.

    Examples
    --------
    >>> from placegap.instances import Graph, Op
    >>> made = {"provenance": {"parameters": {"assumed_dims": "N=1"}}, "name": "net"}
    >>> graph = Graph(ops=(Op(name="a"),), **made)
    >>> assumed_dims(graph, "net.onnx")
    'batch: N taken as 1, which net.onnx leaves open; --dim N=8 asks for another'
    """
    assumed = graph.provenance.parameters.get(ASSUMED_DIMS)
    if not isinstance(assumed, str) or Path(model).name.endswith((".json", ".json.gz")):
        return None
    taken = assumed.replace("=", " taken as ").removeprefix("batch ")
    first = assumed.partition("=")[0]
    return f"batch: {taken}, which {Path(model).name} leaves open; --dim {first}=8 asks for another"


def find_cluster(cluster: str) -> Cluster:
    """A cluster by name, or from a file."""
    return load_cluster(cluster)


def is_shipped_cluster(cluster: str) -> bool:
    """Whether a cluster of that name ships with the package."""
    return cluster in cluster_names()
