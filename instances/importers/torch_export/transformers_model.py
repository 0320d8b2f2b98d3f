"""Models of transformers from their configurations: no weights, no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from placegap.instances.io.document import read_json
from placegap.instances.reading.errors import InputError
from placegap.instances.torch_models.options import Dtype, TraceOptions
from placegap.instances.torch_models.presets import Preset
from placegap.instances.torch_models.tracing import Traceable

USUAL_DTYPE = "float32"
"""Where neither the user nor the configuration says."""

USUAL_SEQ = 512
"""Tokens of an example, where neither the user nor the model says."""

USUAL_SAMPLES = 16_000
"""Samples of sound: one second."""

USUAL_IMAGE = 224
"""Pixels along an edge."""

LARGEST_FIELD = 10**9
"""No size of a model comes near."""

MOST_LABELS = 10**6
"""transformers writes out a name for every label."""


def preset_model(preset: Preset, options: TraceOptions) -> Traceable:
    """A model that goes by a name, and example inputs."""
    import torch

    if preset.model_class == "evoformer":
        from placegap.instances.torch_models.evoformer import evoformer_model

        residues = options.seq or preset.seq or USUAL_SEQ
        dtype = getattr(torch, options.dtype or USUAL_DTYPE)
        model = evoformer_model(options.batch, residues, dtype, **preset.config)
        return replace(model, sizes=f"batch {options.batch}, {residues} residues")
    import transformers

    model_class = getattr(transformers, preset.model_class)
    return _model(model_class, model_class.config_class(**preset.config), options, seq=preset.seq)


def config_model(path: Path, options: TraceOptions) -> Traceable:
    """The model that a configuration file describes, and example inputs.

    Raises
    ------
    InputError
        If the file is no configuration of a model that transformers knows, or one of quantized
        weights.
    """
    raw = read_json(path)
    kind = raw.get("model_type") if isinstance(raw, dict) else None
    if not isinstance(kind, str):
        raise InputError("is no configuration: it has no model_type", path)
    _check_sizes(raw, path)
    _refuse_quantized(raw, path)
    stated = None if options.dtype else _stated_dtype(raw, path)
    from transformers import CONFIG_MAPPING

    if kind not in CONFIG_MAPPING:
        raise InputError(f"transformers knows no model_type {kind!r}", path)
    config = CONFIG_MAPPING[kind].from_dict(_without_dtype(raw))
    return _model(_class_of(config, raw, path), config, options, dtype=stated)


def _refuse_quantized(raw: Mapping[str, Any], path: Path) -> None:
    """Refuse weights of fewer bits than numbers have here."""
    for part in (raw, *_parts(raw)):
        for name in ("quantization_config", "compression_config"):
            found = part.get(name)
            if found:
                method = found.get("quant_method") if isinstance(found, dict) else None
                how = f" ({method})" if isinstance(method, str) else ""
                raise InputError(
                    f"has a {name}{how}, and quantized weights cannot be read; without that field"
                    " the model is one of whole numbers (--dtype)",
                    path,
                )


def _stated_dtype(raw: Mapping[str, Any], path: Path) -> str | None:
    """The number type that a configuration states, or else the first of its parts that does."""
    for part in (raw, *_parts(raw)):
        found = part.get("dtype") or part.get("torch_dtype")
        if found:
            name = str(found).removeprefix("torch.")
            if name not in get_args(Dtype):
                kinds = ", ".join(get_args(Dtype))
                raise InputError(
                    f"its dtype {name!r} is none of {kinds}; choose one (--dtype)", path
                )
            return name
    return None


def _without_dtype(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without the number type, which transformers would look up in torch."""
    return {
        name: _without_dtype(value) if isinstance(value, dict) else value
        for name, value in raw.items()
        if name not in ("dtype", "torch_dtype")
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
    heads = (
        transformers.AutoModelForCausalLM,
        transformers.AutoModelForSeq2SeqLM,
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

    config.use_cache = False
    chosen = getattr(torch, options.dtype or dtype or USUAL_DTYPE)
    module = model_class._from_config(config).to(chosen)
    inputs = example_inputs(module, options, seq)
    return Traceable(module, (), inputs, _in_words(inputs))


def _in_words(inputs: Mapping[str, Any]) -> str:
    """Batch, and tokens, frames, samples or pixels of the main input."""
    name, main = next(iter(inputs.items()))
    units = {"input_features": "frames", "input_values": "samples", "pixel_values": "pixels"}
    extent = "x".join(map(str, main.shape[2:] if name == "pixel_values" else main.shape[-1:]))
    return f"batch {main.shape[0]}, {extent} {units.get(name, 'tokens')}"


def example_inputs(module: Any, options: TraceOptions, seq: int | None = None) -> dict[str, Any]:
    """Inputs of the shapes that the configuration states, for the main input of the model.

    Parameters
    ----------
    module : transformers.PreTrainedModel
    options : TraceOptions
    seq : int, optional
        Tokens of an example, where the options do not say.
    """
    import torch

    config = module.config
    name = module.main_input_name
    batch, floats = options.batch, module.dtype
    if name == "pixel_values":
        height, width = _image_size(config)
        channels = _first(config, ("num_channels", "in_channels", "in_chans"), 3)
        return {name: torch.zeros((batch, channels, height, width), dtype=floats)}
    if name == "input_features":
        bins = _first(config, ("num_mel_bins", "feature_size", "input_feat_per_channel"), 80)
        # two convolutions before the encoder halve the frames
        frames = options.seq or seq or 2 * _first(config, ("max_source_positions",), 500)
        inputs = {name: torch.zeros((batch, bins, frames), dtype=floats)}
    elif name == "input_values":
        samples = options.seq or seq or USUAL_SAMPLES
        inputs = {name: torch.zeros((batch, samples), dtype=floats)}
    else:
        text = config.get_text_config()
        most = _first(text, ("max_position_embeddings", "n_positions"), USUAL_SEQ)
        tokens = options.seq or seq or max(1, min(USUAL_SEQ, most))
        inputs = {name: torch.zeros((batch, tokens), dtype=torch.long)}
    if config.is_encoder_decoder:
        tokens = inputs[name].shape[1] if name == "input_ids" else 1
        inputs["decoder_input_ids"] = torch.zeros((batch, tokens), dtype=torch.long)
    return inputs


def _image_size(config: Any) -> tuple[int, int]:
    size: Any = getattr(config, "image_size", None) or USUAL_IMAGE
    if isinstance(size, list | tuple) and len(size) == 2:
        return int(size[0]), int(size[1])
    return int(size), int(size)


def _first(config: Any, names: tuple[str, ...], default: int) -> int:
    """The first of some fields that a configuration has."""
    found = (getattr(config, name, None) for name in names)
    return next((value for value in found if isinstance(value, int) and value > 0), default)
