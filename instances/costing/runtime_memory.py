"""What a runtime takes of a card's memory besides the model: its context, and compute buffers."""

from __future__ import annotations

from typing import NamedTuple

from placegap.instances.costing.catalogue import is_cpu
from placegap.instances.costing.costing import COSTS
from placegap.instances.costing.layer_modes import MODELLED
from placegap.instances.problem import Cluster, Graph
from placegap.instances.problem.integers import format_bytes
from placegap.instances.problem.modules import layer_of
from placegap.instances.reading.errors import InputError, instead_of

CONTEXT_BYTES = 500_000_000  # CUDA's context with library kernels, cuBLAS' workspace: 0.3 to 0.5 GB
# What training takes beside the modes of its layers (framework, communication, fragmentation), of
# cards from this size on: 23 runs of BigScience on A100-80GB held 9 to 19 GiB more than modelled.
TRAINING_BYTES, TRAINING_CARD_BYTES = 12 * 2**30, 80 * 10**9
PROMPT_TOKENS = 512  # an engine that decodes reads its prompts in pieces: llama.cpp's ubatch
# Parameter of a cluster's provenance: a sentence on what was taken of cards that state nothing.
RESERVED = "reserved"

# The share of a card that engines use by default (vLLM's --gpu-memory-utilization, and SGLang's
# --mem-fraction-static of one card), whether chunks of prompts are in that share or beside it,
# tokens of a chunk (vLLM's on cards below 70 GiB), and sequences that the head runs for at most.
ENGINES = {"vllm": 0.9, "sglang": 0.88}
CHUNK_TOKENS, CHUNK_SEQUENCES = 2048, 256
ENGINE = "engine"  # parameter of a graph's provenance, before ".share" and ".tokens", too


class Engine(NamedTuple):
    """A serving engine that reserves memory for itself, and what its options say."""

    name: str = "vllm"
    share: float | None = None  # of a card that it may use
    chunk_tokens: int | None = None  # of prompts that one step reads

    def noted_in(self, graph: Graph) -> Graph:
        """The graph, noting the engine that runs it."""
        if self.name not in ENGINES:
            hint = instead_of(self.name, ENGINES)
            raise InputError(f"--engine {self.name!r} is not known{hint}")
        share = ENGINES[self.name] if self.share is None else self.share
        tokens = CHUNK_TOKENS if self.chunk_tokens is None else self.chunk_tokens
        if not 0 < share <= 1:
            raise InputError(f"--gpu-memory-utilization is a share, above 0 to 1 (got {share:g})")
        if not graph.provenance.parameters.get("decode"):
            raise InputError(
                f"--engine {self.name} is about decode steps: add --decode", graph.name
            )
        parameters = {ENGINE: self.name, f"{ENGINE}.share": share, f"{ENGINE}.tokens": tokens}
        provenance = graph.provenance.noting(f"runs in {self.name}", parameters)
        return graph.model_copy(update={"provenance": provenance})


def with_reserve(cluster: Cluster, graph: Graph) -> Cluster:
    """The cluster without what a runtime takes of the cards: its context, and compute buffers."""
    # Only for graphs whose costs are ours and no rooflines, and for layers whose modes are
    # modelled: papers and files with times count no such memory. A memory that is stated is that
    # beside the context; the buffers are still the runtime's. A cluster without the note is that of
    # an instance, which was reduced before.
    parameters = graph.provenance.parameters
    is_ours = MODELLED in parameters or parameters.get(COSTS) not in (None, "roofline")
    engine, share = parameters.get(ENGINE), float(parameters.get(f"{ENGINE}.share") or 1)
    is_ours |= engine is not None
    if cluster.open_memory is None or not is_ours:
        return cluster
    buffers = buffer_bytes(graph)
    size_of_buffers = f"{format_bytes(buffers)} for buffers"
    small = format_bytes(CONTEXT_BYTES + buffers) + (f", {size_of_buffers}," if buffers else "")
    devices, much, others = [], list[str](), False
    for device in cluster.devices:
        size = device.memory_bytes
        if size is not None and not is_cpu(device, cluster):
            taken = buffers
            if device.name not in cluster.open_memory:
                others = True
            elif MODELLED in parameters and size >= TRAINING_CARD_BYTES:
                taken = TRAINING_BYTES
                much.append("12 GiB in training")
            elif engine is not None:
                beside = size - int(share * size)
                in_share = buffers if engine == "vllm" else max(0, buffers - beside)
                taken = beside + CONTEXT_BYTES + in_share
                much.append(f"{100 * (1 - share):.3g} % that {engine} leaves free and {small}")
            else:
                taken += CONTEXT_BYTES
                much.append(small)
            device = device.model_copy(update={"memory_bytes": max(0, size - taken)})
        devices.append(device)
    if tuple(devices) == cluster.devices:
        return cluster
    parts = list[str]()
    if much:
        words = " or ".join(dict.fromkeys(much))
        parts.append(f"{words} of each card that does not say what is free")
    if others and buffers:
        parts.append(f"{size_of_buffers} of each card that says what is free")
    said = f"the runtime takes {' and '.join(parts)}"
    noted = cluster.provenance.noting(said, {RESERVED: said})
    changed = cluster.model_copy(update={"devices": tuple(devices), "provenance": noted})
    return changed.read_from(cluster.source)


def buffer_bytes(graph: Graph) -> int:
    """Buffers of an engine that decodes: the widest product of a piece of a prompt, in float32."""
    # A log of llama.cpp shows 398 MiB for 201,088 words of width 2,880; this gives 393. The memory
    # of a plan counts the activations of all other passes. An engine that reads larger chunks runs
    # the head for one token of each sequence, and a layer for all: a gated MLP holds two products.
    parameters = graph.provenance.parameters
    if not parameters.get("decode"):
        return 0
    rows, chunk = int(parameters.get("batch") or 1), int(parameters.get(f"{ENGINE}.tokens") or 0)
    widest = {True: 0, False: 0}  # by whether it is in a numbered layer
    for op, layer in zip(graph.ops, layer_of(graph), strict=True):
        if op.flops and op.parameter_bytes:
            inside = (layer or "").rpartition(".")[2].isdecimal()
            held = op.resident_bytes - max(op.parameter_bytes, op.state_bytes or 0)
            widest[inside] = max(widest[inside], held)
    wide = 1 if parameters.get("dtype") == "float32" else 2  # other types have half the bytes
    if chunk:
        head = widest[False] * wide * max(CHUNK_SEQUENCES, rows)
        return max(head, 2 * widest[True] * max(chunk, rows)) // rows
    return max(widest.values()) * wide * max(PROMPT_TOKENS, rows) // rows
