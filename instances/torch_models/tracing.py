"""From a module and example inputs to an ATen program, by `torch.export` on the meta device."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from placegap.instances.costing.weight_formats import Role, Weights, stored_bytes
from placegap.instances.problem.integers import format_bytes
from placegap.instances.reading.errors import InputError, MissingExtra
from placegap.instances.reading.input_files import MAX_TORCH_MODULES
from placegap.instances.torch_models.fx_reader import Held, HeldKind
from placegap.instances.torch_models.options import TraceOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

# Calls that stay one op: their kernels are one, and the table would take them apart.
KEPT = frozenset(
    {"aten::scaled_dot_product_attention", "aten::silu", "aten::gelu", "aten::leaky_relu"}
)

MOST_NAMED = 3  # modules without readers that are named; more are counted


@dataclass(frozen=True)
class Traceable:
    """A module and the inputs that it is called with, and in words how large those are."""

    # `weights` is how its weights are stored, where not in their number type: a format, or the bits
    # of every parameter by name. `left_out` is what of its configuration the module does not have.
    module: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    sizes: str = ""
    weights: Weights | Mapping[str, Fraction] | None = None
    left_out: str = ""


def import_torch(source: str, *more: str) -> Any:
    """Import torch, and other modules, without a network; one line says what to install."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a look for files would hang without a network
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            modules = [__import__(name) for name in ("torch", *more)]
    except ImportError as error:
        if error.name not in ("torch", *more):  # what they need is missing, or does not suit them
            raise InputError(
                f"torch cannot be imported: {_first_paragraph(str(error))}", source
            ) from None
        raise MissingExtra("needs torch: pip install 'placegap[torch]'", source) from None
    return modules[0]


def built(source: str, build: Callable[[], Traceable]) -> Traceable:
    """What a builder returns, on the meta device: tensors have shapes, and no data."""
    import torch
    from torch.utils._pytree import tree_map

    def moved(leaf: Any) -> Any:
        return leaf.to("meta") if isinstance(leaf, torch.Tensor) else leaf

    with one_line(source, "cannot be built"), _limited_modules(source), torch.device("meta"):
        found = build()
        module = found.module.to("meta").eval()
        module.register_forward_hook(_tensors_for_objects)
        args, kwargs = tree_map(moved, (found.args, found.kwargs))
        return replace(found, module=module, args=args, kwargs=kwargs)


def _tensors_for_objects(module: Any, args: Any, output: Any) -> Any:
    """A hook: in place of an output that holds objects (a cache of keys), the tensors in it."""
    # Export knows containers and tensors alone. None, which leaves the output as it is, elsewhere.
    import torch
    from torch.utils._pytree import tree_leaves

    simple = (torch.Tensor, int, float, complex, str, type(None))
    if all(isinstance(leaf, simple) for leaf in tree_leaves(output)):
        return None
    tensors: dict[int, Any] = {}
    seen: dict[int, Any] = {}
    waiting = [output]
    while waiting:
        for leaf in tree_leaves(waiting.pop(0)):
            if isinstance(leaf, torch.Tensor):
                tensors.setdefault(id(leaf), leaf)
            elif id(leaf) not in seen and hasattr(leaf, "__dict__") and not callable(leaf):
                seen[id(leaf)] = leaf
                waiting.append(list(vars(leaf).values()))
    return list(tensors.values())


def traced(source: str, model: Traceable) -> tuple[Any, dict[str, Held]]:
    """The graph of ATen calls of one forward pass, and which of its inputs the model holds."""
    import torch

    with one_line(source, "cannot be traced"), torch.no_grad():
        program = torch.export.export(model.module, model.args, model.kwargs, strict=False)
        table = torch.export.default_decompositions()
        for op in [op for op in table if _name(op) in KEPT]:
            del table[op]
        program = program.run_decompositions(table)
    held = held_of(model.module, program.graph_signature)
    bits = stored_bits(model)
    return program.graph, {
        node: replace(each, bits=bits.get(each.name)) for node, each in held.items()
    }


def stored_bits(model: Traceable) -> dict[str, Fraction]:
    """Bits per weight of the parameters that are stored in another format, by name."""
    if model.weights is None or isinstance(model.weights, Mapping):
        return {**(model.weights or {})}
    import torch

    head = getattr(model.module, "get_output_embeddings", lambda: None)()
    found = {}
    for path, owner in model.module.named_modules():
        role: Role = "matrix"
        if isinstance(owner, torch.nn.Embedding):
            role = "embedding"
        elif owner is head:
            role = "head"
        elif "Router" in type(owner).__name__ or path.endswith((".gate", ".router")):
            role = "router"
        for name, parameter in owner.named_parameters(recurse=False):
            bits = model.weights.bits_of(path, parameter.dim(), role)
            if bits is not None and parameter.dtype.is_floating_point:
                found[f"{path}.{name}" if path else name] = bits
    return found


def held_of(module: Any, signature: Any) -> dict[str, Held]:
    """What the inputs of an exported program stand for, by node; tied weights have one name."""
    names: dict[int, str] = {}
    parameters = dict(module.named_parameters(remove_duplicate=False))
    for name, parameter in parameters.items():
        names.setdefault(id(parameter), name)
    kinds: dict[str, HeldKind] = {
        "PARAMETER": "parameter",
        "BUFFER": "buffer",
        "CONSTANT_TENSOR": "constant",
    }
    held = {}
    for spec in signature.input_specs:
        kind = kinds.get(spec.kind.name)
        if kind is not None:
            parameter = parameters.get(spec.target)
            name = spec.target if parameter is None else names[id(parameter)]
            held[spec.arg.name] = Held(kind, name)
    return held


@contextmanager
def one_line(source: str, what: str) -> Iterator[None]:
    """Turn whatever torch and the model's own code raise into one line."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # torch logs tracebacks of what it raises
    try:
        with warnings.catch_warnings():  # about torch's own calls
            warnings.simplefilter("ignore")
            yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # torch and models of users raise whatever they like
        text = _first_paragraph(str(error))
        if type(error).__name__.startswith("GuardOnDataDependent"):
            text = (
                f"it branches on values of a tensor, which a static graph cannot express ({text})"
            )
        raise InputError(f"{what}: {type(error).__name__}: {text}", source) from None
    finally:
        logging.disable(disabled)


def _first_paragraph(text: str) -> str:
    r"""The lines up to the first that is empty, as one: the reason may stand on the second."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return " ".join(lines[: lines.index("")] if "" in lines else lines)


@contextmanager
def _limited_modules(source: str) -> Iterator[None]:
    """Refuse a model of more modules and parameters than the limit, while it is built."""
    from torch.nn.modules import module as registry

    most, found = MAX_TORCH_MODULES.most(), 0

    def count(*_: Any) -> None:
        nonlocal found
        found += 1
        if found > most:
            raise InputError(MAX_TORCH_MODULES.sentence("the model has more modules"), source)

    handles = (
        registry.register_module_module_registration_hook(count),
        registry.register_module_parameter_registration_hook(count),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _name(op: Any) -> str:
    return str(getattr(getattr(op, "_schema", None), "name", ""))


def parameter_count(module: Any) -> int:
    """Parameters of a module; tied ones count once."""
    return sum(int(parameter.numel()) for parameter in module.parameters())


def weights_in_words(model: Traceable) -> str:
    """Sizes of the inputs, number type of the weights, and their bytes; tied ones count once."""
    found, bits = dict(model.module.named_parameters()), stored_bits(model)
    types = dict.fromkeys(str(each.dtype).removeprefix("torch.") for each in found.values())
    size = sum(
        stored_bytes(int(each.numel()), bits.get(name) or Fraction(8 * each.element_size()))
        for name, each in found.items()
    )
    weights = f"{format_bytes(size)} of weights" if found else "no weights"
    if model.weights is not None:
        weights += f" as {getattr(model.weights, 'name', 'stored')}"
    return ", ".join(filter(None, (model.sizes, *types, weights)))


def unfit_in_words(module: Any, options: TraceOptions) -> str:
    """What is chosen that the model has not: more tokens than positions, or a format of experts."""
    tokens = max(options.seq or 0, options.cached_tokens)
    is_text = getattr(module, "main_input_name", "") == "input_ids"
    text = module.config.get_text_config() if is_text else None
    most = getattr(text, "max_position_embeddings", None) or tokens
    found = [f"{tokens} tokens are more than its {most} positions"] * (tokens > most)
    if "experts=" in (options.weights or ""):
        has = any("experts" in path.split(".") for path, _ in module.named_modules())
        found += ["it has no experts, whose format --weights states"] * (not has)
    return "; ".join(found)


def unread_bytes(model: Traceable, read: Iterable[str]) -> dict[str, int]:
    """Modules none of whose parameters is among those that are read, and their bytes."""
    # Of such modules the outermost are named, and single parameters of others.
    module, bits, wanted = model.module, stored_bits(model), set(read)
    names: dict[int, list[str]] = {}
    parameters = dict(module.named_parameters(remove_duplicate=False))
    for name, parameter in parameters.items():
        names.setdefault(id(parameter), []).append(name)
    unread = [own[0] for own in names.values() if wanted.isdisjoint(own)]
    reached = {name for own in names.values() if not wanted.isdisjoint(own) for name in own}
    holding = {prefix for name in reached for prefix in _owners(name)}
    found: dict[str, int] = {}
    for name in unread:
        whole = next((owner for owner in _owners(name) if owner not in holding), name)
        parameter = parameters[name]
        own_bits = bits.get(name) or Fraction(8 * parameter.element_size())
        found[whole] = found.get(whole, 0) + stored_bytes(int(parameter.numel()), own_bits)
    return found


def unread_in_words(found: Mapping[str, int]) -> str:
    """The first modules that no op reads, and the bytes of all; empty if there are none."""
    shown = list(found)[:MOST_NAMED]
    more = [f"{len(found) - MOST_NAMED} more"] if len(found) > MOST_NAMED else []
    return f"{', '.join([*shown, *more])} ({format_bytes(sum(found.values()))})" if found else ""


def _owners(name: str) -> list[str]:
    """The modules that hold a parameter, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def modules_without_ops(module: Any, op_modules: Iterable[str | None]) -> list[str]:
    """Modules that hold parameters themselves and that no op names."""
    # Their ops were folded into constants, or never run.
    named = set(op_modules)
    return [
        name
        for name, part in module.named_modules()
        if name and name not in named and any(True for _ in part.parameters(False))
    ]


def no_split_label(module: Any) -> Callable[[Any], tuple[str, ...]]:
    """The label of the block that a node belongs to, for `read_fx_graph`."""
    # Blocks are the modules of the classes in ``_no_split_modules``, and outside of them the
    # modules that hold parameters themselves.
    whole = set(getattr(module, "_no_split_modules", None) or ())
    holding = {
        name for name, part in module.named_modules() if any(True for _ in part.parameters(False))
    }

    def label(node: Any) -> tuple[str, ...]:
        stack: Mapping[str, Any] = node.meta.get("nn_module_stack") or {}
        path = ""
        for name, kind in stack.values():
            path = str(name).partition("@")[0]
            if str(kind).rpartition(".")[2] in whole:
                return (path,)
        return (path,) if path in holding else ()

    return label
