"""Both referees of serving_flow on random plans: ``python -m references.serving_flows 100000``."""

from __future__ import annotations

import random
import sys

from draws.serving import drawn_plan, flow_instance

from placegap.instances import ServingFlow, evaluate, recheck

PLANS_PER_INSTANCE = 20


def agree(seed: int, plans: int) -> tuple[int, int]:
    """Compare both on this many plans; how many there were, and how many let something flow."""
    rng, compared, flowing = random.Random(f"flows-{seed}"), 0, 0
    while compared < plans:
        instance = flow_instance(rng)
        for _ in range(PLANS_PER_INSTANCE):
            plan = drawn_plan(rng, instance)
            if plan is None:
                continue
            for partial in (False, True):
                rules = ServingFlow(partial_inference=partial)
                first, second = (judge(instance, plan, rules) for judge in (evaluate, recheck))
                assert first.feasible
                assert second.feasible
                assert first.value == second.value, (instance, plan, rules)
                compared, flowing = compared + 1, flowing + bool(first.value)
    return compared, flowing


if __name__ == "__main__":
    done, some = agree(0, int(sys.argv[1]))
    print(f"both referees agree on {done} plans, of which {some} let tokens flow")
