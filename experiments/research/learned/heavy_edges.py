"""Coarsening to parts of about equal work, as multilevel partitioners do.

After Karypis and Kumar, "A fast and high quality multilevel scheme for partitioning irregular
graphs" (SIAM J. Sci. Comput. 20(1), 1998): what is much is merged first, and no part may get too
heavy, so that the parts can still be spread over devices.
"""

from __future__ import annotations

from placegap.instances.problem import Instance
from placegap.instances.problem.mean_costs import flow_of
from placegap.instances.transforms.merge import Merge, merge_groups
from placegap.instances.transforms.pesto_merge import Contraction

MEMORY_PARTS = 8  # parts that fill the smallest memory
SLACK = 1.02  # a part whose heaviest op is already too much may hold this times what the op does


def merge_heavy_edges(instance: Instance, parts: int, num_ops: int | None = None) -> Merge:
    """Merge ops along the most expensive edges while no part gets too much work or memory."""
    # A part has at most the work of all ops on one device (in mean times), divided by the number of
    # devices and by `parts`; and an eighth of the smallest memory. A part of one op that is more
    # may take in a fiftieth more. What `pesto_merge` passes over is passed over here, too.
    # `num_ops` are enough; the limits are doubled until no more are left. Merged ops are in the
    # order of their first ops.
    if parts < 1:
        raise ValueError(f"cannot make {parts} parts of a device's work")
    contraction = _Limited(instance, parts)
    whole = [sum(held) for held in contraction.held]
    contraction.run(1 if num_ops is None else num_ops)
    while num_ops is not None and contraction.num_nodes > num_ops:
        if all(limit >= most for limit, most in zip(contraction.limits, whole, strict=True)):
            break
        contraction.limits = [2 * limit for limit in contraction.limits]
        contraction.run(num_ops)
    return merge_groups(instance, contraction.parts(instance), "merged", "heavy edges")


class _Limited(Contraction):
    """A contraction whose nodes have limits: of work in ns, and of bytes, (2, n) each."""

    def __init__(self, instance: Instance, parts: int) -> None:
        # `held` is what each node has, `most` what its most demanding op has.
        super().__init__(instance, "dearest_first")
        arrays, order = instance.arrays, instance.arrays.index.topological_order
        work_ns, k = flow_of(arrays).node_ns, instance.num_devices
        held = [work_ns[order].tolist(), arrays.resident_bytes[order].tolist()]
        self.limits = [sum(held[0]) / (k * parts), int(arrays.memory_bytes.min()) / MEMORY_PARTS]
        self.held, self.most = held, [list(row) for row in held]

    def may_merge(self, u: int, v: int) -> bool:
        """Whether the two may be in one part, and neither is full."""
        for limit, held, most in zip(self.limits, self.held, self.most, strict=True):
            if held[u] + held[v] > max(limit, SLACK * max(most[u], most[v])):
                return False
        return super().may_merge(u, v)

    def merge(self, u: int, v: int) -> None:
        """Also add up what the two have."""
        keep, gone = min(u, v), max(u, v)
        for held, most in zip(self.held, self.most, strict=True):
            held[keep] += held[gone]
            most[keep] = max(most[keep], most[gone])
        super().merge(u, v)
