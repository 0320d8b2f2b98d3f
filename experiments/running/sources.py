"""Where an instance comes from, in a form that can be sent to a worker process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from placegap.instances.corpus.corpus import corpus_names, load_corpus
from placegap.instances.corpus.layer_chains import (
    chain_document,
    chain_names,
    chain_with_modes,
    is_chain,
)
from placegap.instances.corpus.measured_chains import PREFIX as MEASURED_CHAIN
from placegap.instances.corpus.measured_chains import check_rows
from placegap.instances.costing.catalogue import catalogue, specs_of
from placegap.instances.costing.costing import (
    COSTS,
    MOSTLY_MODELLED,
    check_costs,
    is_measured,
    with_costs,
)
from placegap.instances.costing.layer_modes import ModelledOn
from placegap.instances.costing.runtime_memory import Engine
from placegap.instances.files.cluster_file import cluster_names, full_name, load_cluster
from placegap.instances.files.cluster_text import is_cluster_text
from placegap.instances.files.document import Document
from placegap.instances.problem import ASSUMED_DIMS, WITHOUT_RULE, Cluster, Graph, Instance
from placegap.instances.problem.cluster import slowed
from placegap.instances.problem.memory_pressure import with_device_memory
from placegap.instances.reading.checkout import is_workload, research
from placegap.instances.reading.errors import InputError, instead_of
from placegap.instances.reading.time_unit import TimeUnit
from placegap.instances.torch_models.options import (
    ASSUMED,
    GGUF,
    LEFT_OUT,
    PREFIXES,
    UNCOUNTED,
    UNFIT,
    UNREAD,
    TraceOptions,
    is_traced,
    option_of,
)
from placegap.instances.transforms.traced_layers import traced_layers

MOST_NAMES = 4  # devices that a line names; more are counted


@dataclass(frozen=True)
class Source:
    """A model (corpus name, path, traced model or generator family), and its cluster."""

    #: Name in the corpus, path of a readable file, name of a workload, ``hf:`` or ``py:`` and a
    #: model to trace, or name of a generator family.
    model: str
    #: Name of a cluster that ships with the package, a path, or a text such as "2xT4, pcie3"; None:
    #: the file's own devices.
    cluster: str | None = None
    time_unit: TimeUnit | None = None  # unit of the file's times, where its format leaves that open
    #: Parameters as (name, value) pairs and the seed, if `model` is a generator family.
    generated: tuple[tuple[tuple[str, int | float | str | bool], ...], int] | None = None
    #: Sizes of the dimensions that an ONNX file leaves open, or of a workload.
    dims: tuple[tuple[str, int], ...] = ()
    tracing: TraceOptions | None = None  # how a model is traced; None: the usual way
    times: Path | None = None  # file of measured times of its ops
    #: What gives ops without times theirs; None: what the model's graph notes, else calibrated.
    costs: str | None = None
    #: Lines of tools, and tokens per second that were measured of them.
    measured: tuple[tuple[str, float], ...] = ()
    engine: Engine | None = None  # what reserves memory of each card, where one is named
    #: What every device holds, as a share of all bytes of the ops; None: what the cluster says.
    device_memory: float | None = None
    devices: Path | None = None  # file of device kinds beside the catalogue's
    layers: bool = False  # whether a training step becomes layers with modes for hybrid_pipeline
    in_place: bool = False  # elementwise ops overwrite their inputs (`variants.written_in_place`)
    #: How many times as long every transfer takes; None: as the cluster says.
    slower_links: float | None = None
    slower_ops: float | None = None  # how many times as long ops take, but on hosts; None: once
    #: How many clones of the graph share its variables (`clones.with_clones`); None: it is none.
    clones: int | None = None
    pruned: bool = False  # whether only what a training step runs is there
    half_precision: bool = False  # whether every number takes two bytes; of a model without times
    fused: bool = False  # whether ops are those of Moirai's fusion, as fast as one kernel each


@lru_cache(maxsize=4)
def load_source(source: Source) -> Instance:
    """The instance of a source; the last few are kept."""
    cluster = cluster_of(source)
    check_costs(source.costs or "calibrated")
    if is_traced(source.model) and cluster is None:
        raise _no_devices(source.model)
    check_rates(source.model, cluster, source.times)
    document = _load_document(
        source.model, source.time_unit, source.generated, source.dims, source.tracing
    )
    if cluster is None and document.cluster is None:
        raise _no_devices(source.model)
    if source.costs is not None:
        document = costed_by(document, source.costs)
    if source.engine is not None:
        document = _changed(document, graph=source.engine.noted_in(document.graph))
    if source.layers:
        document = as_layers(document, cluster or document.cluster, source.dims)
    elif source.model.startswith(MEASURED_CHAIN) and cluster is not None and source.times is None:
        check_rows(source.model, dict(source.dims), cluster)
    if source.pruned:
        document = _changed(document, graph=_variants("pruned").pruned_to_step(document.graph))
    if source.half_precision:
        halved = _variants("half_precision").in_half_precision(document.graph)
        document = _changed(document, graph=halved)
    instance = on_cluster(document, cluster, source.times)
    if source.measured:
        from placegap.experiments.running.measured_lines import scaled_to

        instance = scaled_to(instance, source.measured)
    if source.fused:
        from placegap.instances.transforms.moirai_fusion import fuse_by_rules

        instance = _variants("fused").with_fused_times(fuse_by_rules(instance))
    if source.in_place:
        instance = _variants("in_place").written_in_place(instance)
    if source.device_memory is not None:  # before cloning: the share is of one replica's bytes
        instance = with_device_memory(instance, source.device_memory)
    if source.clones is not None:
        instance = research("workloads.clones", "a study's key clones").with_clones(
            instance, source.clones
        )
    if source.slower_ops is not None:
        instance = _variants("slower_ops").with_slower_ops(instance, source.slower_ops)
    if source.slower_links is not None:
        update = {"cluster": slowed(instance.cluster, source.slower_links), "best_known": ()}
        instance = instance.model_copy(update=update)
    return instance


def _variants(key: str) -> Any:
    """The module that makes what a key of the papers' studies says."""
    return research("workloads.variants", f"a study's key {key}")


def costed_by(document: Document, costs: str) -> Document:
    """The document, whose ops without times are costed in a way that the user chose."""
    return _changed(document, graph=with_costs(document.graph, costs))


def _changed(document: Document, **update: Any) -> Document:
    """The document with other content, for which no values are recorded."""
    return document.model_copy(update={"best_known": (), **update}).read_from(document.source)


def as_layers(
    document: Document, cluster: Cluster | None, sizes: tuple[tuple[str, int], ...] = ()
) -> Document:
    """A training step as layers with modes on a cluster; what has modes or no backward op stays."""
    graph = document.graph
    if cluster is None or not any(op.backward for op in graph.ops):
        return document
    if any(op.modes for op in graph.ops):
        return document
    measured = is_measured(graph)
    if measured and graph.provenance.parameters[COSTS] != "measured":
        raise InputError("tables of a framework have no modes of layers: choose --costs measured")
    if is_chain(document.name):
        on = ModelledOn.cluster(cluster, measured=measured)
        graph = chain_with_modes(document.name, on, dict(sizes))
    elif measured:
        raise InputError(
            "only named shapes (llama-8b-train) have measured modes; for layers of a traced model"
            " choose --costs calibrated",
            document.name,
        )
    else:
        graph = traced_layers(graph, cluster)
    rules = document.semantics  # those of another objective are about the ops one by one
    kept = rules if rules is not None and rules.has_modes else None
    return _changed(document, graph=graph, semantics=kept)


def _no_devices(model: str) -> InputError:
    return InputError(
        f"{model} has no default cluster; pass --cluster NAME (see 'placegap instances'), FILE or"
        " '2xRTX3090, pcie4'"
    )


def check_rates(model: str, cluster: Cluster | None, times: Path | None = None) -> None:
    """Refuse, before a model is traced, devices on which none of its ops could get a time."""
    if cluster is None or not is_traced(model):
        return
    known = set(specs_of(cluster))
    if times is not None:
        from placegap.instances.importers.measured_times import load_times

        for _, kind in load_times(times).samples_ns:  # a trace does not say on which kind
            known |= {device.kind for device in cluster.devices} if kind is None else {kind}
    without = [device for device in cluster.devices if device.kind not in known]
    if len(without) == len(cluster.devices) or not all(device.is_host for device in without):
        first = next((device for device in without if not device.is_host), without[0])
        raise InputError(
            f"device {first.name!r}: no op of {model} has a time on its kind {first.kind!r}, which"
            f" the catalogue does not have{instead_of(first.kind, catalogue())}; name one, give"
            " measured times (--times), or leave the device out",
            cluster.source,
        )


def on_cluster(document: Document, cluster: Cluster | None, times: Path | None = None) -> Instance:
    """The instance of a document; times of a file stand before all others."""
    chosen = cluster or document.cluster
    if times is None or chosen is None:
        return document.instance(cluster)
    from placegap.instances.importers.measured_times import load_times, with_times

    measured = with_times(document.graph, load_times(times), chosen)
    return _changed(document, graph=measured.graph).instance(cluster)


@lru_cache(maxsize=4)
def _load_document(
    model: str,
    time_unit: TimeUnit | None,
    generated: tuple[tuple[tuple[str, int | float | str | bool], ...], int] | None,
    dims: tuple[tuple[str, int], ...],
    tracing: TraceOptions | None,
) -> Document:
    if generated is None:
        return find_model(model, time_unit, dims, tracing)
    from placegap.instances.corpus.generate import generate

    params, seed = generated
    graph = generate(model, dict(params), seed)
    return Document(name=graph.name, graph=graph)


def find_model(
    model: str,
    time_unit: TimeUnit | None = None,
    dims: tuple[tuple[str, int], ...] = (),
    tracing: TraceOptions | None = None,
) -> Document:
    """A document by its name in the corpus, from a file of any readable format, or traced."""
    # A name of the corpus wins over a file of that name; ``./name`` is the file. So does a workload
    # (``celeritas:nmt``), whose sizes `dims` may choose. ``hf:`` and ``py:`` begin the names of
    # models that are traced, and ``.gguf`` ends them.
    if is_traced(model):
        if time_unit is not None or dims:
            option = "--dim" if dims else "--time-unit"
            raise InputError(f"{model} is traced; leave out {option}")
        if tracing is not None and tracing.train:
            from placegap.instances.torch_models.training_model import read_training_model

            return read_training_model(model, tracing)
        from placegap.instances.torch_models.model import read_traced_model

        return read_traced_model(model, tracing)
    weights = None if tracing is None else tracing.weights
    is_file = ":" not in model and model not in corpus_names()
    if tracing is not None and tracing != TraceOptions(weights=weights if is_file else None):
        option = option_of(next(iter(tracing.chosen())))
        kinds = ", ".join((*PREFIXES, GGUF))
        raise InputError(f"{option} is for models that are traced ({kinds})", model)
    if is_workload(model):
        if time_unit is not None:
            raise InputError(
                f"{model} has no times in its file: they are estimated; leave out --time-unit"
            )
        built: Document = research("workloads.catalogue", model).build_workload(model, dict(dims))
        return built
    if is_chain(model):
        return chain_document(model, dict(dims))
    if model in corpus_names():
        if time_unit is not None:
            raise InputError(f"{model} states its times in ns; leave out --time-unit")
        if dims:
            raise InputError(f"{model} has no open dimensions; leave out --dim")
        return load_corpus(model)
    if not os.path.exists(model) and "." not in os.path.basename(model):
        hint = instead_of(
            os.path.basename(model), (*corpus_names(), *chain_names()), "placegap instances"
        )
        raise InputError(f"there is no file {model!r}, and no such graph in the corpus{hint}")
    from placegap.instances.importers.reader import load_model

    return load_model(model, time_unit, dict(dims), weights)


def open_questions(graph: Graph, model: str) -> tuple[str, ...]:
    """Lines on what a model leaves open: sizes that are not stated, and FLOPs that are guesses."""
    parameters, lines = graph.provenance.parameters, list[str]()
    texts = {name: value for name, value in parameters.items() if isinstance(value, str)}
    if modelled := texts.get(MOSTLY_MODELLED):
        lines.append(
            f"costs: most of the time on {modelled} is modelled, not measured ('placegap costs')"
        )
    if Path(model).name.endswith((".json", ".json.gz")) and not is_traced(model):
        return tuple(lines)
    if (traced := texts.get(ASSUMED)) and is_traced(model):
        chosen = "" if model.startswith("py:") else "; --batch, --seq and --dtype choose others"
        lines.append(f"{model}: {traced}{chosen}")
    if unread := texts.get(UNREAD):
        where = "the first layer holds them" if parameters.get("decode") else "they are not counted"
        lines.append(
            f"weights: no op reads those of {unread}: the inputs that were traced do not reach"
            f" them, and {where}"
        )
    if unfit := texts.get(UNFIT):
        lines.append(f"{model}: {unfit}")
    if left_out := texts.get(LEFT_OUT):
        lines.append(
            f"layers: {left_out}, but transformers builds the model without layers of multi-token"
            " prediction: they are not in the graph, and not counted"
        )
    if assumed := texts.get(ASSUMED_DIMS):
        taken = assumed.replace("=", " taken as ").removeprefix("batch ")
        first = assumed.partition("=")[0]
        lines.append(
            f"batch: {taken}, which {Path(model).name} does not fix; --dim {first}=8 sets another"
        )
    if guessed := texts.get(WITHOUT_RULE):
        lines.append(f"FLOPs: no rule for {guessed}; each counts 1 per element that it writes")
    if uncounted := texts.get(UNCOUNTED):
        lines.append(f"FLOPs: no rule for {uncounted}, which read weights; they count as 0")
    return tuple(lines)


def idle_devices(instance: Instance) -> str | None:
    """One line on devices, other than hosts, that no op of the model can run on; else None."""
    kinds = {kind for op in instance.graph.ops for kind in op.time_ns}
    found = [d for d in instance.cluster.devices if d.kind not in kinds and not d.is_host]
    if not found:
        return None
    names = ", ".join(dict.fromkeys(device.name for device in found[:MOST_NAMES]))
    more = f" and {len(found) - MOST_NAMES} more" if len(found) > MOST_NAMES else ""
    what = ", ".join(dict.fromkeys(repr(device.kind) for device in found))
    kind = "kind" if len({device.kind for device in found}) == 1 else "kinds"
    return f"{names}{more}: no op has a time on the {kind} {what}, so no op can run there"


# Bytes, bytes per second and FLOP/s below are figures of a larger unit: of what people write in
# GB/s, Gbit/s or MB/s, NVLink has the most, 900,000; of real ones, 10 Mbit/s has 1,250,000.
LEAST_FIGURE = 10**6


def small_figure(cluster: Cluster) -> str | None:
    """One line on a figure of a cluster that seems to be in GB, GB/s or TFLOP/s; else None."""
    kinds = cluster.kinds.values()
    joined = (*cluster.all_links.entries, *kinds)
    figures = {
        "bandwidth_bytes_per_s": [each.bandwidth_bytes_per_s for each in joined],
        "peak_flops_per_s": [rate for spec in kinds for rate in spec.peak_flops_per_s.values()],
        "memory_bytes": [device.memory_bytes or LEAST_FIGURE for device in cluster.devices],
    }
    for name, values in figures.items():
        if (value := min(values, default=LEAST_FIGURE)) < LEAST_FIGURE:
            return f"{cluster.source}: {name} is {value}; 16 GB/s are 16e9, and 30 TFLOP/s 30e12"
    return None


def cluster_of(source: Source) -> Cluster | None:
    """The cluster that a source names, None where the model's own is meant."""
    if source.cluster is None and source.devices is not None:
        raise InputError("--devices states kinds for --cluster; name one, too", source.devices)
    return None if source.cluster is None else load_cluster(source.cluster, source.devices)


def is_known_cluster(cluster: str) -> bool:
    """Whether a cluster needs no file: it ships with the package, or the text says what it is."""
    return full_name(cluster) in cluster_names() or is_cluster_text(cluster)


def is_named(model: str) -> bool:
    """Whether a model needs no file: the package or a checkout knows the name."""
    return model in corpus_names() or is_workload(model) or is_chain(model)
