"""Models from PyTorch and Hugging Face as documents: built without weights, traced, read.

``hf:NAME`` is a preset (`presets`), ``hf:./config.json`` a configuration of transformers,
``model.gguf`` a file of llama.cpp (`gguf_file`), and ``py:module:function`` a function that returns
a module and its example inputs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from pathlib import Path
from typing import Any, get_args

from placegap.instances.costing.weight_formats import WeightFormat, configured_format, weight_format
from placegap.instances.files.document import Document, read_json
from placegap.instances.problem import WITHOUT_OPS, Graph, Makespan, MaxLoad
from placegap.instances.reading.errors import InputError, as_input_error
from placegap.instances.torch_models.fx_reader import FxProgram, live_nodes, read_fx_graph
from placegap.instances.torch_models.gguf_file import (
    GgufHeader,
    configuration,
    read_gguf_header,
    stored_as,
)
from placegap.instances.torch_models.image_inputs import (
    image_inputs,
    image_size,
    packs_images,
    refuse_short_text,
    takes_images,
)
from placegap.instances.torch_models.inference_phase import (
    add_kernels,
    add_kv_cache,
    is_cross_attention,
    read_routed_experts,
    use_chunks_at_once,
    use_fused_attention,
)
from placegap.instances.torch_models.options import (
    ASSUMED,
    GGUF,
    LEFT_OUT,
    UNCOUNTED,
    UNFIT,
    UNREAD,
    Dtype,
    TraceOptions,
    is_gguf,
)
from placegap.instances.torch_models.presets import Preset, find_preset
from placegap.instances.torch_models.repeated_layers import (
    NotAlike,
    Stack,
    alike,
    repeat_layers,
    shortened,
)
from placegap.instances.torch_models.step_cache import add_states, cache_inputs, end_writes
from placegap.instances.torch_models.tracing import (
    Traceable,
    built,
    import_torch,
    modules_without_ops,
    no_split_label,
    one_line,
    parameter_count,
    stored_bits,
    traced,
    unfit_in_words,
    unread_bytes,
    unread_in_words,
    weights_in_words,
)

FOLDED = ("nodes that read only weights and constants folded into constants",)

# What a model that is traced is for, where no option says more: a full pipeline, whose stages say
# what they hold when.
USUAL = MaxLoad(plans="chain", memory="peak")
# The same for a decode step, whose next token waits for this one: the time of one token.
USUAL_DECODE = Makespan(memory="peak")
MOST_NAMED = 3  # ops without a rule for FLOPs that the provenance names


def read_traced_model(name: str, options: TraceOptions | None = None) -> Document:
    """A model by its name (``hf:NAME``, ``hf:PATH.json``, ``py:module:function``), traced."""
    options = options or TraceOptions()
    model = build_model(name, options)
    try:
        found = _repeated(name, model, options)
        if found is None:  # with a model anew: transformers hooked the layers that were there
            found = _whole(name, build_model(name, options), options, ())
        program, read = found
    except InputError:  # it names the model already
        raise
    except ValueError as error:
        raise InputError(str(error), name) from None
    unread = unread_bytes(model, read)
    if options.decode:
        _hold(program, sum(unread.values()))
    idle = modules_without_ops(model.module, (op.get("module") for op in program.ops))
    said = {
        ASSUMED: weights_in_words(model),
        UNREAD: unread_in_words(unread),
        LEFT_OUT: model.left_out,
        UNFIT: unfit_in_words(model.module, options),
    }
    parameters = parameter_count(model.module)
    return as_document(name, options, program, parameters, without_ops=idle, said=said)


def _hold(program: FxProgram, size: int) -> None:
    """Let the first layer hold what a step does not read: towers and encoders stay loaded."""
    layers = (op for op in program.ops if ".0" in re.findall(r"\.\d+", op["module"] or ""))
    first = next(layers, program.ops[0])
    first["state_bytes"] += size
    first["resident_bytes"] += size


def _repeated(
    name: str, model: Traceable, options: TraceOptions
) -> tuple[FxProgram, list[str]] | None:
    """What `_whole` reads, from a trace of one layer of each kind; None where that is no less."""
    # Functions of users may treat layers differently by number; models of transformers say so.
    if name.startswith("py:"):
        return None
    with shortened(model.module, stored_bits(model)) as stacks:
        if not stacks:
            return None
    try:
        return _whole(name, model, options, stacks)
    except (InputError, ValueError, NotAlike):
        return None


def _whole(
    name: str, model: Traceable, options: TraceOptions, stacks: Sequence[Stack]
) -> tuple[FxProgram, list[str]]:
    """The program of a model, and the names of all weights that it reads."""
    with shortened(model.module, stored_bits(model)) if stacks else nullcontext():
        graph, held = traced(name, model)
    refuse_short_text(graph)
    labels = no_split_label(model.module) if options.keep_modules else lambda node: ()
    program = read_fx_graph(graph, held, labels=labels, tied=options.tied)
    read_routed_experts(program, graph)
    num_states = add_states(program, graph)
    if options.decode:
        end_writes(program)
    if options.cached_tokens and not (
        add_kv_cache(program, graph, model.module, options) or num_states
    ):
        raise ValueError("has no fused attention op that a cache (--context) belongs to")
    add_kernels(program, graph, model.module, options)
    repeat_layers(program, graph, stacks)
    live = {node.name for node in live_nodes(graph)}
    read = [each.name for node, each in held.items() if node in live]
    return program, [other for each in read for other in alike(each, stacks)]


def build_model(name: str, options: TraceOptions) -> Traceable:
    """The module of a name on the meta device, and its example inputs."""
    model = built(*_builder(name, options))
    return replace(model, weights=weight_format(options.weights)) if options.weights else model


def _builder(name: str, options: TraceOptions) -> tuple[str, Callable[[], Traceable]]:
    """What stands before messages about a model, and what builds it."""
    prefix, _, rest = name.partition(":")
    if is_gguf(name):
        path = Path(name.removeprefix("hf:"))
        if options.train:
            raise InputError("holds weights for inference; leave out --train", path)
        import_torch(str(path), "transformers")
        header = read_gguf_header(path)
        return str(path), lambda: gguf_model(header, options)
    if prefix == "py":
        for option in ("batch", "seq", "dtype", "prefill"):
            if option in options.chosen():
                raise InputError(f"the function chooses its inputs; leave out --{option}", name)
        import_torch(name)
        return name, lambda: function_model(rest)
    if rest.endswith(".json") or "/" in rest:
        path = Path(rest)
        path = path / "config.json" if path.is_dir() else path
        if not path.exists():
            raise InputError(
                "is not a local file; for a model of the Hub, download its config.json"
                " (huggingface.co/ORG/NAME/resolve/main/config.json) and name that",
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
    """The document of a program that was read, with what was changed on the way."""
    # `without_ops` are the modules that hold parameters and that no op names, and `said` more that
    # is known of the model, by the names of `options`.
    own = name if is_gguf(name) else name.partition(":")[2].replace(":", ".")
    short = Path(own).name.removesuffix(".json").removesuffix(GGUF)
    raw = {
        "name": short,
        "ops": program.ops,
        "edges": program.edges,
        "provenance": {
            "source": f"traced from {name}",
            "changes": ("weights dropped, their sizes kept", *changes),
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
    with as_input_error(raw, name):
        rules = USUAL_DECODE if options.decode else USUAL
        return Document(name=short, graph=Graph.model_validate(raw), semantics=rules)


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


SHAPES = "(module, args), (module, kwargs) or (module, args, kwargs)"


def function_model(name: str) -> Traceable:
    """What the function ``module:function`` returns: a module and the inputs of one call."""
    # Modules of the working folder are found, too.
    source = f"py:{name}"
    module_name, _, function_name = name.partition(":")
    if not module_name or not function_name:
        raise InputError("is not py:module:function", source)
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        with one_line(source, f"module {module_name!r} cannot be imported"):
            module = import_module(module_name)
    finally:
        sys.path.remove(folder)
    function = getattr(module, function_name, None)
    if not callable(function):
        raise InputError(f"module {module_name!r} has no function {function_name!r}", source)
    with one_line(source, f"{function_name} cannot be called"):
        return _traceable(function(), source)


def _traceable(returned: Any, source: str) -> Traceable:
    from torch.nn import Module

    parts = returned if isinstance(returned, tuple) else (returned,)
    match parts:
        case (Module() as module, tuple() | list() as args):
            return Traceable(module, tuple(args))
        case (Module() as module, dict() as kwargs):
            return Traceable(module, (), kwargs)
        case (Module() as module, tuple() | list() as args, dict() as kwargs):
            return Traceable(module, tuple(args), kwargs)
    raise InputError(f"the function must return {SHAPES}", source)


USUAL_DTYPE = "float32"  # where neither the user nor the configuration says
USUAL_SEQ = 512  # tokens of an example, where neither the user nor the model says
USUAL_SAMPLES = 16_000  # samples of sound: one second
LARGEST_FIELD = 10**9  # no size of a model comes near
MOST_LABELS = 10**6  # transformers writes out a name for every label


def preset_model(preset: Preset, options: TraceOptions) -> Traceable:
    """A model that goes by a name, and example inputs."""
    import transformers

    model_class = getattr(transformers, preset.model_class)
    return _model(model_class, model_class.config_class(**preset.config), options, seq=preset.seq)


def config_model(path: Path, options: TraceOptions) -> Traceable:
    """The model that a configuration file describes, and example inputs."""
    raw = read_json(path)
    kind = raw.get("model_type") if isinstance(raw, dict) else None
    if not isinstance(kind, str):
        raise InputError("is not a configuration: it has no model_type", path)
    _check_sizes(raw, path)
    weights = None if options.weights else _stated_weights(raw, path)
    return replace(_configured(raw, path, options), weights=weights)


def gguf_model(header: GgufHeader, options: TraceOptions) -> Traceable:
    """The model of a file of llama.cpp, with its weights as they are stored, and example inputs."""
    from transformers import CONFIG_MAPPING

    raw = configuration(header, [*CONFIG_MAPPING])
    _check_sizes(raw, header.path)
    model = _configured(raw, header.path, options)
    if options.weights is None:
        model = replace(model, weights=stored_as(header, model.module))
    return model


def _configured(raw: dict[str, Any], path: Path, options: TraceOptions) -> Traceable:
    """The model of a configuration, and example inputs."""
    from transformers import CONFIG_MAPPING

    kind, stated = raw["model_type"], None if options.dtype else _stated_dtype(raw, path)
    if kind not in CONFIG_MAPPING:
        raise InputError(f"transformers has no model_type {kind!r}", path)
    config = CONFIG_MAPPING[kind].from_dict(_without_numbers(raw))
    model = _model(_class_of(config, raw, path), config, options, dtype=stated)
    return replace(model, left_out=_left_out(raw, model.module))


def _left_out(raw: Mapping[str, Any], module: Any) -> str:
    """The layers of multi-token prediction that a configuration states, if the module has none."""
    if any(part in path for path, _ in module.named_modules() for part in ("mtp", "nextn")):
        return ""
    fields = ((name, part.get(name)) for part in (raw, *_parts(raw)) for name in PREDICTS_MORE)
    return next((f"{name}={n}" for name, n in fields if isinstance(n, int) and n > 0), "")


# Fields of a configuration that count layers of multi-token prediction.
PREDICTS_MORE = (
    "num_nextn_predict_layers",
    "num_mtp_layers",
    "num_mtp_modules",
    "mtp_num_layers",
    "mtp_num_hidden_layers",
)


def _stated_weights(raw: Mapping[str, Any], path: Path) -> WeightFormat | None:
    """The format of weights that a configuration states, or else the first part that does."""
    for part in (raw, *_parts(raw)):
        for name in QUANTIZATION:
            if part.get(name):
                try:
                    return configured_format(part[name])
                except InputError as error:
                    raise InputError(str(error), path) from None
    return None


def _stated_dtype(raw: Mapping[str, Any], path: Path) -> str | None:
    """The number type that a configuration states, or else the first of its parts that does."""
    for part in (raw, *_parts(raw)):
        found = part.get("dtype") or part.get("torch_dtype")
        if found:
            name = str(found).removeprefix("torch.")
            if name not in get_args(Dtype):
                kinds = ", ".join(get_args(Dtype))
                raise InputError(
                    f"its dtype {name!r} is not one of {kinds}; choose one (--dtype)", path
                )
            return name
    return None


# Fields of a configuration that say how weights are stored.
QUANTIZATION = ("quantization_config", "compression_config")


def _without_numbers(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without number types, which transformers would look up in torch."""
    return {
        name: _without_numbers(value) if isinstance(value, dict) else value
        for name, value in raw.items()
        if name not in ("dtype", "torch_dtype", *QUANTIZATION)
    }


def _parts(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The configurations of parts of the model, that of its text first."""
    names = [name for name in raw if name.endswith("_config") and isinstance(raw[name], dict)]
    return [raw[name] for name in sorted(names, key=lambda name: name != "text_config")]


def _check_sizes(raw: Any, path: Path, place: str = "") -> None:
    """Refuse sizes that would be built before torch could refuse them."""
    entries: Any = ()
    if isinstance(raw, dict):
        entries = raw.items()
    elif isinstance(raw, list):
        entries = enumerate(raw)
    for name, value in entries:
        here = f"{place}.{name}" if place else str(name)
        most = MOST_LABELS if name == "num_labels" else LARGEST_FIELD
        if isinstance(value, int) and abs(value) > most:
            raise InputError(f"{here} is above {most}", path)
        _check_sizes(value, path, here)


def _class_of(config: Any, raw: Mapping[str, Any], path: Path) -> Any:
    """The class that the configuration names, or the first of the usual heads that it has."""
    import transformers

    names = raw.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    named = getattr(transformers, name, None) if isinstance(name, str) else None
    if isinstance(named, type) and issubclass(named, transformers.PreTrainedModel):
        return named
    both = (transformers.AutoModelForSeq2SeqLM, transformers.AutoModelForSpeechSeq2Seq)
    heads = (
        *(both if config.is_encoder_decoder else ()),
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForImageTextToText,
        transformers.AutoModelForImageClassification,
        transformers.AutoModel,
    )
    for head in heads:
        if type(config) in head._model_mapping:
            found = head._model_mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    raise InputError(f"transformers has no model of type {config.model_type!r}", path)


def _model(
    model_class: Any,
    config: Any,
    options: TraceOptions,
    *,
    seq: int | None = None,
    dtype: str | None = None,
) -> Traceable:
    import torch

    config.use_cache = config.get_text_config().use_cache = False
    if options.cached_tokens:
        use_fused_attention(model_class, config)
    chosen = getattr(torch, options.dtype or dtype or USUAL_DTYPE)
    module = model_class._from_config(config).to(chosen)
    use_chunks_at_once(module)
    inputs = example_inputs(module, options, seq)
    words = _in_words(inputs).replace(" 1 tokens", " 1 token")
    if options.prefill and "logits_to_keep" in signature(module.forward).parameters:
        inputs["logits_to_keep"] = 1
    if options.decode or options.prefill:
        stored = f" in {options.kv_dtype}" if options.kv_dtype else ""
        words += f" and a cache of {options.cached_tokens}{stored}"
    if options.decode:
        inputs |= cache_inputs(module, inputs)
    return Traceable(module, (), inputs, words)


def _in_words(inputs: Mapping[str, Any]) -> str:
    """Batch, and tokens, frames, samples or pixels of the main input."""
    name, main = next(iter(inputs.items()))
    units = {"input_features": "frames", "input_values": "samples", "pixel_values": "pixels"}
    extent = "x".join(map(str, main.shape[2:] if name == "pixel_values" else main.shape[-1:]))
    images = " with an image" if name == "input_ids" and "pixel_values" in inputs else ""
    return f"batch {main.shape[0]}, {extent} {units.get(name, 'tokens')}{images}"


def example_inputs(module: Any, options: TraceOptions, seq: int | None = None) -> dict[str, Any]:
    """Inputs of the shapes that the configuration states, for the main input of the model."""
    # An example has `seq` tokens, where the options do not say.
    import torch

    config = module.config
    name = module.main_input_name
    batch, floats = options.batch, module.dtype
    if options.decode and config.is_encoder_decoder:
        if not any(is_cross_attention(path) for path, _ in module.named_modules()):
            raise InputError("the cross-attention of this model is not known; leave out --decode")
        encoded = getattr(config, "max_source_positions", None) or options.cached_tokens
        return {
            "decoder_input_ids": torch.zeros((batch, 1), dtype=torch.long),
            "encoder_outputs": (torch.zeros((batch, encoded, config.hidden_size), dtype=floats),),
        }
    seq = 1 if options.decode else options.prefill or options.seq or seq
    if name == "pixel_values":
        height, width = image_size(config)
        channels = _first(config, ("num_channels", "in_channels", "in_chans"), 3)
        return {name: torch.zeros((batch, channels, height, width), dtype=floats)}
    if name == "input_features":
        bins = _first(config, ("num_mel_bins", "feature_size", "input_feat_per_channel"), 80)
        # two convolutions before the encoder halve the frames
        frames = seq or 2 * _first(config, ("max_source_positions",), 500)
        inputs = {name: torch.zeros((batch, bins, frames), dtype=floats)}
    elif name == "input_values":
        samples = seq or USUAL_SAMPLES
        inputs = {name: torch.zeros((batch, samples), dtype=floats)}
    else:
        text = config.get_text_config()
        most = _first(text, ("max_position_embeddings", "n_positions"), USUAL_SEQ)
        tokens = seq or max(1, min(USUAL_SEQ, most))
        inputs = {name: torch.zeros((batch, tokens), dtype=torch.long)}
        if takes_images(module) and not (options.decode or options.train):
            inputs |= image_inputs(module, batch)
            if packs_images(type(module)):  # rows, columns and times of tokens
                inputs["position_ids"] = torch.zeros((3, batch, tokens), dtype=torch.long)
    if config.is_encoder_decoder:
        tokens = inputs[name].shape[1] if name == "input_ids" else 1
        inputs["decoder_input_ids"] = torch.zeros((batch, tokens), dtype=torch.long)
    return inputs


def _first(config: Any, names: tuple[str, ...], default: int) -> int:
    """The first of some fields that a configuration has."""
    found = (getattr(config, name, None) for name in names)
    return next((value for value in found if isinstance(value, int) and value > 0), default)
