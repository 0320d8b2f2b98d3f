"""Builds the corpus.

``python -m placegap.experiments.research.workloads.build instances/data/corpus`` writes its graphs.
With a folder of dnn-partitioning's files as second argument it also builds their family; with
``--networks [NAME ...]`` it builds those of ``networks.yaml`` alone, all or the named ones.

The same input gives the same decompressed JSON; a file whose content would not change is left
alone, so that another zlib's compression is no change.

A network of ``networks.yaml`` is traced from PyTorch or generated as a workload, and brings
the cluster and the semantics that it is stated for: the best chain of a pipeline, by the entry's
rule of memory.
"""

from __future__ import annotations

import gzip
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from pydantic import Field, TypeAdapter

from placegap.experiments.research.workloads.catalogue import build_workload
from placegap.instances.corpus.corpus import NETWORK_FAMILY, ONNX_FAMILY, PARTITIONING_FAMILY
from placegap.instances.costing.costing import COSTS
from placegap.instances.files.cluster_file import load_cluster
from placegap.instances.files.document import Document, load_document, save_document
from placegap.instances.importers.dnn_partitioning import load_dnn_partitioning
from placegap.instances.importers.onnx_model import load_onnx
from placegap.instances.problem import (
    InstancePart,
    LatencySubgraphs,
    MaxLoad,
    MemoryRule,
    Name,
    Positive,
    Provenance,
)
from placegap.instances.reading.errors import InputError, look_up
from placegap.instances.reading.yaml_file import read_yaml
from placegap.instances.torch_models.options import ASSUMED, TraceOptions, is_traced

LICENCE_OF_TRANSFORMERS, OWN_LICENCE = "Apache-2.0", "MIT"

# Traced from a module that placegap no longer has: the file cannot be made again.
KEPT_AS_IT_IS = ("evoformer-train",)


class NetworkRecipe(InstancePart):
    """How a network is made, and where it is placed; the fields as in ``networks.yaml``."""

    #: ``hf:NAME`` of a model that is traced, or the name of a workload.
    model: Name
    #: How it is traced.
    tracing: TraceOptions = TraceOptions()
    #: Of a workload, other than its paper's.
    sizes: dict[Name, Positive] = Field(default_factory=dict)
    #: Name of a cluster that ships.
    cluster: Name
    #: What a device holds.
    memory: MemoryRule = "peak"
    #: Why placement matters there.
    binds: Literal["memory", "links"]


NOT_SHIPPED = {"kernel": None}  # fields that no file of the corpus has: they are older


@cache
def network_recipes() -> dict[str, NetworkRecipe]:
    raw = read_yaml(Path(__file__).resolve().with_name("networks.yaml"))
    return TypeAdapter(dict[Name, NetworkRecipe]).validate_python(raw)


def build_network(name: str) -> Document:
    """A network of the corpus, made anew; those that are traced need the extra ``torch``."""
    # Names of ops are those of the installed torch (``constraints.txt`` pins it), and so are the
    # decompressed bytes of its file.
    recipe = network_recipes()[name]
    made = _made(recipe)
    provenance = made.graph.provenance
    changes = provenance.changes or ("none: the sizes are in the parameters",)
    kept = {
        key: value for key, value in provenance.parameters.items() if key not in (ASSUMED, COSTS)
    }
    licence = LICENCE_OF_TRANSFORMERS if is_traced(recipe.model) else OWN_LICENCE
    update = {"licence": licence, "changes": changes, "parameters": kept}
    ops = tuple(op.model_copy(update=NOT_SHIPPED) for op in made.graph.ops)
    provenance = provenance.model_copy(update=update)
    graph = made.graph.model_copy(update={"name": name, "ops": ops, "provenance": provenance})
    rules = MaxLoad(plans="chain")
    if recipe.memory != rules.memory:
        rules = rules.model_copy(update={"memory": recipe.memory})
    cluster = load_cluster(recipe.cluster)
    return Document(name=name, graph=graph, cluster=cluster, semantics=rules)


def _made(recipe: NetworkRecipe) -> Document:
    if not is_traced(recipe.model):
        return build_workload(recipe.model, recipe.sizes)
    if recipe.tracing.train:
        from placegap.instances.torch_models.training_model import read_training_model

        return read_training_model(recipe.model, recipe.tracing)
    from placegap.instances.torch_models.model import read_traced_model

    return read_traced_model(recipe.model, recipe.tracing)


# Architectures that ship inside the onnx wheel, with their weights replaced by constants.
ONNX_LIGHT = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet"),
    *("squeezenet", "vgg19", "zfnet512"),
)


def onnx_light_folder() -> Path:
    """Where the installed onnx package keeps its light models."""
    try:
        import onnx
    except ImportError:
        raise InputError("the corpus needs an extra: pip install 'placegap[onnx]'") from None
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def build_onnx_light(name: str) -> Document:
    """One of the nine architectures as a document of the corpus."""
    file = f"light_{name}.onnx"
    graph = load_onnx(onnx_light_folder() / file).graph
    provenance = Provenance(
        source=f"onnx wheel, onnx/backend/test/data/light/{file}",
        licence="Apache-2.0",
        changes=graph.provenance.changes,
    )
    # the best-known values go by the content of graphs that do not state axes
    update: dict[str, object] = {"splittable_axes": (), "axis_sizes": {}, **NOT_SHIPPED}
    ops = tuple(op.model_copy(update=update) for op in graph.ops)
    graph = graph.model_copy(update={"name": name, "ops": ops, "provenance": provenance})
    return Document(name=name, graph=graph)


PARTITIONING_COMMIT = "b207b6a"  # commit of github.com/msr-fiddle/dnn-partitioning, for the files


def partitioning_name(path: Path) -> str:
    """Corpus name of a file of dnn-partitioning: its own in lower case, and its objective."""
    end = "_latency" if path.parent.parent.name == "latency-inputs" else ""
    return path.stem.lower() + end


def build_partitioning(path: Path) -> Document:
    """A file of dnn-partitioning as a document of the corpus, with the devices that it states."""
    # Inputs for latency are stated for one call per accelerator, as the authors' program does by
    # default; the others for chains of least maximum load.
    document, name = load_dnn_partitioning(path), partitioning_name(path)
    graph, where = document.graph, "/".join(path.parts[-3:])
    provenance = graph.provenance.model_copy(
        update={
            "source": f"github.com/msr-fiddle/dnn-partitioning, commit {PARTITIONING_COMMIT},"
            f" {where} (Tarnawski et al., NeurIPS 2020)",
            "licence": "MIT",
        }
    )
    semantics = document.semantics
    if name.endswith("_latency"):
        semantics = LatencySubgraphs(subgraphs=1)
    graph = graph.model_copy(update={"name": name, "provenance": provenance})
    return Document(name=name, graph=graph, cluster=document.cluster, semantics=semantics)


def build_corpus(folder: Path, published: Path | None = None) -> list[Path]:
    """Build the graphs of the corpus under a folder; the files that were written."""
    # `published` is a folder of dnn-partitioning's files; without it that family is left alone.
    families = {ONNX_FAMILY: [build_onnx_light(name) for name in ONNX_LIGHT]}
    if published is not None:
        inputs = sorted(published.glob("*-inputs/*Graphs/*.json"))
        families[PARTITIONING_FAMILY] = [build_partitioning(path) for path in inputs]
    return [
        path for family, documents in families.items() for path in _write(documents, folder, family)
    ]


def build_networks(folder: Path, names: Sequence[str] = ()) -> list[Path]:
    """Build the networks of the corpus under a folder, all or some; the files that were written."""
    for name in names:
        look_up("network", name, network_recipes(), "networks.yaml")
    again = [name for name in network_recipes() if name not in KEPT_AS_IT_IS]
    chosen = (build_network(name) for name in names or again)
    return list(_write(chosen, folder, NETWORK_FAMILY))


def _write(documents: Iterable[Document], folder: Path, family: str) -> Iterator[Path]:
    """Write the documents of a family, but for those whose file holds the same already."""
    (folder / family).mkdir(parents=True, exist_ok=True)
    for document in documents:
        path = folder / family / f"{document.name}.json.gz"
        if not path.exists() or not _same(path, document):
            save_document(document, path)
            yield path


def _same(path: Path, document: Document) -> bool:
    """Whether a file holds exactly the JSON that the document would be written as."""
    with TemporaryDirectory() as folder:
        fresh = Path(folder) / "fresh.json"
        save_document(document, fresh)
        return gzip.decompress(path.read_bytes()) == fresh.read_bytes()


def main(arguments: Sequence[str] | None = None) -> None:
    """Build into the folder that the command line names."""
    parser = ArgumentParser(prog="python -m placegap.experiments.research.workloads.build")
    parser.add_argument("folder", type=Path, help="where the families are")
    parser.add_argument("published", type=Path, nargs="?", help="dnn-partitioning's files")
    parser.add_argument("--networks", nargs="*", metavar="NAME", help="build these alone, or all")
    chosen = parser.parse_args(arguments)
    try:
        written = (
            build_corpus(chosen.folder, chosen.published)
            if chosen.networks is None
            else build_networks(chosen.folder, chosen.networks)
        )
        for path in written:
            graph = load_document(path).graph
            print(f"{path.name}: {len(graph.ops)} ops, {len(graph.edges)} edges")
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
