"""Models from PyTorch and Hugging Face as documents: built without weights, traced, read.

``hf:NAME`` is a preset (`presets`), ``hf:./config.json`` a configuration of transformers, and
``py:module:function`` a function that returns a module and its example inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import ValidationError

from placegap.instances.io.document import Document
from placegap.instances.problem.instance import WITHOUT_OPS, Graph
from placegap.instances.problem.semantics import MaxLoad
from placegap.instances.reading.errors import InputError, from_validation_error
from placegap.instances.torch_models.fx_reader import FxProgram, live_nodes, read_fx_graph
from placegap.instances.torch_models.model import (
    config_model,
    function_model,
    preset_model,
)
from placegap.instances.torch_models.options import (
    ASSUMED,
    UNCOUNTED,
    UNREAD,
    TraceOptions,
)
from placegap.instances.torch_models.presets import find_preset
from placegap.instances.torch_models.tracing import (
    Traceable,
    add_kv_cache,
    built,
    import_torch,
    modules_without_ops,
    no_split_label,
    parameter_count,
    traced,
    unread_in_words,
    weights_in_words,
)

FOLDED = ("nodes that read only weights and constants folded into constants",)

USUAL = MaxLoad(plans="chain", memory="peak")
"""What a model that is traced is for, where nobody says more: a full pipeline, whose stages say
what they hold when."""

MOST_NAMED = 3
"""Ops without a rule for FLOPs that the provenance names."""


def read_traced_model(name: str, options: TraceOptions | None = None) -> Document:
    """A model by its name, as a document without a cluster.

    Parameters
    ----------
    name : str
        ``hf:NAME``, ``hf:PATH.json`` or ``py:module:function``.
    options : TraceOptions, optional

    Raises
    ------
    InputError
        One line: there is no such model, torch is missing, or the model cannot be traced.
    """
    options = options or TraceOptions()
    model = build_model(name, options)
    graph, held = traced(name, model)
    labels = no_split_label(model.module) if options.keep_modules else lambda node: ()
    try:
        program = read_fx_graph(graph, held, labels=labels, tied=options.tied)
        if options.kv_tokens and not add_kv_cache(program, graph, options.kv_tokens):
            raise ValueError("has no fused attention op that a cache (--kv-tokens) belongs to")
    except ValueError as error:
        raise InputError(str(error), name) from None
    idle = modules_without_ops(model.module, (op.get("module") for op in program.ops))
    live = {node.name for node in live_nodes(graph)}
    read = [each.name for node, each in held.items() if node in live]
    said = {ASSUMED: weights_in_words(model), UNREAD: unread_in_words(model.module, read)}
    parameters = parameter_count(model.module)
    return as_document(name, options, program, parameters, without_ops=idle, said=said)


def build_model(name: str, options: TraceOptions) -> Traceable:
    """The module of a name on the meta device, and its example inputs.

    Raises
    ------
    InputError
        One line: there is no such model, torch is missing, or the model cannot be built.
    """
    return built(*_builder(name, options))


def build_real_model(name: str, options: TraceOptions, seed: int = 0) -> Traceable:
    """The module of a name on the CPU with random weights, as its class draws them from a seed.

    Raises
    ------
    InputError
        As `build_model`.
    """
    source, build = _builder(name, options)
    import torch

    torch.manual_seed(seed)
    return built(source, build, "cpu")


def _builder(name: str, options: TraceOptions) -> tuple[str, Callable[[], Traceable]]:
    """What stands before messages about a model, and what builds it."""
    prefix, _, rest = name.partition(":")
    if prefix == "py":
        for option in ("batch", "seq", "dtype"):
            if option in options.chosen():
                raise InputError(f"the function chooses its inputs; leave out --{option}", name)
        import_torch(name)
        return name, lambda: function_model(rest)
    if rest.endswith(".json") or "/" in rest:
        path = Path(rest)
        path = path / "config.json" if path.is_dir() else path
        if not path.exists():
            raise InputError(
                "there is no such file; a model of the hub comes by its configuration, config.json",
                path,
            )
        import_torch(str(path), "transformers")
        return str(path), lambda: config_model(path, options)
    preset = find_preset(rest)
    import_torch(name, "transformers")
    return name, lambda: preset_model(preset, options)


def as_document(
    name: str,
    options: TraceOptions,
    program: FxProgram,
    parameters: int,
    changes: Sequence[str] = FOLDED,
    *,
    without_ops: Sequence[str] = (),
    said: Mapping[str, str] | None = None,
) -> Document:
    """The document of a program that was read, with what was changed on the way.

    `without_ops` are the modules that hold parameters and that no op names, and `said` more that is
    known of the model, by the names of `options`.
    """
    short = Path(name.partition(":")[2].replace(":", ".")).name.removesuffix(".json")
    raw = {
        "name": short,
        "ops": program.ops,
        "edges": program.edges,
        "provenance": {
            "source": f"traced from {name}",
            "changes": (
                "weights dropped, their sizes kept",
                *changes,
            ),
            "parameters": {
                "parameters": parameters,
                **options.chosen(),
                **_versions(),
                **_uncounted(program),
                WITHOUT_OPS: " ".join(without_ops),
                **{key: text for key, text in (said or {}).items() if text},
            },
        },
    }
    try:
        return Document(name=short, graph=Graph.model_validate(raw), semantics=USUAL)
    except ValidationError as error:
        raise from_validation_error(error, raw, name) from None


def _uncounted(program: FxProgram) -> dict[str, str]:
    """The first ops that read weights and have no rule for FLOPs, and how many more there are."""
    named = program.uncounted[:MOST_NAMED]
    if len(program.uncounted) > len(named):
        named.append(f"and {len(program.uncounted) - len(named)} more")
    return {UNCOUNTED: ", ".join(named)} if named else {}


def _versions() -> dict[str, str]:
    found = {}
    for package in ("torch", "transformers"):
        try:
            found[package] = version(package).partition("+")[0]
        except PackageNotFoundError:
            continue
    return found
