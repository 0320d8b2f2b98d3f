"""What a runtime takes of a card's memory besides the model: its context, and compute buffers."""

from __future__ import annotations

from placegap.instances.costing.catalogue import is_cpu
from placegap.instances.costing.costing import COSTS
from placegap.instances.costing.layer_modes import MODELLED
from placegap.instances.problem import Cluster, Graph
from placegap.instances.problem.integers import format_bytes

CONTEXT_BYTES = 500_000_000  # CUDA's context with library kernels, cuBLAS' workspace: 0.3 to 0.5 GB
# What training takes beside the modes of its layers (framework, communication, fragmentation), of
# cards from this size on: 23 runs of BigScience on A100-80GB held 9 to 19 GiB more than modelled.
TRAINING_BYTES, TRAINING_CARD_BYTES = 12 * 2**30, 80 * 10**9
PROMPT_TOKENS = 512  # an engine that decodes reads its prompts in pieces: llama.cpp's ubatch
# Parameter of a cluster's provenance: a sentence on what was taken of cards that state nothing.
RESERVED = "reserved"


def with_reserve(cluster: Cluster, graph: Graph) -> Cluster:
    """The cluster without what a runtime takes of the cards: its context, and compute buffers."""
    # Only for graphs whose costs are ours and no rooflines, and for layers whose modes are
    # modelled: papers and files with times count no such memory. A memory that is stated is that
    # beside the context; the buffers are still the runtime's. A cluster without the note is that of
    # an instance, which was reduced before.
    parameters = graph.provenance.parameters
    is_ours = MODELLED in parameters or parameters.get(COSTS) not in (None, "roofline")
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
    # of a plan counts the activations of all other passes.
    parameters = graph.provenance.parameters
    if not parameters.get("decode"):
        return 0
    rows = int(parameters.get("batch") or 1)
    products = [op for op in graph.ops if op.flops and op.parameter_bytes]
    held = (op.resident_bytes - max(op.parameter_bytes, op.state_bytes or 0) for op in products)
    wide = 1 if parameters.get("dtype") == "float32" else 2  # other types have half the bytes
    return max(held, default=0) * wide * max(PROMPT_TOKENS, rows) // rows
