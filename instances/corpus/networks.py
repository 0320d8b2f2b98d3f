"""Networks of the corpus at sizes at which placement matters, built from ``data/networks.yaml``.

Each is traced from PyTorch or generated as a workload, and brings the cluster and the semantics
that it is stated for: the best chain of a pipeline, by the entry's rule of memory.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

from pydantic import Field, TypeAdapter

from placegap.instances.corpus.workloads import build_workload
from placegap.instances.io.cluster_file import load_cluster
from placegap.instances.io.document import Document
from placegap.instances.problem.instance import InstancePart, Name, Positive
from placegap.instances.problem.semantics import MaxLoad, MemoryRule
from placegap.instances.reading.input_files import data_path
from placegap.instances.reading.yaml_file import read_yaml
from placegap.instances.torch_models.options import ASSUMED, TraceOptions, is_traced
from placegap.instances.torch_models.presets import find_preset

OWN_MODULES, LICENCE_OF_TRANSFORMERS, OWN_LICENCE = ("evoformer",), "Apache-2.0", "MIT"
"""Classes of presets that are modules of ours, and the licences of the code that is traced."""


class NetworkRecipe(InstancePart):
    """How a network is made, and where it is placed; the fields as in ``data/networks.yaml``.

    Attributes
    ----------
    model : str
        ``hf:NAME`` of a model that is traced, or the name of a workload.
    tracing : TraceOptions
        How it is traced.
    sizes : dict of str to int
        Of a workload, other than its paper's.
    cluster : str
        Name of a cluster that ships.
    memory : {"peak", "sum"}
        What a device holds.
    binds : {"memory", "links"}
        Why placement matters there.
    """

    model: Name
    tracing: TraceOptions = TraceOptions()
    sizes: dict[Name, Positive] = Field(default_factory=dict)
    cluster: Name
    memory: MemoryRule = "peak"
    binds: Literal["memory", "links"]


@cache
def network_recipes() -> dict[str, NetworkRecipe]:
    """The networks by name.

    Examples
    --------
    >>> network_recipes()["llama-7b"].cluster
    'moirai-inter-server'
    """
    raw = read_yaml(data_path("networks.yaml"))
    return TypeAdapter(dict[Name, NetworkRecipe]).validate_python(raw)


def build_network(name: str) -> Document:
    """A network of the corpus, made anew; those that are traced need the extra ``torch``.

    Names of ops are those of the installed torch (``constraints.txt`` pins it), and so are the
    decompressed bytes of its file.

    Raises
    ------
    InputError
        One line: PyTorch is missing.
    KeyError
        If there is no such network.

    Examples
    --------
    >>> document = build_network("bert-24-layers-train")
    >>> len(document.graph.ops), document.cluster.name
    (64, 'tarnawski-6x16GB')
    """
    recipe = network_recipes()[name]
    made = _made(recipe)
    provenance = made.graph.provenance
    changes = provenance.changes or ("none: the sizes are in the parameters",)
    kept = {key: value for key, value in provenance.parameters.items() if key != ASSUMED}
    update = {"licence": _licence(recipe.model), "changes": changes, "parameters": kept}
    graph = made.graph.model_copy(
        update={"name": name, "provenance": provenance.model_copy(update=update)}
    )
    return Document(
        name=name,
        graph=graph,
        cluster=load_cluster(recipe.cluster),
        semantics=MaxLoad(plans="chain", memory=recipe.memory),
    )


def _made(recipe: NetworkRecipe) -> Document:
    if not is_traced(recipe.model):
        return build_workload(recipe.model, recipe.sizes)
    if recipe.tracing.train:
        from placegap.instances.torch_models.training_model import read_training_model

        return read_training_model(recipe.model, recipe.tracing)
    from placegap.instances.torch_models.model import read_traced_model

    return read_traced_model(recipe.model, recipe.tracing)


def _licence(model: str) -> str:
    """Of the code that the graph is made of: transformers', or ours."""
    if is_traced(model) and find_preset(model.partition(":")[2]).model_class not in OWN_MODULES:
        return LICENCE_OF_TRANSFORMERS
    return OWN_LICENCE
