"""The second referee of max_context."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from placegap.instances.objectives.max_load.oracle import max_load_ns
from placegap.instances.oracle.facts import Facts
from placegap.instances.oracle.rules import judged, placed_rules, sum_rule
from placegap.instances.problem import MOST_TOKENS, Evaluation, MaxContext, Op, Plan, Violation


def recheck(facts: Facts, plan: Plan, rules: MaxContext) -> Evaluation:
    """The tokens for which all devices have room, and every rule that the plan breaks."""
    found = placed_rules(facts, plan, rules, partial(bytes_with, tokens=0))

    def value() -> int:
        load_ns = max_load_ns(facts, plan, rules.loads)
        if rules.at_most_ns is not None and load_ns > rules.at_most_ns:
            said = f"a device has {load_ns} ns to do, of {rules.at_most_ns}"
            found.append(Violation("load", said))
        return context_tokens(facts, plan)

    return replace(judged(found, value), unit="tokens")


def bytes_with(op: Op, tokens: int) -> int:
    """Resident bytes of an op whose caches hold `tokens`, window by window."""
    held = op.resident_bytes
    for cache in op.caches:
        limit = tokens if cache.most_tokens is None else cache.most_tokens
        stated = cache.tokens if cache.most_tokens is None else min(cache.tokens, limit)
        held += cache.token_bytes * (min(tokens, limit) - stated)
    return held


def context_tokens(facts: Facts, plan: Plan) -> int:
    """The most tokens that all devices have room for, by bisection; 0 where there are none."""
    fits, fails = 0, MOST_TOKENS + 1
    while fails - fits > 1:
        middle = (fits + fails) // 2
        full = next(sum_rule(facts, plan, partial(bytes_with, tokens=middle)), None)
        fits, fails = (middle, fails) if full is None else (fits, middle)
    return fits
