"""What commands share: options, how a command is made of a dataclass of them, reading a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import MISSING, dataclass, fields
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NamedTuple,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from placegap.experiments.running.rules import Rules
from placegap.experiments.show.rendering import Quiet, spinner, warn
from placegap.instances.problem import (
    DEFAULTS,
    Channels,
    Degrees,
    LoadRule,
    MemoryRule,
    Objective,
    PipelineSchedule,
    PlanClass,
    Recompute,
    Sending,
    Sharding,
    Transfers,
)
from placegap.instances.reading.errors import InputError
from placegap.instances.reading.time_unit import TimeUnit
from placegap.instances.torch_models.options import Dtype, Optimizer, Tied, TraceOptions, is_traced

if TYPE_CHECKING:
    from placegap.experiments.running.sources import Source
    from placegap.instances.problem import Graph, Instance


BROKEN_RULES = 1  # the exit status where a plan breaks a rule

model_option = partial(typer.Option, rich_help_panel="Model")
traced_option = partial(typer.Option, rich_help_panel="Model, if traced (hf: and py:)")
cluster_option = partial(typer.Option, rich_help_panel="Cluster")
objective_option = partial(typer.Option, rich_help_panel="Objective")
memory_option = partial(typer.Option, rich_help_panel="Memory")
search_option = partial(typer.Option, rich_help_panel="Search")
output_option = partial(typer.Option, rich_help_panel="Output")
export_option = partial(typer.Option, rich_help_panel="Export")

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A readable file, a name of the corpus, a paper's workload, hf:NAME, hf:CONFIG.json,"
        " FILE.gguf or py:MODULE:FUNCTION.",
    ),
]
ClusterOption = Annotated[
    str | None,
    cluster_option(
        "--cluster",
        help="Name of a shipped cluster (see 'instances'), a file, or devices and links, such as"
        " '2xRTX3090+host, pcie4'.",
    ),
]
DevicesOption = Annotated[
    Path | None,
    cluster_option(
        "--devices", metavar="FILE", help="Device kinds to add to the catalogue (YAML)."
    ),
]
UnitOption = Annotated[
    TimeUnit | None,
    model_option(
        "--time-unit", help="Unit of times in files that do not state it", show_default="ms"
    ),
]
DimOption = Annotated[
    list[str] | None,
    model_option(
        "--dim",
        metavar="NAME=SIZE",
        help="Size of a dynamic dimension of an ONNX file, by its name or as INPUT.AXIS"
        " (ids.0=8), or of a workload (batch=8).",
    ),
]
CostsOption = Annotated[
    str | None,
    model_option(
        metavar="NAME[:FRAMEWORK]",
        help="How op times are estimated where a model has none: calibrated (default), at rates"
        " that kernels reach; roofline, at datasheet rates (default for shipped graphs); or"
        " measured, from tables of a framework (default: the newest of vLLM).",
    ),
]
TimesOption = Annotated[
    Path | None,
    model_option(
        "--times",
        metavar="FILE",
        help="Measured times of ops by name: CSV (name,device_kind,time_ns) or a Chrome trace.",
    ),
]
MeasuredOption = Annotated[
    list[float] | None,
    model_option(
        "--measured-tokens",
        metavar="T",
        help="--decode: tokens per second that a --line reaches; ops on cards are scaled by it. Of"
        " two measured lines (repeat both), ops on hosts, or else links, are scaled, too.",
    ),
]
ParamOption = Annotated[
    list[str] | None,
    search_option(
        "--param",
        metavar="KEY=VALUE",
        help="A parameter of --method; 'placegap methods NAME' lists them. Repeatable.",
    ),
]


MethodOption = Annotated[
    str | None, typer.Option("--method", help="Prove a bound for the plan by this method.")
]
LimitOption = Annotated[
    float, typer.Option("--time-limit", metavar="S", help="Seconds for --method.")
]


def _use_modules(modules: list[str] | None) -> list[str] | None:
    """Load the methods of ``--module`` before the command reads anything."""
    if modules:
        from placegap.solvers.core.registry import use_module

        for module in modules:
            use_module(module)
    return modules


ModuleOption = Annotated[
    list[str] | None,
    search_option(
        "--module",
        metavar="MODULE",
        help="A Python module, or its file, that registers your own methods; repeatable.",
        callback=_use_modules,
    ),
]
QuietOption = Annotated[bool, output_option("-q", "--quiet", help="No progress on stderr.")]
JsonOption = Annotated[bool, output_option("--json", help="Print one JSON object.")]


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """How a model's file is read, and its devices."""

    time_unit: UnitOption = None
    dim: DimOption = None
    cluster: ClusterOption = None
    devices: DevicesOption = None
    quiet: QuietOption = False


@dataclass(frozen=True, kw_only=True)
class ModelOptions(SourceOptions):
    """A model, too."""

    model: Model


@dataclass(frozen=True, kw_only=True)
class TimedOptions(SourceOptions):
    """How a model is traced, too, and what its ops take; the engine that runs it."""

    tracing: TraceOptions
    times: TimesOption = None
    costs: CostsOption = None
    line: Annotated[
        list[str] | None,
        model_option(
            "--line",
            metavar="LINE|FILE.json",
            help="Options of a serving tool that were measured, as 'placegap price' reads them.",
        ),
    ] = None
    measured_tokens: MeasuredOption = None
    engine: Annotated[
        str | None,
        memory_option(
            "--engine",
            metavar="NAME",
            help="--decode: the engine that reserves memory of each card: vllm or sglang",
        ),
    ] = None
    gpu_memory_utilization: Annotated[
        float | None,
        memory_option(
            "--gpu-memory-utilization",
            "--mem-fraction-static",
            metavar="SHARE",
            help="Share of each card that the engine may use (default: vllm 0.9, sglang 0.88).",
        ),
    ] = None
    max_num_batched_tokens: Annotated[
        int | None,
        memory_option(
            "--max-num-batched-tokens",
            "--chunked-prefill-size",
            min=1,
            help="Tokens of a chunk of prompts, whose activations need room (default: 2048).",
        ),
    ] = None


def _may(option: Any, kind: Any, text: str, *names: str, **more: Any) -> object:
    """An option that may be left out, for `command`."""
    return Annotated[kind | None, option(*names, help=text, **more)]


_rule, _traced = partial(_may, objective_option), partial(_may, traced_option)
_held = partial(_may, memory_option)

# The semantics options, by the names of `Rules`.
RULES: Mapping[str, object] = {
    "objective": _rule(
        Objective,
        "What is minimized (max_context, serving_flow: tokens, and tokens/s, are maximized)",
        show_default="the model's; else max_load if traced, makespan if not",
    ),
    "plans": _rule(PlanClass, "max_load, max_context: class of plans that are allowed"),
    "channels": _rule(Channels, "makespan: what a transfer occupies"),
    "transfers": _rule(Transfers, "makespan: one per edge, or one per tensor and device"),
    "load": _rule(LoadRule, "max_load: compute + communication, or the larger one"),
    "replicas": _rule(bool, "max_load: equal devices may share a stage"),
    "levels": _rule(int, "max_load: 2 also charges what leaves a server", min=1, max=2),
    "subgraphs": _rule(int, "latency_subgraphs: calls per accelerator", min=1),
    "schedule": _rule(PipelineSchedule, "pipeline_iteration: order of microbatches on a device"),
    "stages_per_device": _rule(int, "pipeline_iteration: 2 or more if interleaved", min=1),
    "microbatches": _rule(int, "pipeline_iteration, hybrid_pipeline: microbatches", min=1),
    "sending": _rule(Sending, "pipeline_iteration: whether devices compute while they send"),
    "degrees": _rule(Degrees, "hybrid_pipeline: which replica and tensor degrees stages have"),
    "recompute": _rule(Recompute, "hybrid_pipeline: where recomputation is chosen"),
    "sharding": _rule(Sharding, "hybrid_pipeline: what is sharded over replicas"),
    "bubble": _rule(bool, "hybrid_pipeline: count filling and draining; only with --degrees one"),
    "at_most_ns": _rule(int, "max_context: limit on the load of a device", min=0),
    "partial_inference": _rule(bool, "serving_flow: tokens may enter a machine within its range"),
    "memory": _held(
        MemoryRule, "Count the sum of a device's bytes, or the peak under the schedule"
    ),
}

# The options of traced models, by the names of `TraceOptions`.
TRACING: Mapping[str, object] = {
    "batch": _traced(int, "hf: only: examples in a batch"),
    "seq": _traced(int, "hf: only: tokens of an example", show_default="the model's"),
    "dtype": _traced(
        Dtype, "hf: only: number type", show_default="the configuration's, else float32"
    ),
    "tied": _traced(Tied, "Ops that share a weight: one copy per device, or all on one device"),
    "keep_modules": _traced(bool, "Keep each block of the model on one device", "--keep-modules"),
    "weights": _held(
        str,
        "hf:, py:, ONNX: how weights are stored: int8, int4, q4_k_m and others, by parts"
        " (experts=q4_k_m,rest=q8_0), or bits per weight (4.5)",
        show_default="as the configuration says",
        metavar="FORMAT",
    ),
    "kv_tokens": _held(
        int, "hf: and py: only: tokens in the key-value cache", "--context", "--kv-tokens"
    ),
    "kv_dtype": _held(
        str, "How keys and values are stored: f16, fp8, q8_0 and others", metavar="TYPE"
    ),
    "decode": _traced(bool, "One token of each sequence, from the cache of --context", "--decode"),
    "prefill": _traced(int, "hf: only: a prompt of N tokens, which fills the cache"),
    "train": _traced(bool, "A training step with its weight updates", "--train"),
    "optimizer": _traced(Optimizer, "With --train: what updates the weights", show_default="adam"),
}


class _Group(NamedTuple):
    """What a field of several options has: these, what makes the field of them, defaults."""

    options: Mapping[str, object]
    make: Callable[..., object]
    defaults: Mapping[str, object]


# Types of fields that stand for several options.
GROUPS: Mapping[type, _Group] = {
    Rules: _Group(RULES, Rules, DEFAULTS),
    TraceOptions: _Group(
        TRACING,
        lambda **given: TraceOptions(**{k: v for k, v in given.items() if v is not None}),
        {field.name: field.default for field in fields(TraceOptions)},
    ),
}


def _described(annotation: object, default: object = None) -> object:
    """An option whose help names its choices, for which its name's column has no room, and the
    default of the rules behind it.
    """
    kind, given = get_args(annotation)
    shown, kinds = copy(given), (kind, *get_args(kind))
    choices = [c for part in kinds if get_origin(part) is Literal for c in get_args(part)]
    if choices:
        shown.metavar = "NAME"
    elif shown.metavar is None and bool in kinds:
        shown.metavar = ""  # a flag
    elif shown.metavar is None and int in kinds:
        shown.metavar = "N"
    if isinstance(shown.show_default, str):
        default = shown.show_default
    notes = [", ".join(choices)] if choices else []
    if default not in (None, False):
        notes.append(f"default: {default}")
        shown.show_default = False
    if notes:
        shown.help = f"{shown.help} ({'; '.join(notes)})"
    return Annotated[kind, shown]


def command(run: Callable[[Any], None]) -> Callable[..., None]:
    """The command of a function: it takes what the function's dataclass has, as typer reads it."""
    # A field is an option or an argument, as its annotation says, and a field of `GROUPS` is
    # several options, in its place.
    (taken,) = signature(run, eval_str=True).parameters.values()
    options: type[Any] = taken.annotation
    types = get_type_hints(options, include_extras=True)
    parameters: list[Parameter] = []
    groups: dict[str, type] = {}
    for field in fields(options):
        members: Mapping[str, object] = {field.name: types[field.name]}
        defaults: Mapping[str, object] = {}
        default: Any = field.default
        if types[field.name] in GROUPS:
            groups[field.name] = types[field.name]
            members, _, defaults = GROUPS[types[field.name]]
            default = None
        elif default is MISSING:
            default = Parameter.empty
        for name, annotation in members.items():
            shown = _described(annotation, defaults.get(name))
            parameters.append(
                Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=shown)
            )

    @wraps(run)
    def with_options(**given: Any) -> None:
        Quiet.is_set = given.get("quiet", False)
        for name, group in groups.items():
            table, make, _ = GROUPS[group]
            given[name] = make(**{each: given.pop(each, None) for each in table})
        run(options(**given))

    # what typer reads
    with_options.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {own.name: own.annotation for own in parameters}
    return with_options


def parse_pairs(pairs: Iterable[str], option: str = "--param") -> dict[str, str]:
    """``key=value`` texts of a repeated option; the methods read the values."""
    params: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InputError(f"{option} {pair!r} is not key=value")
        if key in params:
            raise InputError(f"{option} {key!r} is given twice")
        params[key] = value
    return params


def parse_dims(pairs: Iterable[str] | None) -> tuple[tuple[str, int], ...]:
    """``NAME=SIZE`` texts of ``--dim``."""
    dims = []
    for name, text in parse_pairs(pairs or (), "--dim").items():
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):
            raise InputError(f"--dim {name!r}: the size must be a positive integer (got {text!r})")
        dims.append((name, int(text)))
    return tuple(dims)


def source_of(options: Any, model: str | None = None) -> Source:
    """The model that a command's options name, or this one; what has no option is as usual."""
    from placegap.experiments.running.sources import Source
    from placegap.instances.costing.runtime_memory import Engine

    rules = getattr(options, "rules", None)
    share, tokens = (
        getattr(options, name, None)
        for name in ("gpu_memory_utilization", "max_num_batched_tokens")
    )
    tokens_s, texts = (
        getattr(options, "measured_tokens", None) or [],
        getattr(options, "line", None),
    )
    if len(tokens_s) > len(texts or ()):
        raise InputError("--measured-tokens needs the line that was measured: add --line")
    engine = getattr(options, "engine", None) or ("vllm" if share or tokens else None)
    return Source(
        model or options.model,
        options.cluster,
        options.time_unit,
        dims=parse_dims(options.dim),
        tracing=getattr(options, "tracing", None),
        times=getattr(options, "times", None),
        costs=getattr(options, "costs", None),
        devices=options.devices,
        layers=rules is not None and rules.is_hybrid,
        engine=None if engine is None else Engine(engine, share, tokens),
        measured=tuple(zip(texts or (), tokens_s or (), strict=False)),
    )


# Fields that name files to read, or may.
INPUTS = (
    *("model", "file", "config", "start", "cluster", "devices", "times", "module"),
    *("measurements", "links", "tensors"),
)


def inputs_of(options: Any) -> list[str]:
    """Names of the files that a command may read, for outputs to keep off them."""
    texts = list[str]()
    for given in (getattr(options, name, None) for name in INPUTS):
        texts += map(str, given if isinstance(given, list) else [] if given is None else [given])
    names = list[str]()
    for text in texts:
        module = text.removeprefix("py:").partition(":")[0]
        names += (text, text.removeprefix("hf:"), f"{module.replace('.', '/')}.py")
    return names


def load_instance(source: Source, *, reports: bool = False) -> Instance:
    """The instance of a source; with `reports`, reading that takes long is reported (`spinner`)."""
    from placegap.experiments.running.sources import idle_devices, load_source, small_figure

    doing = "tracing" if is_traced(source.model) else "reading"
    with spinner(f"{doing} {source.model}", reports=reports):
        instance = load_source(source)
    warn_open(instance.graph, source.model)
    small = None if source.cluster is None else small_figure(instance.cluster)
    for sentence in filter(None, (idle_devices(instance), small)):
        warn(sentence)
    if source.times is not None:
        warn_measured(instance.graph)
    return instance


def warn_measured(graph: Graph) -> None:
    """Print on stderr how many ops have measured times, and which names match none."""
    from placegap.instances.importers.measured_times import MEASURED

    if MEASURED in graph.provenance.parameters:
        warn(str(graph.provenance.parameters[MEASURED]))


def warn_open(graph: Graph, model: str) -> None:
    """Print the lines of `open_questions` on stderr."""
    from placegap.experiments.running.sources import open_questions

    for sentence in open_questions(graph, model):
        warn(sentence)
