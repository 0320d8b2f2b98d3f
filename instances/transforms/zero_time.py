"""Zero-time ops join a neighbour wherever no plan can be the worse for it."""

from __future__ import annotations

from collections import deque

import numpy as np

from placegap.instances.kernels.array_types import Flags
from placegap.instances.problem import Instance, Makespan, Semantics
from placegap.instances.problem.graph_index import DisjointSets
from placegap.instances.reading.errors import InputError
from placegap.instances.transforms.merge import Merge, merge_groups


def join_zero_time(instance: Instance, semantics: Semantics) -> Merge:
    """Merge ops that take no time and hold nothing with a neighbour, as far as that is exact.

    Candidates are ops v of no resident bytes without a colocation group. v joins op u if

    - all consumers of v are u (v then runs right before u), or all producers of v are u (v runs
      right after u), so that no other path joins the two and no cycle arises; both of one pass;
    - v takes no time on every device that can run all ops of u's colocation group;
    - the tensors into v, and those out of v, satisfy what follows.

    **Why the optimum stays.** A plan of the merged instance is one of the instance of the same
    value: v runs at the start, or at the end, of u's time on u's device. The other way round, take
    any plan with v on device d and u on device k, d != k, and move v to k: nothing changes but the
    tensors at v. `in` are those into v, `out` those out of v; t(d, k) is a transfer time, h(k) a
    host time, all in ns.

    *max_load, max_load_fwd_bwd*, plans of any class (v and all its producers of the forward pass,
    unless the class is any and the objective max_load). Let v join its consumer u. The tensors
    `out` have no other consumers: d no longer pays their h(d), k no longer their h(k). What they
    may pay instead is at most the h(d), the h(k), of every tensor in `in`; no other device pays
    more, since v was remote to it before and still is. So no load grows if

        sum of h(a) over `in` <= sum of h(a) over `out`, for every device a that is no host.

    Where v joins its producer u, exchange `in` and `out`, and let v be the only consumer of the
    tensors in `in`. A path through v is one through u, so that convex plans stay convex, and v's
    device comes before (after) u's in a chain, so that v may move there. The loads of both passes
    consist of tensors of the forward pass only.

    *makespan.* If there is no tensor on the other side (v has no inputs, or no outputs), v moves to
    the start, or to the end, of u, and its transfers go away. Else v stands between others. Its
    inputs now have to go to k, or its outputs to come from k:

    - Channels ``free``: arrivals are sums of transfer times. Nothing is later if, for all devices
      d != k and all tensors i in `in`, with o the longest of `out` (if v joins its consumer):
      i(d, k) <= o(d, k), and i(a, k) <= i(a, d) + o(d, k) for every third device a. If v joins its
      producer, with i the longest of `in`: o(k, d) <= i(k, d) and o(k, b) <= i(k, d) + o(d, b).
    - Other channels: with two devices, a transfer that goes away, from d to k (from k to d), leaves
      room on all its channels in which the others can go one after another if they fit:
      sum of i(d, k) <= o(d, k). Per tensor, the transfer must be for v alone to go away. With more
      than two devices a relay may be of use (it needs no common interval of three channels), and
      nothing is merged.
      Under ``per_edge`` v and its consumer must not read the same tensor, for the merged op would
      get it in one transfer.

    Conditions are tried again on what is merged so far, until nothing is left to join; each step is
    exact, so all of them are. O((V + E) K^2) but for ops tried again (K^3 for free channels).
    Merged ops are in the order of their first ops; they keep the kind of the joined op.
    """
    rules: _JoinMakespan | _JoinLoads
    if isinstance(semantics, Makespan):
        rules = _JoinMakespan(instance, semantics)
    elif semantics.load_passes and not semantics.has_replicas and not semantics.has_two_levels:
        rules = _JoinLoads(instance, semantics)
    else:
        raise InputError(
            f"zero-time: no merge is known to be exact under {semantics.label}; choose another"
            " objective or transform"
        )
    flow = _Tensors(instance)
    runs, costs = _devices(instance)
    alone = np.bincount(instance.arrays.group)[instance.arrays.group] == 1
    light = alone & (instance.arrays.resident_bytes == 0) & ~costs.all(axis=1)
    backward = instance.arrays.backward
    work = deque(i for i in instance.arrays.index.topological_order.tolist() if light[i])
    while work:
        v = work.popleft()
        if flow.find(v) != v:
            continue
        for u, at_consumer in flow.only_neighbours(v):
            if backward[u] != backward[v] or (costs[v] & runs[u]).any():
                continue
            if rules.allow(flow, v, u, at_consumer):
                touched = flow.neighbours(v) | flow.neighbours(u) | {u}
                flow.join(u, v)
                work += sorted(w for w in touched if light[w])
                break
    home = [flow.find(v) for v in range(instance.num_ops)]
    kinds = {u: instance.graph.ops[u].kind for u in home}
    return merge_groups(instance, home, "merged", "zero-time removal", kinds)


def _devices(instance: Instance) -> tuple[Flags, Flags]:
    """Devices that can run each op's group; devices where the op takes time or cannot run."""
    arrays = instance.arrays
    return arrays.able, arrays.time_ns != 0


class _Tensors(DisjointSets):
    """Producer and consumers of every tensor, while ops join others."""

    def __init__(self, instance: Instance) -> None:
        index = instance.arrays.index
        n = instance.num_ops
        super().__init__(n)
        self.producer: list[int] = index.tensor_producer.tolist()
        self.consumers: list[dict[int, None]] = [{} for _ in self.producer]
        self.into: list[dict[int, None]] = [{} for _ in range(n)]
        self.out: list[dict[int, None]] = [{} for _ in range(n)]
        ends = zip(index.tensor.tolist(), index.consumer.tolist(), strict=True)
        for tensor, consumer in ends:
            self.consumers[tensor][consumer] = None
            self.into[consumer][tensor] = None
            self.out[self.producer[tensor]][tensor] = None

    def neighbours(self, v: int) -> set[int]:
        """Producers and consumers of an op."""
        before = {self.producer[t] for t in self.into[v]}
        return before.union(*(self.consumers[t] for t in self.out[v]))

    def only_neighbours(self, v: int) -> list[tuple[int, bool]]:
        """The only consumer of an op (True) and its only producer (False), if they are."""
        after = {u for t in self.out[v] for u in self.consumers[t]}
        before = {self.producer[t] for t in self.into[v]}
        return [(min(s), at) for s, at in ((after, True), (before, False)) if len(s) == 1]

    def join(self, u: int, v: int) -> None:
        """Let v be part of u."""
        super().join(u, v)
        for t in self.into[v]:
            del self.consumers[t][v]
            if self.producer[t] != u:
                self.consumers[t][u] = None
                self.into[u][t] = None
            elif not self.consumers[t]:
                del self.out[u][t]
        for t in self.out[v]:
            self.producer[t] = u
            self.consumers[t].pop(u, None)
            self.into[u].pop(t, None)
            if self.consumers[t]:
                self.out[u][t] = None


class _JoinLoads:
    """When an op may join under max_load and max_load_fwd_bwd."""

    def __init__(self, instance: Instance, semantics: Semantics) -> None:
        self.backward = instance.arrays.backward
        self.cost = instance.arrays.host_ns[:, ~instance.arrays.is_host]
        self.passes = len(semantics.load_passes) > 1 or semantics.plan_class != "any"

    def allow(self, flow: _Tensors, v: int, u: int, at_consumer: bool) -> bool:
        """Whether no load can grow when v moves to u's device, and no plan leaves its class."""
        into, out = list(flow.into[v]), list(flow.out[v])
        ends = [v, u, *(flow.producer[t] for t in into)]
        if self.passes and self.backward[ends].any():
            return False
        moved, saved = (into, out) if at_consumer else (out, into)
        if not at_consumer and any(len(flow.consumers[t]) > 1 for t in into):
            return not out  # v then only leaves the tensors' consumers
        return bool((self.cost[moved].sum(axis=0) <= self.cost[saved].sum(axis=0)).all())


class _JoinMakespan:
    """When an op may join under a makespan semantics."""

    def __init__(self, instance: Instance, semantics: Makespan) -> None:
        self.transfer_ns, self.link = instance.arrays.transfer_ns, instance.arrays.link_class
        self.free = semantics.channels == "free"
        self.per_edge = semantics.transfers == "per_edge"
        self.num_devices = instance.num_devices

    def allow(self, flow: _Tensors, v: int, u: int, at_consumer: bool) -> bool:
        """Whether all tensors at v can be where they are needed as early as before."""
        into, out = list(flow.into[v]), list(flow.out[v])
        moved, saved = (into, out) if at_consumer else (out, into)
        if not moved:
            return True
        if self.free:
            return self._no_later(moved, saved, at_consumer)
        reads_alike = at_consumer and not flow.into[v].keys().isdisjoint(flow.into[u])
        if self.num_devices > 2 or (self.per_edge and reads_alike):
            return False
        if not at_consumer:
            if self.per_edge:
                moved = [t for t in out for _ in flow.consumers[t]]
            else:
                saved = [t for t in into if len(flow.consumers[t]) == 1]
        return any(
            (self.transfer_ns[moved].sum(axis=0) <= self.transfer_ns[t]).all() for t in saved
        )

    def _no_later(self, moved: list[int], saved: list[int], at_consumer: bool) -> bool:
        """Free channels: every moved tensor is there as early as over the device that v was on."""
        dearest = self.transfer_ns[saved].max(axis=0)[self.link]
        for t in moved:
            direct = self.transfer_ns[t][self.link]
            first, second = (direct, dearest) if at_consumer else (dearest, direct)
            if (direct[:, None, :] > first[:, :, None] + second[None, :, :]).any():
                return False
        return True
