"""Transfers of the CP-SAT makespan model: when they are made, how long, and on which channels."""

from __future__ import annotations

import numpy as np

from placegap.formulations.makespan_cp import (
    Expression,
    Literal,
    MakespanModel,
    TransferVars,
)
from placegap.formulations.shared.cp_families import Term, at_most
from placegap.instances.referee.channels import channels_of


def forbid_late_moves(model: MakespanModel) -> None:
    """No x[i, a] and x[j, b] together where edge (i, j) would end after the horizon.

    That is where `windows.moves_in_time` says no.
    """
    index, possible = model.instance.arrays.index, model.window.possible
    for e, (i, j) in enumerate(zip(index.producer.tolist(), index.consumer.tolist(), strict=True)):
        may = possible[i][:, None] & possible[j][None, :]
        for a, b in np.argwhere(may & ~model.moves_in_time[e]).tolist():
            model.cp.add_bool_or([model.x[i][a].negated(), model.x[j][b].negated()])


def precedence_local(model: MakespanModel) -> None:
    """start[j] >= end[i] for every edge (i, j)."""
    index = model.instance.arrays.index
    for i, j in zip(index.producer.tolist(), index.consumer.tolist(), strict=True):
        model.cp.add(model.start[j] >= model.end[i])


def precedence_delayed(model: MakespanModel) -> None:
    """Free channels: start[j] >= end[i] + T_ab if x[i, a] and x[j, b], for every edge (i, j)."""
    index = model.instance.arrays.index
    for e, (i, j, u) in enumerate(
        zip(index.producer.tolist(), index.consumer.tolist(), index.tensor.tolist(), strict=True)
    ):
        moves = model.moves(u)
        for a, b in np.argwhere(model.moves_in_time[e]).tolist():
            if moves[a][b] > 0:
                model.cp.add(model.start[j] >= model.end[i] + moves[a][b]).only_enforce_if(
                    model.x[i][a], model.x[j][b]
                )


def precedence_remote(model: MakespanModel) -> None:
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
            _transfer_to_ops(model, item, away)
        elif away:
            for b in range(model.instance.num_devices):
                _transfer_to_device(model, item, away, b)


def channel_no_overlap(model: MakespanModel) -> None:
    """Every channel serves one transfer at a time, and is busy for at most the makespan."""
    for uses in model.on_channel.values():
        if len(uses) > 1:
            model.cp.add_no_overlap([interval for interval, _, _ in uses])
            terms = [Term(least, literal) for _, least, literal in uses]
            model.derived.extend(at_most(model.cp, terms, model.makespan))


def _transfer_to_ops(model: MakespanModel, item: int, edges: list[int]) -> None:
    """A transfer to wherever the consumers are, all on one device; none if the producer is there.

    remote = 1 iff no device k has x[i, k] and x[j, k].
    """
    index, cp, x = model.instance.arrays.index, model.cp, model.x
    i, consumers = int(index.producer[edges[0]]), index.consumer[edges].tolist()
    j, moves = consumers[0], model.moves(int(index.tensor[edges[0]]))
    may = np.logical_and.reduce([model.moves_in_time[e] for e in edges])
    times = {(a, b): moves[a][b] for a, b in np.argwhere(may).tolist() if a != b}
    if not times:
        return
    remote = cp.new_bool_var(f"r{item}")
    for k in sorted({*x[i], *x[j]}):
        if k in x[i] and k in x[j]:
            here, there = x[i][k], x[j][k]
            cp.add_bool_or([here.negated(), there.negated(), remote.negated()])
            cp.add_bool_or([here.negated(), there, remote])
            cp.add_bool_or([here, there.negated(), remote])
        else:
            cp.add_implication(x[i][k] if k in x[i] else x[j][k], remote)
    made = _new_transfer(model, item, i, tuple(consumers), None, remote, set(times.values()))
    if not isinstance(made.length, int):
        cp.add(made.length == 0).only_enforce_if(remote.negated())
        for (a, b), time in times.items():
            cp.add(made.length == time).only_enforce_if(x[i][a], x[j][b])
    for op in consumers:
        cp.add(model.start[op] >= made.end)
    if model.semantics.channels == "link":
        for (a, b), time in times.items():
            _hold(model, made, (a, b), _both(model, x[i][a], x[j][b]), {time})
        return
    for a in sorted({a for a, _ in times}):
        lengths = {time for (source, _), time in times.items() if source == a}
        _hold(model, made, (a, None), _both(model, x[i][a], remote), lengths)
    for b in sorted({b for _, b in times}):
        lengths = {time for (_, target), time in times.items() if target == b}
        _hold(model, made, (None, b), _both(model, x[j][b], remote), lengths)


def _transfer_to_device(
    model: MakespanModel,
    tensor: int,
    edges: list[int],
    destination: int,
) -> None:
    """The one transfer of a tensor to a device: made iff a consumer is there, its producer not."""
    index, cp, x, b = model.instance.arrays.index, model.cp, model.x, destination
    i = int(index.producer[edges[0]])
    consumers = [j for j in index.consumer[edges].tolist() if b in x[j]]
    may = np.logical_or.reduce([model.moves_in_time[e][:, b] for e in edges])
    moves = model.moves(tensor)
    times = {a: moves[a][b] for a in np.flatnonzero(may).tolist() if a != b}
    if not times:
        return
    remote = cp.new_bool_var(f"r{tensor},{b}")
    cp.add_bool_or([remote.negated(), *(x[j][b] for j in consumers)])
    for j in consumers:
        cp.add_bool_or([x[j][b].negated(), remote, *([x[i][b]] if b in x[i] else [])])
    if b in x[i]:
        cp.add_implication(remote, x[i][b].negated())
    made = _new_transfer(model, tensor, i, tuple(consumers), b, remote, set(times.values()))
    leaves = {a: _both(model, x[i][a], remote) for a in times}
    if not isinstance(made.length, int):
        cp.add(made.length == sum(time * leaves[a] for a, time in times.items()))
    for j in consumers:
        cp.add(model.start[j] >= made.end).only_enforce_if(remote, x[j][b])
    link = model.semantics.channels == "link"
    for a, time in times.items():
        _hold(model, made, (a, b if link else None), leaves[a], {time})
    if not link:
        _hold(model, made, (None, b), remote, set(times.values()))


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
    cp.add(start >= model.end[producer])
    longest = max(lengths)
    length: Literal | int = longest
    end: Expression = start + longest * remote
    if len(lengths) > 1:
        length, end = cp.new_int_var(0, longest, ""), cp.new_int_var(0, horizon, "")
        cp.add(end == start + length)
    made = TransferVars(item, producer, consumers, destination, remote, start, length, end)
    model.transfers.append(made)
    return made


def _hold(
    model: MakespanModel,
    made: TransferVars,
    ends: tuple[int | None, int | None],
    literal: Literal,
    lengths: set[int],
) -> None:
    """Occupy the channel of a sender, of a receiver, or of both, while the literal is true."""
    source, target = ends
    channel = channels_of(
        model.semantics.channels, model.instance.num_devices, source or 0, target or 0
    )[source is None]
    least = min(lengths)
    if len(lengths) == 1:
        interval = model.cp.new_optional_fixed_size_interval_var(made.start, least, literal, "")
    else:
        interval = model.cp.new_optional_interval_var(
            made.start, made.length, made.end, literal, ""
        )
    made.holds[ends] = literal
    model.on_channel.setdefault(channel, []).append((interval, least, literal))


def _both(model: MakespanModel, p: Literal, q: Literal) -> Literal:
    """A literal that is p and q."""
    both = model.cp.new_bool_var("")
    model.cp.add_implication(both, p)
    model.cp.add_implication(both, q)
    model.cp.add_bool_or([p.negated(), q.negated(), both])
    return both
