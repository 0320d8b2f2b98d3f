"""Transfers of the CP-SAT makespan model: when they are made, how long, and on which channels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from placegap.formulations.makespan_cp_vars import Literal, MakespanModel, TransferVars
from placegap.instances.channels import NO_CHANNEL, channels_of


def forbid_late_moves(model: MakespanModel) -> list[NDArray[np.bool_]]:
    """not (x[i, a] and x[j, b]) where edge (i, j) from a to b would end after the horizon.

    head_ia + p_ia + T_ab + p_jb + tail_jb > horizon. Returns what remains per edge, (K, K).
    """
    arrays, window = model.instance.arrays, model.window
    index = arrays.index
    until, after = window.head_ns + arrays.time_ns, arrays.time_ns + window.tail_ns
    remaining = []
    for i, j, u in zip(index.producer, index.consumer, index.tensor, strict=True):
        total = until[i][:, None] + arrays.transfer_ns[u][arrays.link_class] + after[j][None, :]
        may = window.possible[i][:, None] & window.possible[j][None, :]
        for a, b in np.argwhere(may & (total > model.horizon_ns)).tolist():
            model.cp.add_bool_or([model.x[i][a].negated(), model.x[j][b].negated()])
        remaining.append(may & (total <= model.horizon_ns))
    return remaining


def precedence_local(model: MakespanModel) -> None:
    """start[j] >= end[i] for every edge (i, j)."""
    index = model.instance.arrays.index
    for i, j in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        model.cp.add(model.start[j] >= model.end[i])


def precedence_delayed(model: MakespanModel, remaining: Sequence[NDArray[np.bool_]]) -> None:
    """Free channels: start[j] >= end[i] + T_ab if x[i, a] and x[j, b], for every edge (i, j)."""
    index = model.instance.arrays.index
    for e, (i, j, u) in enumerate(
        zip(index.producer.tolist(), index.consumer.tolist(), index.tensor.tolist(), strict=True)
    ):
        moves = model.moves(u)
        for a, b in np.argwhere(remaining[e]).tolist():
            if moves[a][b] > 0:
                model.cp.add(model.start[j] >= model.end[i] + moves[a][b]).only_enforce_if(
                    model.x[i][a], model.x[j][b]
                )


def precedence_remote(model: MakespanModel, remaining: Sequence[NDArray[np.bool_]]) -> None:
    """Channels that serve one at a time: a transfer between each producer and its consumers."""
    index, group = model.instance.arrays.index, model.instance.arrays.group.tolist()
    producer, consumer = index.producer.tolist(), index.consumer.tolist()
    if model.semantics.transfers == "per_edge":
        carriers = [(q, [q]) for q in range(len(producer))]
    else:
        carriers = [
            (u, index.tensor_edge[index.tensor_ptr[u] : index.tensor_ptr[u + 1]].tolist())
            for u in range(len(index.tensor_producer))
        ]
    for item, edges in carriers:
        away = [e for e in edges if group[producer[e]] != group[consumer[e]]]
        if len({group[consumer[e]] for e in away}) == 1:
            _transfer_to_ops(model, item, away, remaining)
        elif away:
            for b in range(model.instance.num_devices):
                _transfer_to_device(model, item, away, b, remaining)


def channel_no_overlap(model: MakespanModel) -> None:
    """Every channel serves one transfer at a time, and is busy for at most the makespan."""
    for uses in model.on_channel.values():
        if len(uses) > 1:
            model.cp.add_no_overlap([interval for interval, _, _ in uses])
            model.cp.add(sum(least * literal for _, least, literal in uses) <= model.makespan)


def _transfer_to_ops(
    model: MakespanModel, item: int, edges: list[int], remaining: Sequence[NDArray[np.bool_]]
) -> None:
    """A transfer to wherever the consumers are, all on one device; none if the producer is there.

    remote = 1 iff no device k has x[i, k] and x[j, k].
    """
    index, cp, x = model.instance.arrays.index, model.cp, model.x
    i, consumers = int(index.producer[edges[0]]), index.consumer[edges].tolist()
    j, moves = consumers[0], model.moves(int(index.tensor[edges[0]]))
    may = np.logical_and.reduce([remaining[e] for e in edges])
    times = {(a, b): moves[a][b] for a, b in np.argwhere(may).tolist() if a != b}
    if not times:
        return
    remote = cp.new_bool_var(f"r{item}")
    for here, there in zip(x[i], x[j], strict=True):
        if here is not None and there is not None:
            cp.add_bool_or([here.negated(), there.negated(), remote.negated()])
            cp.add_bool_or([here.negated(), there, remote])
            cp.add_bool_or([here, there.negated(), remote])
        elif here is not None or there is not None:
            cp.add_implication(here if here is not None else there, remote)
    made = _new_transfer(model, item, i, tuple(consumers), None, remote, set(times.values()))
    if made.length is None:
        arrival = made.start + made.fixed_length * remote
    else:
        arrival = made.end
        cp.add(made.length == 0).only_enforce_if(remote.negated())
        for (a, b), time in times.items():
            cp.add(made.length == time).only_enforce_if(x[i][a], x[j][b])
    for op in consumers:
        cp.add(model.start[op] >= arrival)
    if model.semantics.channels == "link":
        for (a, b), time in times.items():
            made.holds[a, b] = _both(model, x[i][a], x[j][b])
            _use_channels(model, made, a, b, {time})
        return
    for a in sorted({a for a, _ in times}):
        made.holds[a, None] = _both(model, x[i][a], remote)
        _use_channels(model, made, a, None, {t for (source, _), t in times.items() if source == a})
    for b in sorted({b for _, b in times}):
        made.holds[None, b] = _both(model, x[j][b], remote)
        _use_channels(model, made, None, b, {t for (_, target), t in times.items() if target == b})


def _transfer_to_device(
    model: MakespanModel,
    tensor: int,
    edges: list[int],
    destination: int,
    remaining: Sequence[NDArray[np.bool_]],
) -> None:
    """The one transfer of a tensor to a device: made iff a consumer is there, its producer not."""
    index, cp, x, b = model.instance.arrays.index, model.cp, model.x, destination
    i = int(index.producer[edges[0]])
    consumers = [j for j in index.consumer[edges].tolist() if x[j][b] is not None]
    may = np.logical_or.reduce([remaining[e][:, b] for e in edges])
    moves = model.moves(tensor)
    times = {a: moves[a][b] for a in np.flatnonzero(may).tolist() if a != b}
    if not times:
        return
    remote, here = cp.new_bool_var(f"r{tensor},{b}"), x[i][b]
    cp.add_bool_or([remote.negated(), *(x[j][b] for j in consumers)])
    local = [] if here is None else [here]
    for j in consumers:
        cp.add_bool_or([x[j][b].negated(), remote, *local])
    if here is not None:
        cp.add_implication(remote, here.negated())
    made = _new_transfer(model, tensor, i, tuple(consumers), b, remote, set(times.values()))
    for a in times:
        made.holds[a, None] = _both(model, x[i][a], remote)
    made.holds[None, b] = remote
    if made.length is not None:
        cp.add(made.length == sum(time * made.holds[a, None] for a, time in times.items()))
    arrival = made.start + made.fixed_length if made.end is None else made.end
    for j in consumers:
        cp.add(model.start[j] >= arrival).only_enforce_if(remote, x[j][b])
    if model.semantics.channels == "link":
        for a, time in times.items():
            made.holds[a, b] = made.holds.pop((a, None))
            _use_channels(model, made, a, b, {time})
        return
    for a, time in times.items():
        _use_channels(model, made, a, None, {time})
    _use_channels(model, made, None, b, set(times.values()))


def _new_transfer(
    model: MakespanModel,
    item: int,
    producer: int,
    consumers: tuple[int, ...],
    destination: int | None,
    remote: Literal,
    lengths: set[int],
) -> TransferVars:
    """Start and length of a transfer, which leaves after its producer has ended."""
    cp, horizon = model.cp, model.horizon
    start = cp.new_int_var(0, horizon, f"t{item}")
    length = end = None
    if len(lengths) > 1:
        length = cp.new_int_var(0, max(lengths), "")
        end = cp.new_int_var(0, horizon, "")
        cp.add(end == start + length)
    cp.add(start >= model.end[producer])
    made = TransferVars(
        item, producer, consumers, destination, remote, start, length, end, max(lengths)
    )
    model.transfers.append(made)
    return made


def _use_channels(
    model: MakespanModel, made: TransferVars, source: int | None, target: int | None,
    lengths: Iterable[int],
) -> None:  # fmt: skip
    """Occupy the channel of a sender, of a receiver, or of both, while the literal holds."""
    literal, lengths = made.holds[source, target], sorted(lengths)
    name, devices = model.semantics.channels, model.instance.num_devices
    out, into = channels_of(name, devices, source or 0, target or 0)
    channel = into if source is None else out
    assert channel != NO_CHANNEL
    if len(lengths) == 1 or made.length is None:
        interval = model.cp.new_optional_fixed_size_interval_var(
            made.start, lengths[0], literal, ""
        )
    else:
        interval = model.cp.new_optional_interval_var(
            made.start, made.length, made.end, literal, ""
        )
    model.on_channel.setdefault(channel, []).append((interval, lengths[0], literal))


def _both(model: MakespanModel, p: Literal, q: Literal) -> Literal:
    """A literal that is p and q."""
    both = model.cp.new_bool_var("")
    model.cp.add_implication(both, p)
    model.cp.add_implication(both, q)
    model.cp.add_bool_or([p.negated(), q.negated(), both])
    return both
