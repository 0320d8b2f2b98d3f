"""What a user chooses of a traced model."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from placegap.instances.costing.weight_formats import cache_bits, weight_format
from placegap.instances.reading.errors import InputError

# Parameter of the provenance that names ops whose FLOPs count as 0, though they read weights.
UNCOUNTED = "reads_weights_without_flop_rule"
# Parameter of the provenance that says the sizes and number type of a traced model, and its
# weights.
ASSUMED = "traced_as"
# Parameter of the provenance that names modules whose weights the traced inputs do not reach.
UNREAD = "parameters_that_no_op_reads"
# Parameter of the provenance: layers that a configuration states and the traced model does not
# have, as "num_nextn_predict_layers=1".
LEFT_OUT = "layers_left_out"
UNFIT = "options_that_do_not_fit"  # provenance: options that the model is too small for

PREFIXES = ("hf:", "py:")

GGUF = ".gguf"  # how names of files of llama.cpp end

Tied = Literal["copy", "together"]

Dtype = Literal["float32", "float16", "bfloat16", "float64"]

Optimizer = Literal["sgd", "momentum", "adam", "adam8bit", "none"]

LARGEST_SIZE = 10**7  # of the batch, of the tokens and of the cache: sizes beyond are slips


@dataclass(frozen=True)
class TraceOptions:
    """How a model is traced."""

    batch: int = 1  # examples in a batch
    seq: int | None = None  # tokens (or samples) of an example; None: what the model states
    #: Number type of weights and activations; None: what the configuration states, else float32.
    dtype: Dtype | None = None
    tied: Tied = "copy"  # whether ops that read a parameter may hold copies, or form a group
    #: Whether the blocks that the model says are not to be split, and the other modules that hold
    #: parameters, stay whole, as colocation groups.
    keep_modules: bool = False
    #: How weights are stored (`weight_format`); None: as the configuration says, else in `dtype`.
    weights: str | None = None
    kv_tokens: int = 0  # tokens for which attention ops hold keys and values: the context
    #: How keys and values are stored in the cache (`cache_bits`); None: as they are computed.
    kv_dtype: str | None = None
    decode: bool = False  # whether the pass makes a token of each sequence from a `kv_tokens` cache
    #: Tokens of a prompt that the pass fills the cache with; None: no such pass.
    prefill: int | None = None
    train: bool = False  # whether a whole training step is traced, with the updates of the weights
    #: What updates the weights; "none": nothing does, for what runs once per microbatch; None:
    #: adam.
    optimizer: Optimizer | None = None

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("seq", 1), ("kv_tokens", 0), ("prefill", 1)):
            value = getattr(self, name)
            if value is not None and not least <= value <= LARGEST_SIZE:
                given = f"(got {value})"
                raise InputError(
                    f"{option_of(name)} must be from {least} to {LARGEST_SIZE} {given}"
                )
        for name, kinds in (("dtype", Dtype), ("tied", Tied), ("optimizer", Optimizer)):
            given = getattr(self, name)
            if given not in get_args(kinds) and (name == "tied" or given is not None):
                raise InputError(f"--{name} {given!r} is not one of {', '.join(get_args(kinds))}")
        if self.optimizer is not None and not self.train:
            raise InputError("--optimizer needs --train; add it")
        if self.decode and not self.kv_tokens:
            raise InputError("--decode reads a cache; state its tokens (--context 8192)")
        if self.weights is not None:
            weight_format(self.weights)
        if self.kv_dtype is not None:
            cache_bits(self.kv_dtype)
            if not self.cached_tokens:
                raise InputError("--kv-dtype needs a cache; state its tokens (--context)")
        for name in ("decode", "prefill", "kv_tokens", "kv_dtype"):
            if self.train and getattr(self, name):
                raise InputError(f"{option_of(name)} is for inference; leave out --train")
        if (self.decode or self.prefill) and (self.seq or (self.decode and self.prefill)):
            raise InputError("--seq, --decode and --prefill choose the tokens of a pass; state one")

    @property
    def cached_tokens(self) -> int:
        """Tokens of each sequence that the cache of attention holds after the pass."""
        return max(self.kv_tokens, self.prefill or 0)

    def chosen(self) -> dict[str, str | int | float | bool | None]:
        """The options that are not at their default, by name."""
        return {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if getattr(self, each.name) != each.default
        }


def option_of(name: str) -> str:
    """The option of the command line that sets a field of `TraceOptions`."""
    return "--context" if name == "kv_tokens" else f"--{name.replace('_', '-')}"


def is_traced(model: str) -> bool:
    """Whether a name is one of a model that is traced."""
    return model.startswith(PREFIXES) or is_gguf(model)


def is_gguf(model: str) -> bool:
    """Whether a name is that of a file of llama.cpp."""
    return model.lower().endswith(GGUF)


DeviceType = Literal["cpu", "cuda"]
