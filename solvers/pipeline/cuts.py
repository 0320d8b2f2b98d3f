"""Cuts of a graph into stages, and the times, bytes and messages of the stage between two cuts.

A block is a set of ops that every plan keeps in one stage. A *cut* is an ideal of blocks: with a
block it holds all blocks that feed its forward ops and all that its backward ops feed. A stage is
the difference of two cuts. Its times here are those of the fastest device for each pass, its
messages only those that are certain whatever the neighbouring stages are. So values are lower
bounds, and exact where devices are alike and tensors skip no stage.

On different devices a cut also states how many devices of each kind lie before it (`with_kinds`).
So a stage has its device's kind, and its times and memory are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from placegap.instances.kernels.array_types import Flags, Ints
from placegap.instances.kernels.kernel import kernel
from placegap.instances.problem import Instance, PipelineIteration
from placegap.instances.problem.device_classes import classes_of, device_kinds, links_alike
from placegap.instances.problem.graph_index import sum_by
from placegap.instances.problem.integers import UNSUPPORTED
from placegap.solvers.chains.ideals import ideals_as_bits

MOST_PLACES = 300  # most places at which stages may end where only one order of the blocks is tried
MOST_PAIRS = 500_000  # with more pairs of cuts and kinds, a stage counts as on the fastest device


@dataclass(frozen=True, eq=False)
class CutProblem:
    """N cuts and P pairs of them, one within the other, of an instance with B blocks."""

    block: Ints  # (n,): block of each op, in an order in which none feeds an earlier one
    members: Flags  # (N, B) bool: Blocks of each cut, the empty one first, the full one last
    #: tail, head: (P,) int64: The smaller and the larger cut of each pair, sorted.
    tail: Ints
    head: Ints
    #: forward_ns, backward_ns, weight_ns, update_ns: (P,) int64: Least time of the stage between
    #: them; gradients of weights have their own where the schedule runs them apart, else they are 0
    #: here. Updates are made once per iteration.
    forward_ns: Ints
    backward_ns: Ints
    weight_ns: Ints
    update_ns: Ints
    #: stash_bytes, kept_bytes, resident_bytes: (P,) int64: What a microbatch leaves from its
    #: forward to its backward event, and from that to its weight event; and the bytes of the
    #: stage's ops.
    stash_bytes: Ints
    kept_bytes: Ints
    resident_bytes: Ints
    size: Ints  # (P,) int64: Work of the stage's blocks in layers, each block rounded (`_sizes`)
    #: forth_ns, back_ns: (N,) int64: Least time of the messages over each cut.
    forth_ns: Ints
    back_ns: Ints
    room: Ints  # (P,) int64: Memory of the stage's device, or of the largest
    used: Ints  # (N,) int64: Devices before each cut, -1 where any number may be
    kind: Ints  # (P,) int64: Kind of the stage's device (`kinds`), 0 where that is open
    kinds: tuple[tuple[int, ...], ...]  # devices of each kind; empty where the kinds are open
    passes: int  # 1 without backward ops, 2 with them, 3 with gradients of weights apart
    updates: bool  # whether there are updates
    complete: bool  # whether every cut is here
    plain: bool  # whether the values are exact

    @property
    def trains(self) -> bool:
        """Whether there are backward ops."""
        return self.passes > 1

    @property
    def work_ns(self) -> Ints:
        """Time of the stage on one microbatch, without updates."""
        return self.forward_ns + self.backward_ns + self.weight_ns

    def held_bytes(self, beside: Sequence[tuple[int, int]]) -> Ints:
        """Memory of each pair as a stage that holds other microbatches (`held_beside`)."""
        others = [begun * self.stash_bytes + waiting * self.kept_bytes for begun, waiting in beside]
        return np.asarray(self.resident_bytes + np.max(others, axis=0), np.int64)

    @property
    def num_cuts(self) -> int:
        return len(self.members)

    @property
    def stride(self) -> int:
        """Number of consecutive cuts of the same blocks (more than one with kinds of devices)."""
        return max(1, (self.num_cuts - 1) // max(1, len(np.unique(self.members[:-1], axis=0))))

    @property
    def num_blocks(self) -> int:
        return int(self.members.shape[1])


def build_cuts(
    instance: Instance,
    semantics: PipelineIteration,
    block: Ints,
    most_cuts: int,
    *,
    sends: bool = True,
    device: int | None = None,
) -> CutProblem:
    """All cuts, or, if there are more than `most_cuts`, those of one order of the blocks."""
    # Without `sends` all stages are on one device; with a `device` every stage is on one like it.
    arrays, count = instance.arrays, int(block.max()) + 1
    before = _before(instance, block, count)
    # `_before` reverses edges between backward ops, so that one ideal cuts both passes: a stage has
    # the backward ops of its forward ops.
    found = ideals_as_bits(before, most_cuts)
    complete = found is not None
    sets = found or [(1 << b) - 1 for b in _places(instance, block)]
    members = np.array([[cut >> b & 1 for b in range(count)] for cut in sets], np.bool_)
    tail, head = _pairs(members)
    # One device of each set with equal times is enough for the minimum over devices.
    first = np.unique(arrays.time_ns, axis=1, return_index=True)[1]
    chosen = np.arange(instance.num_devices) if device is None else np.array([device])
    apart = semantics.schedule == "zero_bubble"
    part = arrays.backward.astype(np.int64) + (arrays.weight_gradient & apart)
    passes = []
    # The time of a stage in one pass is a difference of sums over cuts. A device that refuses one
    # of its ops is left out of that pass's minimum; each pass takes its own fastest device, which
    # can only be below the truth.
    for of_pass in (*((part == number) & ~arrays.update for number in range(3)), arrays.update):
        columns = []
        for k in first.tolist() if device is None else [device]:
            own = np.where(of_pass, np.maximum(arrays.time_ns[:, k], 0), 0)
            refused = _sums((arrays.time_ns[:, k] == UNSUPPORTED).astype(np.int64), block, members)
            total = _sums(own, block, members)
            wrong = refused[head] > refused[tail]
            columns.append(np.where(wrong, np.iinfo(np.int64).max, total[head] - total[tail]))
        passes.append(np.stack(columns).min(axis=0))
    # A stage whose forward ops no device runs is in no plan.
    runs = passes[0] < np.iinfo(np.int64).max
    tail, head = tail[runs], head[runs]
    forward, backward_ns, weight_ns, update_ns = (each[runs].copy() for each in passes)
    resident = _sums(arrays.resident_bytes, block, members)
    last, after = _only_neighbours(before, members)
    tensors = _tensors(instance, block, part)
    # Under `blocking` devices spend time on sending, which adds to the stage; under `overlap` links
    # do, and `_messages` counts them.
    host = np.where(arrays.is_host, 0, arrays.host_ns)[:, chosen].min(axis=1)
    if semantics.sending == "overlap" or not sends:
        host = np.zeros_like(host)
    tables = _CutTables(members, tail, head, last, after)
    size, certain = instance.memory_arrays.tensor_bytes, semantics.stages_per_device > 1
    stash, kept = _between(tables, tensors, size, host, certain, forward, backward_ns)
    forth, back = np.zeros(len(members), np.int64), np.zeros(len(members), np.int64)
    if semantics.sending == "overlap" and instance.num_devices > 1 and sends:
        between = arrays.link_class[~np.eye(instance.num_devices, dtype=np.bool_)]
        least = arrays.transfer_ns[:, np.unique(between)].min(axis=1)
        _messages(tables, tensors, least, forth, back)
    # `plain`: stages follow each other in a row and no tensor reads past a neighbour, so the
    # messages counted here are all that there are.
    is_chain = complete and len(members) == count + 1
    far = np.abs(np.repeat(tensors.producer, np.diff(tensors.pointer)) - tensors.reader) > 1
    return CutProblem(
        block=block,
        members=members,
        tail=tail,
        head=head,
        forward_ns=forward,
        backward_ns=backward_ns,
        weight_ns=weight_ns,
        update_ns=update_ns,
        stash_bytes=stash,
        kept_bytes=kept,
        resident_bytes=resident[head] - resident[tail],
        size=_sizes(instance, block, members, tail, head),
        forth_ns=forth,
        back_ns=back,
        room=np.full(len(tail), arrays.memory_bytes[chosen].max()),
        used=np.full(len(members), -1),
        kind=np.zeros(len(tail), np.int64),
        kinds=(),
        passes=1 + int(part.max() > 0) + (apart and bool(arrays.backward.any())),
        updates=bool(arrays.update.any()),
        complete=complete,
        plain=is_chain
        and not far.any()
        and devices_alike(instance)
        and semantics.stages_per_device == 1,
    )


def links_of_kinds(instance: Instance) -> bool:
    """Whether transfers take the same time between any two devices of the same two kinds."""
    apart = ~np.eye(instance.num_devices, dtype=np.bool_)
    kinds = classes_of(device_kinds(instance))
    blocks = (np.ix_(a, b) for a in kinds for b in kinds)
    classes = instance.arrays.link_class
    return all(len(np.unique(classes[block][apart[block]])) <= 1 for block in blocks)


def devices_alike(instance: Instance) -> bool:
    """Whether devices and the links between them make no difference."""
    return links_alike(instance) and not device_kinds(instance).any()


def _before(instance: Instance, block: Ints, count: int) -> list[int]:
    """The blocks that must lie in the stage of each block or in an earlier one, as bits."""
    arrays, index = instance.arrays, instance.arrays.index
    before, bind = [0] * count, ~instance.arrays.exchanged
    for a, b in zip(index.producer[bind].tolist(), index.consumer[bind].tolist(), strict=True):
        if arrays.backward[a] == arrays.backward[b]:
            x, y = (b, a) if arrays.backward[a] else (a, b)
            if block[x] != block[y]:
                before[int(block[y])] |= 1 << int(block[x])
    return before


def _places(instance: Instance, block: Ints) -> list[int]:
    """Places in one order of the blocks where stages may end, at about equal work."""
    work = sum_by(block, np.maximum(instance.arrays.time_ns, 0).max(axis=1), int(block.max()) + 1)
    # The 1 spreads the places over blocks without work as well.
    done = np.cumsum(work + 1)
    bucket = done // (int(done[-1]) // MOST_PLACES + 1)
    last = np.flatnonzero(np.diff(bucket)) + 1
    return [0, *last.tolist(), len(work)]


def _pairs(members: Flags) -> tuple[Ints, Ints]:
    """All pairs of a cut and a larger one that contains it."""
    tails, heads = [], []
    size = members.sum(axis=1)
    for i in range(len(members) - 1):
        larger = np.flatnonzero(size > size[i])
        inside = larger[members[larger][:, members[i]].all(axis=1)]
        tails.append(np.full(len(inside), i))
        heads.append(inside)
    return np.concatenate(tails).astype(np.int64), np.concatenate(heads).astype(np.int64)


def _sizes(instance: Instance, block: Ints, members: Flags, tail: Ints, head: Ints) -> Ints:
    """Work of each pair in layers; each block is rounded by itself, so equal layers count alike."""
    # One layer is the weighted median of the blocks' work: half of all work is in blocks at least
    # as large. The unit only decides where a search is split: any other would be valid, too.
    work = sum_by(block, np.maximum(instance.arrays.time_ns, 0).max(axis=1), members.shape[1])
    order = np.argsort(work, kind="stable")
    done = np.cumsum(work[order])
    layer = max(1, int(work[order[int(np.searchsorted(done, done[-1] - done[-1] // 2))]]))
    total = members.astype(np.int64) @ (work // layer + (work % layer > layer // 2))
    return np.asarray(total[head] - total[tail], np.int64)


def _sums(of_op: Ints, block: Ints, members: Flags) -> Ints:
    """Sum over the ops of each cut."""
    total = sum_by(block, of_op, members.shape[1])
    return np.asarray(members.astype(np.int64) @ total, np.int64)


def _only_neighbours(before: list[int], members: Flags) -> tuple[Ints, Ints]:
    """The block surely in the stage before each cut, and the one surely in that after it, or -1."""
    # If a cut has one maximal block, that block is in the stage that ends with it: every stage is
    # not empty. Likewise a single minimal block outside begins the next stage.
    count = len(before)
    last, after = np.full(len(members), -1), np.full(len(members), -1)
    needs = np.array([[row >> b & 1 for b in range(count)] for row in before], np.bool_)
    for i, inside in enumerate(members):
        needed = needs[inside].any(axis=0) if inside.any() else np.zeros(count, np.bool_)
        ends = np.flatnonzero(inside & ~needed)
        begins = np.flatnonzero(~inside & ~needs[:, ~inside].any(axis=1))
        last[i] = ends[0] if len(ends) == 1 else -1
        after[i] = begins[0] if len(begins) == 1 else -1
    return last, after


class _Tensors(NamedTuple):
    """Blocks of each tensor's producer and readers, and their passes."""

    # Passes are 0 forward, 1 backward, 2 gradients of weights that are apart.
    producer: Ints
    producer_pass: Ints
    pointer: Ints
    reader: Ints
    reader_pass: Ints


class _CutTables(NamedTuple):
    """Cuts and pairs, as in `CutProblem`, and the certain neighbours of each cut."""

    members: Flags
    tail: Ints
    head: Ints
    last: Ints
    after: Ints


def _tensors(instance: Instance, block: Ints, part: Ints) -> _Tensors:
    index = instance.arrays.index
    sent = ~instance.arrays.exchanged[index.tensor_edge]
    readers = index.consumer[index.tensor_edge[sent]]
    pointer = np.append(0, np.cumsum(sent))[index.tensor_ptr]
    producer = index.tensor_producer
    return _Tensors(block[producer], part[producer], pointer, block[readers], part[readers])


@kernel(bounded=True)
def _between(
    cuts: _CutTables,
    tensors: _Tensors,
    size: Ints,
    host: Ints,
    certain: bool,
    forward: Ints,
    backward: Ints,
) -> tuple[Ints, Ints]:
    """Stash and kept bytes of each pair; host times of its tensors are added to its pass times."""
    # With `certain` (several stages on a device) only neighbours surely on another device count.
    # Each tensor is looked at from the stage between cuts i and j: what is read inside, whether it
    # leaves, whether it comes in. The same tensor counts once per stage and pass.
    members, reader, owner = cuts.members, tensors.reader, tensors.producer
    stash, kept = np.zeros(len(cuts.tail), np.int64), np.zeros(len(cuts.tail), np.int64)
    for at in range(len(cuts.tail)):
        i, j = cuts.tail[at], cuts.head[at]
        last, after = cuts.last[i], cuts.after[j]
        for u in range(len(owner)):
            made = tensors.producer_pass[u]
            mine = members[j, owner[u]] and not members[i, owner[u]]
            # Stash: forward ops of the stage make or read it (begun), and its backward or weight
            # ops read it (ended).
            begun, ended = mine and made == 0, False
            leaves, reads_forward, reads, waits = False, False, False, False
            for x in range(tensors.pointer[u], tensors.pointer[u + 1]):
                v = reader[x]
                if members[j, v] and not members[i, v]:
                    reads = True
                    if tensors.reader_pass[x] >= 1:
                        ended = True
                        if tensors.reader_pass[x] == 2:
                            waits = True
                    else:
                        begun = True
                        reads_forward = True
                # Without `certain` all other blocks are on other devices. Otherwise another stage
                # of the same device may be the reader, except in the two neighbouring stages.
                elif mine and (not certain or v in (after, last)):
                    leaves = True
            if begun and ended:
                stash[at] += size[u]
            # A weight event follows its backward event, so what weight gradients read is kept in
            # between: from other passes, as a tensor of the weight event itself waits for nothing.
            if waits and made < 2:
                kept[at] += size[u]
            if leaves:
                if made >= 1:
                    backward[at] += host[u]
                else:
                    forward[at] += host[u]
            # A device pays for receiving a tensor once, in the first step that reads it (for weight
            # gradients, the backward step). That may be in another stage of the device, unless this
            # stage follows the producer's at once.
            near = not certain
            if made == 0:
                near = near or (reads_forward and owner[u] == last)
            else:
                near = near or owner[u] == after
            if reads and not mine and near:
                if reads_forward:
                    forward[at] += host[u]
                else:
                    backward[at] += host[u]
    return stash, kept


@kernel(bounded=True, allocates=False)
def _messages(cuts: _CutTables, tensors: _Tensors, least: Ints, forth: Ints, back: Ints) -> None:
    """Least times of messages over each cut from its last block to the first outside, and back."""
    for i in range(len(cuts.last)):
        last, after = cuts.last[i], cuts.after[i]
        # Only these two blocks surely lie in neighbouring stages. Where either is open, a cut
        # counts no message.
        if last < 0 or after < 0:
            continue
        for u in range(len(tensors.producer)):
            made, owner = tensors.producer_pass[u], tensors.producer[u]
            for x in range(tensors.pointer[u], tensors.pointer[u + 1]):
                # Messages stay within a pass: from forward to backward ops tensors wait on their
                # own stage's device or skip steps, which this clock leaves out.
                if min(tensors.reader_pass[x], 1) != made:
                    continue
                if made == 0 and owner == last and tensors.reader[x] == after:
                    forth[i] += least[u]
                    break
                if made == 1 and owner == after and tensors.reader[x] == last:
                    back[i] += least[u]
                    break


def with_kinds(
    instance: Instance, semantics: PipelineIteration, base: CutProblem
) -> CutProblem | None:
    """The problem with a cut for each number of devices of each kind before it, or None."""
    # None where devices are of one kind, where stages share devices, or where there are too many
    # pairs.
    kinds = classes_of(device_kinds(instance))
    if len(kinds) == 1 or semantics.stages_per_device > 1:
        return None
    # Devices of a kind are interchangeable except for their links, so the number of them that lie
    # before a cut is state enough: a stage on kind d leads from (cut, vector) to (larger cut,
    # vector + 1 at d). The cut number `at` with vector v is at * count + v, so that cuts of equal
    # blocks stay together (`stride`).
    vectors = list(product(*(range(len(devices) + 1) for devices in kinds)))
    if len(base.tail) * len(vectors) * len(kinds) > MOST_PAIRS:
        return None
    number = {vector: at for at, vector in enumerate(vectors)}
    count, last = len(vectors), base.num_cuts - 1
    parts: list[tuple[Ints, ...]] = []
    for d, devices in enumerate(kinds):
        own = build_cuts(instance, semantics, base.block, base.num_cuts, device=devices[0])
        steps = [
            (at, number[(*vector[:d], vector[d] + 1, *vector[d + 1 :])])
            for at, vector in enumerate(vectors)
            if vector[d] < len(devices)
        ]
        for before, after in steps:
            parts.append(
                (
                    own.tail * count + before,
                    # The full cut is one node: the last stage may leave devices of any kind unused.
                    np.where(own.head == last, last * count, own.head * count + after),
                    own.forward_ns,
                    own.backward_ns,
                    own.weight_ns,
                    own.update_ns,
                    own.stash_bytes,
                    own.kept_bytes,
                    own.resident_bytes,
                    own.size,
                    own.room,
                    np.full(len(own.tail), d),
                )
            )
    tail, head, forward, backward, weight, update, stash, kept, resident, size, room, kind = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    # Stages before a cut: as each stage has a device of its own, this says which stage follows.
    used = np.array([sum(vector) for vector in vectors], np.int64)
    return CutProblem(
        block=base.block,
        members=np.vstack([np.repeat(base.members[:-1], count, axis=0), base.members[-1:]]),
        tail=tail,
        head=head,
        forward_ns=forward,
        backward_ns=backward,
        weight_ns=weight,
        update_ns=update,
        stash_bytes=stash,
        kept_bytes=kept,
        resident_bytes=resident,
        size=size,
        forth_ns=np.append(np.repeat(base.forth_ns[:-1], count), base.forth_ns[-1:]),
        back_ns=np.append(np.repeat(base.back_ns[:-1], count), base.back_ns[-1:]),
        room=room,
        used=np.append(np.tile(used, last), -1),
        kind=kind,
        kinds=tuple(tuple(devices) for devices in kinds),
        passes=base.passes,
        updates=base.updates,
        complete=base.complete,
        plain=False,
    )
