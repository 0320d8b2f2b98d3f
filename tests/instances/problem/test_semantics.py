"""Semantics: one class per objective, and what files say of them."""

import pytest
from pydantic import ValidationError

from placegap.instances import (
    Document,
    LatencySubgraphs,
    Makespan,
    MaxLoad,
    MaxLoadFwdBwd,
    PipelineIteration,
    Semantics,
    example,
)
from placegap.instances.files.document import parse_document
from placegap.instances.problem import DEFAULTS, parse_semantics

EACH = (
    Makespan(channels="link"),
    MaxLoad(plans="chain", levels=2),
    MaxLoadFwdBwd(load="overlap"),
    LatencySubgraphs(subgraphs=3),
    PipelineIteration(microbatches=4),
)


def read(semantics: object) -> Semantics | None:
    content = Document.of(example()).model_dump(mode="json", exclude_defaults=True)
    return parse_document({**content, "semantics": semantics}, "net.json").semantics


@pytest.mark.parametrize("semantics", EACH, ids=lambda semantics: semantics.objective)
def test_files_say_the_objective_the_plans_and_what_differs_from_the_defaults(
    semantics: Semantics,
) -> None:
    short = semantics.model_dump(mode="json", exclude_defaults=True)
    always = {"objective", "plans"} & semantics.model_dump().keys()
    assert short.keys() == always | {
        name for name, rule in DEFAULTS.items() if getattr(semantics, name, rule) != rule
    }
    assert read(short) == read(semantics.model_dump(mode="json")) == semantics


@pytest.mark.parametrize("semantics", EACH, ids=lambda semantics: semantics.objective)
def test_rules_of_other_objectives_do_not_exist_and_are_read_only_at_their_defaults(
    semantics: Semantics,
) -> None:
    # files of earlier versions have the rules of all objectives, and any was the default of plans
    old = {**DEFAULTS, "plans": "any"}
    assert parse_semantics({**old, **semantics.model_dump()}) == semantics
    for name in DEFAULTS.keys() - semantics.model_dump().keys():
        assert not hasattr(semantics, name)
        with pytest.raises(ValidationError, match=f"{name} belongs to"):
            parse_semantics({**semantics.model_dump(), name: "other"})
