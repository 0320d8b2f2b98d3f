"""A second reader of lines: from a text to the device of each op, by the tools' documented rules.

It shares no code with `read_lines` and `lines`. Models are those of `draws.line_models`. It knows
the texts that are written there and by exporters, and no mistakes.
"""

import json
import re
import shlex
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from placegap.instances import Instance, Op
from placegap.instances.oracle.facts import Facts

GIB = 2**30

TENSORS = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


def share_bytes(op: Op) -> int:
    """What an op takes of a GPU's share under exllama: weights and caches, if stated."""
    own = op.parameter_bytes if op.state_bytes is None else op.state_bytes
    own = op.resident_bytes if op.state_bytes is None and not own else own
    return own + sum(op.shared_state.values())


class Slots(NamedTuple):
    """Where ops belong: 0 before the layers, then each layer, then after them."""

    slot: list[int]
    #: Ops that ``-ot exps=..`` moves.
    experts: set[int]
    num_layers: int
    #: For ops outside of all modules, what they are with.
    fed_by: dict[int, int]
    order: list[int]


def slots(instance: Instance, *, alone: bool = False) -> Slots:
    """Read off the names of modules, and for ops without one off what feeds them; colocated ops
    are where the first of them is, or `alone`.
    """
    ops, position = instance.graph.ops, Facts(instance).position
    number = {op.name: i for i, op in enumerate(ops)}
    layers = [re.search(r"(?:^|\.)layers\.(\d+)", op.module or "") for op in ops]
    num = 1 + max(int(found[1]) for found in layers if found)
    ends = {"embed_tokens": 0, "norm": num + 1, "lm_head": num + 1}
    own = [
        int(found[1]) + 1 if found else ends.get((op.module or "").split(".")[-1])
        for op, found in zip(ops, layers, strict=True)
    ]
    order = sorted(range(len(ops)), key=lambda i: position[i])
    begin, rank, home = dict[object, int](), dict[int, int](), dict[int, int]()
    of_group, fed_by = dict[object, int](), dict[int, int]()
    for i in order:
        feeding = [number[e.producer] for e in instance.graph.edges if e.consumer == ops[i].name]
        here, with_module = own[i], (own[i], "" if layers[i] else ops[i].module)
        if here is None and feeding:
            fed_by[i] = max(feeding, key=lambda j: rank[j])
            here, rank[i] = home[fed_by[i]], rank[fed_by[i]]
        elif here is None:
            here, rank[i] = 0, position[i]
        else:
            rank[i] = begin.setdefault(with_module, position[i])
        home[i] = of_group.setdefault(("op", i) if alone else ops[i].colocation or ("op", i), here)
    expert = {i for i in order if "experts" in (ops[i].module or "") and 0 < home[i] <= num}
    mixed = {ops[i].colocation for i in order if i not in expert} - {None}
    experts = {i for i in expert if ops[i].colocation not in mixed}
    return Slots([home[i] for i in range(len(ops))], experts, num, fed_by, order)


def cards_and_host(instance: Instance) -> tuple[list[int], int | None]:
    """GPUs, and the first CPU."""
    is_cpu = [device.is_host or device.kind == "cpu" for device in instance.cluster.devices]
    return [k for k, cpu in enumerate(is_cpu) if not cpu], is_cpu.index(True) if any(
        is_cpu
    ) else None


def placed(instance: Instance, text: str, where: Slots | None = None) -> list[int] | None:
    """The device of each op; None where the line leaves layers to a host that is not there."""
    where = where or slots(instance)
    given, patterns = dict[str, str](), list[str]()
    words = shlex.split(text)
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        given[name] = value if equals else after
        if name == "-ot":
            patterns += (value if equals else after).split(",")
    cards, host = cards_and_host(instance)
    cards = [cards[int(k)] for k in given.get("CUDA_VISIBLE_DEVICES", "").split(",") if k] or cards
    num = where.num_layers
    for name, tool in (("-gs", ""), ("-pp", "vllm"), ("--pp-size", "sglang")):
        if name in given and not tool:
            home = _filled(instance, where, [Fraction(x) for x in given[name].split(",")], cards)
            return None if home is None else [home[s] for s in where.slot]
        if name in given:
            return _ranks(where, _even(num, int(given[name]), tool), cards)
    for name in ("VLLM_PP_LAYER_PARTITION", "SGLANG_PP_LAYER_PARTITION"):
        if name in given:
            return _ranks(where, [int(x) for x in given[name].split(",")], cards)
    if "--pipeline-model-parallel-layout" in given:
        flat = given["--pipeline-model-parallel-layout"].replace(",", "")
        while "*" in flat:
            flat = re.sub(
                r"(?:\(([^()]*)\)|(\w))\*(\d+)", lambda m: (m[1] or m[2]) * int(m[3]), flat
            )
        return _ranks(where, [part.count("t") for part in flat.split("|")], cards)
    # llama.cpp and ollama: the last `ngl` of layers and output go to the GPUs by their shares
    named = given.get("--device")
    used = cards if named is None else [cards[int(x[4:])] for x in named.split(",")]
    used = [used[int(given.get("-mg", "0"))]] if given.get("-sm") == "none" else used
    ngl = min(int(given.get("-ngl", given.get("num_gpu", num + 1))), num + 1) if used else 0
    if ngl <= num and host is None:
        return None
    memory = [instance.cluster.devices[k].memory_bytes for k in used]
    sizes = [1 if None in memory else size or 1 for size in memory]
    parts = [Fraction(x) for x in given["-ts"].split(",")] if "-ts" in given else sizes
    ends = list(accumulate(parts))
    home = [host] * (num + 2 - ngl)
    for at in range(ngl):
        home.append(
            next(k for k, end in zip(used, ends, strict=False) if end * ngl > at * ends[-1])
        )
    home[0] = home[1] if host is None else host
    patterns += [r"exps=CPU"] * ("--cpu-moe" in given)
    patterns += [rf"blk\.{n}\..*exps=CPU" for n in range(int(given.get("--n-cpu-moe", "0")))]
    found = [home[s] for s in where.slot]
    for i in where.experts:
        tensor = f"blk.{where.slot[i] - 1}.{TENSORS[0]}.weight"
        for pattern in patterns:
            regex, _, target = pattern.rpartition("=")
            if re.search(regex, tensor):
                found[i] = host if target == "CPU" else cards[int(target[4:])]
                break
    return None if None in found else [k for k in found if k is not None]


def _even(num: int, ranks: int, tool: str) -> list[int]:
    """As get_pp_indices of both: what remains goes one each to late ranks, but vLLM's last."""
    counts = [num // ranks] * ranks
    for at in range(num % ranks):
        counts[-1 - at - (tool == "vllm")] += 1
    return counts


def _ranks(where: Slots, counts: Sequence[int], cards: Sequence[int]) -> list[int] | None:
    if len(counts) > len(cards) or sum(counts) != where.num_layers:
        return None
    inner = [k for k, count in zip(cards, counts, strict=False) for _ in range(count)]
    home = [cards[0], *inner, cards[len(counts) - 1]]
    return [home[s] for s in where.slot]


def _filled(
    instance: Instance, where: Slots, shares: list[Fraction], cards: list[int]
) -> list[int] | None:
    """The GPU of each slot, each on the one at hand as long as it has room."""
    home, at, left = list[int](), 0, shares[0] * GIB
    for s in range(where.num_layers + 2):
        need = sum(
            share_bytes(op)
            for op, own in zip(instance.graph.ops, where.slot, strict=True)
            if own == s
        )
        while need > left:
            at += 1
            if at == len(shares):
                return None
            left = shares[at] * GIB
        left -= need
        home.append(cards[at])
    return home


NAMES = {"tok_embeddings": "embed_tokens", "output": "lm_head"}
"""torchtitan's, and those of transformers."""


def _innermost(path: str, place: dict[str, int | None]) -> int | None:
    """Where the innermost module that a file names has a path."""
    within = [
        name
        for name in place
        if not name or any(f"{p}.".startswith(f"{name}.") for p in (path, path.partition(".")[2]))
    ]
    return place[max(within, key=len)] if within else None


def placed_by_file(instance: Instance, text: str, where: Slots | None = None) -> list[int] | None:
    """The device of each op by torchtitan's parts or a device map; None if one is missing."""
    where, content = where or slots(instance), json.loads(text)
    cards, host = cards_and_host(instance)
    if isinstance(content, list):
        place: dict[str, int | None] = {
            NAMES.get(x, x): cards[s] for s, part in enumerate(content) for x in part
        }
    else:
        place = {x: host if k == "cpu" else cards[int(k)] for x, k in content.items()}
    found = dict[int, int | None]()
    of_layer = r"layers|embed|norm|head"
    paths = [op.module or "" for op in instance.graph.ops]
    # what nothing feeds is where the first of the layers is
    first = next(i for i in where.order if re.search(of_layer, paths[i]))
    for i in where.order:
        if (here := _innermost(paths[i], place)) is not None:
            found[i] = here
        elif i in where.fed_by:
            found[i] = found[where.fed_by[i]]
        else:
            found[i] = None if re.search(of_layer, paths[i]) else _innermost(paths[first], place)
    return None if None in found.values() else [found[i] or 0 for i in range(len(found))]
