"""What commands share: options, how a command is made of a dataclass of them, reading a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from placegap.experiments.running.rules import Rules
from placegap.experiments.show.rendering import spinner, warn
from placegap.instances.problem import (
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
    typer.Option(
        "--cluster",
        help="Name of a shipped cluster (see 'instances'), a file, or devices and links, such as"
        " '2xRTX3090+host, pcie4'.",
    ),
]
DevicesOption = Annotated[
    Path | None,
    typer.Option(
        "--devices", metavar="FILE", help="Device kinds of your own, beside the catalogue's (YAML)."
    ),
]
UnitOption = Annotated[
    TimeUnit | None,
    typer.Option("--time-unit", help="Unit of times in files that leave it open (default ms)."),
]
DimOption = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Size of a dimension that an ONNX file leaves open, by its name or as INPUT.AXIS"
        " (ids.0=8), or of a workload (batch=8).",
    ),
]
CostsOption = Annotated[
    str | None,
    typer.Option(
        metavar="[calibrated|roofline|measured[:FRAMEWORK]]",
        help="Times of ops that bring none: of the kernels that run them, at rates that kernels"
        " reach (calibrated, the default), or as measured on the card where a table has them (the"
        " newest of vLLM unless named), or of each op, at datasheets' rates (roofline; the default"
        " of graphs that ship).",
    ),
]
TimesOption = Annotated[
    Path | None,
    typer.Option(
        "--times",
        metavar="FILE",
        help="Measured times of ops by name: CSV (name,device_kind,time_ns) or a Chrome trace.",
    ),
]
ParamOption = Annotated[
    list[str] | None, typer.Option("--param", metavar="KEY=VALUE", help="Repeatable.")
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
    typer.Option(
        "--module",
        metavar="MODULE",
        help="A Python module, or its file, that registers methods of your own; repeatable.",
        callback=_use_modules,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

RULES: Mapping[str, object] = {
    "objective": Annotated[
        Objective | None, typer.Option(help="What to minimize; max_context: tokens, to maximize.")
    ],
    "plans": Annotated[
        PlanClass | None, typer.Option(help="max_load, max_context: which plans compete.")
    ],
    "channels": Annotated[
        Channels | None, typer.Option(help="makespan: what a transfer occupies.")
    ],
    "transfers": Annotated[
        Transfers | None, typer.Option(help="makespan: one per edge, or per tensor and device.")
    ],
    "load": Annotated[
        LoadRule | None, typer.Option(help="max_load: compute + communication, or the max.")
    ],
    "replicas": Annotated[
        bool | None, typer.Option(help="max_load: equal devices may share a stage.")
    ],
    "levels": Annotated[
        int | None,
        typer.Option(min=1, max=2, help="max_load: 2 charges servers for what leaves them."),
    ],
    "subgraphs": Annotated[
        int | None, typer.Option(min=1, help="latency_subgraphs: calls per accelerator.")
    ],
    "schedule": Annotated[
        PipelineSchedule | None,
        typer.Option(help="pipeline_iteration: in which order devices run microbatches."),
    ],
    "stages_per_device": Annotated[
        int | None,
        typer.Option(
            "--stages-per-device", min=1, help="pipeline_iteration: 2 or more if interleaved."
        ),
    ],
    "microbatches": Annotated[
        int | None,
        typer.Option(
            "--microbatches", min=1, help="pipeline_iteration and hybrid_pipeline: their number."
        ),
    ],
    "sending": Annotated[
        Sending | None,
        typer.Option(help="pipeline_iteration: links send during the work, or devices do."),
    ],
    "degrees": Annotated[
        Degrees | None,
        typer.Option(help="hybrid_pipeline: replicas and tensor degrees, any, one t, or one both."),
    ],
    "recompute": Annotated[
        Recompute | None,
        typer.Option(help="hybrid_pipeline: what chooses a mode: a layer, a stage, or the model."),
    ],
    "sharding": Annotated[
        Sharding | None, typer.Option(help="hybrid_pipeline: what replicas divide among them.")
    ],
    "bubble": Annotated[
        bool | None,
        typer.Option(
            "--bubble/--no-bubble",
            help="hybrid_pipeline: count filling and draining; needs one d and t.",
        ),
    ],
    "at_most_ns": Annotated[
        int | None,
        typer.Option("--at-most-ns", min=0, help="max_context: the load no device may exceed."),
    ],
    "memory": Annotated[
        MemoryRule | None, typer.Option(help="Bytes that add up, or the peak under the schedule.")
    ],
}
"""The semantics options, by the names of `Rules`."""


TRACING: Mapping[str, object] = {
    "batch": Annotated[int | None, typer.Option(help="hf: models: examples in a batch (1).")],
    "seq": Annotated[int | None, typer.Option(help="hf: models: tokens of an example.")],
    "dtype": Annotated[
        Dtype | None,
        typer.Option(help="hf: models: number type (the configuration's, else float32)."),
    ],
    "tied": Annotated[
        Tied | None,
        typer.Option(
            help="hf: and py: models: ops that share a weight each hold a copy (the default), or"
            " stay on one device."
        ),
    ],
    "keep_modules": Annotated[
        bool | None,
        typer.Option("--keep-modules", help="hf: and py: models: no block is split over devices."),
    ],
    "weights": Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="hf:, py: and ONNX models: how weights are stored (int8, int4, q4_k_m, ...), by"
            " parts (experts=q4_k_m,rest=q8_0), or bits per weight with scales (4.5); the"
            " configuration's quantization otherwise.",
        ),
    ],
    "kv_tokens": Annotated[
        int | None,
        typer.Option(
            "--context",
            "--kv-tokens",
            help="hf: and py: models: tokens whose keys and values attention holds.",
        ),
    ],
    "kv_dtype": Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="hf: and py: models: how keys and values are stored (f16, fp8, q8_0, ...).",
        ),
    ],
    "decode": Annotated[
        bool | None,
        typer.Option(
            "--decode",
            help="hf: and py: models: one token of each sequence, from the cache of --context.",
        ),
    ],
    "prefill": Annotated[
        int | None,
        typer.Option(help="hf: models: a prompt of this many tokens, which fills the cache."),
    ],
    "train": Annotated[
        bool | None,
        typer.Option("--train", help="hf: and py: models: a training step with its updates."),
    ],
    "optimizer": Annotated[
        Optimizer | None,
        typer.Option(help="With --train: what updates the weights (adam); none: nothing."),
    ],
}
"""The options of traced models, by the names of `TraceOptions`."""


def _trace_options(**given: Any) -> TraceOptions:
    return TraceOptions(**{name: value for name, value in given.items() if value is not None})


GROUPS: Mapping[type, tuple[Mapping[str, object], Callable[..., object]]] = {
    Rules: (RULES, Rules),
    TraceOptions: (TRACING, _trace_options),
}
"""Type of a field that stands for several options -> these, and what makes the field of them."""


def command(run: Callable[[Any], None]) -> Callable[..., None]:
    """The command of a function: it takes what the function's dataclass has, as typer reads it.

    A field is an option or an argument, as its annotation says, and a field of `GROUPS` is several
    options, in its place.
    """
    (taken,) = signature(run, eval_str=True).parameters.values()
    options: type[Any] = taken.annotation
    types = get_type_hints(options, include_extras=True)
    asked: list[Parameter] = []
    groups: dict[str, type] = {}
    for field in fields(options):
        members, default = {field.name: types[field.name]}, field.default
        if types[field.name] in GROUPS:
            groups[field.name] = types[field.name]
            members, default = dict(GROUPS[types[field.name]][0]), None
        elif default is MISSING:
            default = Parameter.empty
        asked += [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
            for name, annotation in members.items()
        ]

    @wraps(run)
    def with_options(**given: Any) -> None:
        for name, group in groups.items():
            table, make = GROUPS[group]
            given[name] = make(**{each: given.pop(each, None) for each in table})
        run(options(**given))

    # what typer reads
    with_options.__signature__ = Signature(asked)  # type: ignore[attr-defined]
    with_options.__annotations__ = {own.name: own.annotation for own in asked}
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


def source_of(asked: Any, model: str | None = None) -> Source:
    """The model that a command's options name, or this one; what has no option is as usual."""
    from placegap.experiments.running.sources import Source

    rules = getattr(asked, "rules", None)
    return Source(
        model or asked.model,
        asked.cluster,
        getattr(asked, "time_unit", None),
        dims=parse_dims(getattr(asked, "dim", None)),
        tracing=getattr(asked, "tracing", None),
        times=getattr(asked, "times", None),
        costs=getattr(asked, "costs", None),
        devices=asked.devices,
        layers=rules is not None and rules.is_hybrid,
    )


INPUTS = (
    *("model", "file", "config", "start", "cluster", "devices", "times", "module"),
    *("measurements", "links", "tensors"),
)
"""Fields that name files to read, or may."""


def inputs_of(asked: Any) -> list[str]:
    """Names of the files that a command may read, for outputs to keep off them."""
    texts = list[str]()
    for given in (getattr(asked, name, None) for name in INPUTS):
        texts += map(str, given if isinstance(given, list) else [] if given is None else [given])
    names = list[str]()
    for text in texts:
        module = text.removeprefix("py:").partition(":")[0]
        names += (text, text.removeprefix("hf:"), f"{module.replace('.', '/')}.py")
    return names


def load_instance(source: Source, *, tells: bool = False) -> Instance:
    """The instance of a source; with `tells`, reading that takes long is reported (`spinner`)."""
    from placegap.experiments.running.sources import idle_devices, load_source

    doing = "tracing" if is_traced(source.model) else "reading"
    with spinner(f"{doing} {source.model}", tells=tells):
        instance = load_source(source)
    warn_open(instance.graph, source.model)
    idle = idle_devices(instance)
    if idle is not None:
        warn(idle)
    if source.times is not None:
        warn_measured(instance.graph)
    return instance


def warn_measured(graph: Graph) -> None:
    """Print on stderr how many ops have measured times, and which names match none."""
    from placegap.experiments.running.sources import measured_times

    sentence = measured_times(graph)
    if sentence is not None:
        warn(sentence)


def warn_open(graph: Graph, model: str) -> None:
    """Print the lines of `open_questions` on stderr."""
    from placegap.experiments.running.sources import open_questions

    for sentence in open_questions(graph, model):
        warn(sentence)
