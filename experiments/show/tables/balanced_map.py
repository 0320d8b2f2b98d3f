"""The device map that accelerate makes by default ("balanced"), for comparison.

Source: accelerate's guide "Handling big models for inference" and the descriptions of
``get_balanced_memory`` and ``infer_auto_device_map`` (1.15), stated anew; ``make test-torch``
compares it with the real one. It looks at bytes of weights alone. Each device but the last may
take an equal share and a margin: 1.25 times the larger of a block that must stay whole and the mean
of the leaf modules. Modules are taken in the order of the code, and each goes whole onto the device
at hand, or is divided if it may be, or goes to the next device. Modules that share weights go
together. The first device leaves room for the largest layer that is still to come.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

MARGIN = 1.25

Part = tuple[str, Any]
"""Path of a module or parameter, and itself."""


def balanced_map(module: Any, memory_bytes: Sequence[int]) -> dict[str, int]:
    """The number of the device of each module.

    Parameters
    ----------
    module : torch.nn.Module
        On any device; ``_no_split_modules`` names the classes whose modules stay whole.
    memory_bytes : sequence of int
        What each device can hold.

    Raises
    ------
    ValueError
        If the devices cannot hold it in this way: accelerate would use the host.
    """
    sizes, whole = _sizes(module), set(getattr(module, "_no_split_modules", None) or ())
    share = sizes[""] // len(memory_bytes) + _margin(module, sizes, whole)
    limits = [min(share, most) for most in memory_bytes[:-1]] + [memory_bytes[-1]]
    tied = _tied(module)
    todo = [*_children("", module), *module.named_buffers(recurse=False)]
    device, used = 0, 0
    found: dict[str, int] = {}
    while todo:
        if device == len(limits):
            raise ValueError(f"no device is left for {todo[0][0]}")
        name, part = todo.pop(0)
        room = limits[device] - used
        if device == 0:
            room -= max((sizes[at] for at, _ in _layers(todo, whole)), default=0)
        others = [
            p
            for group in tied
            if any(_within(p, name) for p in group)
            for p in group
            if not _within(p, name)
        ]
        mates = [next(at for at in todo if _within(p, at[0])) for p in others]
        size = sizes[name]
        together = size + sum(
            sizes[at] - sizes[p] for (at, _), p in zip(mates, others, strict=True)
        )
        if together <= room:
            used += together
            names = {name, *(at for at, _ in mates)}
            found.update(dict.fromkeys((at for at in (name, *(at for at, _ in mates))), device))
            todo = [at for at in todo if at[0] not in names]
            continue
        divisible = next((at for at in mates if _divisible(at[1], whole)), None)
        if size <= room and divisible is not None:
            here = next(i for i, at in enumerate(todo) if at[0] == divisible[0])
            todo[here : here + 1] = _children(*divisible)
            todo.insert(0, (name, part))
        elif size >= room and _divisible(part, whole):
            todo = [*_children(name, part), *todo]
        else:
            todo.insert(0, (name, part))
            device, used = device + 1, 0
    return found


def _sizes(module: Any) -> dict[str, int]:
    """Bytes of each tensor and of each module with all inside; a shared tensor counts once."""
    sizes: dict[str, int] = defaultdict(int)
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        parts = name.split(".")
        for depth in range(len(parts) + 1):
            sizes[".".join(parts[:depth])] += tensor.numel() * tensor.element_size()
    return sizes


def _margin(module: Any, sizes: dict[str, int], whole: set[str]) -> int:
    """Of the first block of each class that stays whole the largest, or the mean of the leaves."""
    kinds = {name: type(part).__name__ for name, part in module.named_modules()}
    first: dict[str, int] = {}
    for name in list(sizes):
        if name and kinds.get(name) in whole:
            first.setdefault(kinds[name], sizes[name])
    holding = [name for name in sizes if name in kinds and name]
    parents = {name.rpartition(".")[0] for name in holding}
    leaves = [sizes[name] for name in holding if name not in parents]
    mean = sum(leaves) // max(1, len(leaves))
    return int(MARGIN * max([mean, *first.values()]))


def _tied(module: Any) -> list[list[str]]:
    """Names of parameters that are one tensor."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names[id(parameter)].append(name)
    return [group for group in names.values() if len(group) > 1]


def _children(name: str, part: Any) -> list[Part]:
    """Parameters of a module itself, and the modules in it."""
    inside = (*part.named_parameters(recurse=False), *part.named_children())
    return [(f"{name}.{last}" if name else last, one) for last, one in inside]


def _layers(parts: Sequence[Part], whole: set[str]) -> Iterator[Part]:
    """Modules and tensors that are not divided any further."""
    for name, part in parts:
        if not _divisible(part, whole):
            yield name, part
            continue
        inside = ((f"{name}.{last}", one) for last, one in part.named_children())
        yield from _layers(list(inside), whole)


def _divisible(part: Any, whole: set[str]) -> bool:
    return type(part).__name__ not in whole and any(True for _ in _modules_in(part))


def _modules_in(part: Any) -> Iterator[Any]:
    yield from part.children() if hasattr(part, "children") else ()


def _within(name: str, module: str) -> bool:
    return f"{name}.".startswith(f"{module}.")
