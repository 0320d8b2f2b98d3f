"""``placegap verify``: the verdict of both referees on a plan, and how good it may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placegap.experiments.cli.options import (
    BROKEN_RULES,
    CostsOption,
    JsonOption,
    LimitOption,
    MethodOption,
    ModelOptions,
    ParamOption,
    load_instance,
    parse_pairs,
    source_of,
)
from placegap.experiments.running.rules import Rules
from placegap.experiments.show.figures import format_ns, format_value
from placegap.experiments.show.place_report import (
    claim_objects,
    claim_words,
    gap_words,
    plan_table,
    server_lines,
)
from placegap.experiments.show.rendering import output, print_json, print_line, spinner, warn
from placegap.instances.files.plan_file import load_stated_plan
from placegap.instances.problem import Instance, Plan, Semantics
from placegap.instances.problem.modules import row_of_layers
from placegap.instances.reading.errors import InputError
from placegap.solvers.core.clock import USUAL_S
from placegap.solvers.core.result import Bound, describe_basis, gap_to
from placegap.solvers.solving.known_bounds import (
    Claim,
    claims_of,
    known_bound,
    recorded_value_ns,
    refuted_claims,
)

if TYPE_CHECKING:
    from placegap.experiments.running.certifying import Verdict
    from placegap.instances.certificates.verification import Verification


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(ModelOptions):
    plan_file: Annotated[
        Path | None, typer.Argument(metavar="[PLAN]", help="A plan's JSON file.")
    ] = None
    costs: CostsOption = None
    rules: Rules
    any_content: Annotated[
        bool,
        typer.Option("--any-content", help="Also evaluate a plan that was made for other content."),
    ] = False
    certificate: Annotated[
        Path | None,
        typer.Option(
            "--certificate",
            metavar="FILE",
            help="Check the bound of 'place --certificate' without any solver; PLAN may be left"
            " out.",
        ),
    ] = None
    method: MethodOption = None
    param: ParamOption = None
    time_limit: LimitOption = USUAL_S
    as_json: JsonOption = False


def verify_command(options: VerifyOptions) -> None:
    """Evaluate a plan by two independent referees, and print its value, bound and gap.

    Every violation is listed. The exit status is 1 if there is one, if the referees disagree, or if
    a bound contradicts the plan. The plan's own semantics applies; if options replace fields of it,
    the value and times that the file states are not compared. With --certificate the exit status is
    also 1 if the certificate does not prove its bound.
    """
    from placegap.experiments.running.certifying import Proof, certified_bounds, kept_bounds, proven
    from placegap.experiments.running.placing import plan_file_at
    from placegap.instances.certificates.verification import verify

    source, file = source_of(options), None
    if options.plan_file is not None and options.rules.objective is None:
        file = plan_file_at(str(options.plan_file))
        source = replace(source, layers=file is not None and file.semantics.has_modes)
    instance = load_instance(source)
    if file is not None:
        instance = row_of_layers(instance, file.semantics.objective)
    if options.plan_file is None and options.certificate is None:
        raise InputError("name a plan to evaluate, or a certificate to check (--certificate)")
    certified = (
        None
        if options.certificate is None
        else _certified(instance, options.rules, options.certificate)
    )
    if options.plan_file is None:
        assert certified is not None
        if options.as_json:
            print_json({"instance": instance.name, "certificate": _certificate_json(certified)})
        else:
            print_line(f"{instance.name}: {_certificate_line(certified)}")
        raise typer.Exit(0 if certified.holds else BROKEN_RULES)
    stated = load_stated_plan(instance, options.plan_file)
    own, semantics = stated.semantics, options.rules.override(stated.semantics)
    if semantics != own:
        stated = replace(stated, semantics=semantics, value=None, times=None)
    if semantics.objective != own.objective and stated.plan != Plan(stated.plan.placement):
        stated = replace(stated, plan=Plan(stated.plan.placement))
        warn(
            f"{options.plan_file}: only its placement is used: the rest was made for"
            f" {own.objective}"
        )
    verdict = verify(instance, stated, any_content=options.any_content)
    bound, best_ns, wrong = None, None, tuple[str, ...]()
    name = str(options.plan_file)
    claims = claims_of(instance, semantics, options.model, {name: stated.bound})
    if verdict.agree and verdict.first.value is not None:
        start, now = verdict.plan if verdict.holds else None, list[Bound]()
        if certified is not None:
            now += certified_bounds(certified, semantics)
        said = why = tuple[str, ...]()
        with spinner("looking for a bound"):
            if options.method is not None:
                proof = Proof(options.method, parse_pairs(options.param or ()), options.time_limit)
                more, said = proven(source, semantics, proof, start)
                now += more
            value_ns = verdict.first.value if verdict.holds else None
            if semantics == own:
                carried, why = kept_bounds(instance, semantics, stated.bound)
                now += carried
            bound, wrong = known_bound(instance, semantics, value_ns, now)
            wrong += tuple(f"{name}: {sentence}" for sentence in why)
        plans = [(Path(name).name, verdict.plan)] if verdict.holds else []
        wrong += refuted_claims(claims, semantics, plans, bound)
        best_ns = recorded_value_ns(instance, semantics)
        for sentence in said:
            warn(sentence)
    if options.as_json:
        content = _json(instance, semantics, verdict, bound, best_ns, claims)
        if certified is not None:
            content["certificate"] = _certificate_json(certified)
        print_json(content)
    else:
        _print(instance, semantics, verdict, bound, best_ns, claims)
        if certified is not None:
            print_line(_certificate_line(certified))
    if not verdict.agree:
        warn("the two referees disagree: one of them is wrong; please report this plan")
    for sentence in wrong:
        warn(sentence)
    if not verdict.holds or wrong or (certified is not None and not certified.holds):
        raise typer.Exit(BROKEN_RULES)
    if verdict.first.idle_devices:
        warn(f"the plan leaves unused: {', '.join(verdict.first.idle_devices)}")


def _certified(instance: Instance, rules: Rules, path: Path) -> Verdict:
    """The checker's verdict; a certificate under other rules than the options' does not hold."""
    from placegap.experiments.running.certifying import Verdict, check_certificate

    with spinner(f"checking {path}"):
        found = check_certificate(instance, path)
    if found.semantics is not None and rules.override(found.semantics) != found.semantics:
        return Verdict(reason=f"it is for {found.semantics.label}")
    return found


def _certificate_line(verdict: Verdict) -> str:
    if verdict.semantics is None or verdict.bound_ns is None:
        return f"the certificate does NOT hold: {verdict.reason}"
    bound = f"no plan is below {format_ns(verdict.bound_ns)} ({verdict.bound_ns} ns)"
    if verdict.semantics.is_maximized:
        bound = f"no plan is above {verdict.semantics.text(verdict.bound_ns)}"
    return f"the certificate holds: {bound}, {verdict.semantics.label} ({verdict.kind}, checked)"


def _certificate_json(verdict: Verdict) -> dict[str, Any]:
    semantics = None if verdict.semantics is None else verdict.semantics.model_dump(mode="json")
    return {"holds": verdict.holds, **vars(verdict), "semantics": semantics}


def _json(
    instance: Instance,
    semantics: Semantics,
    verdict: Verification,
    bound: Bound | None,
    best_ns: int | None,
    claims: Sequence[Claim],
) -> dict[str, Any]:
    first, second = verdict.first, verdict.second
    return {
        "instance": instance.name,
        "semantics": semantics.model_dump(mode="json"),
        "feasible": verdict.holds,
        semantics.key("value"): first.value,
        "violations": [vars(violation) for violation in first.violations],
        "referees_agree": verdict.agree,
        "second_referee": {
            semantics.key("value"): second.value,
            "violations": [vars(violation) for violation in second.violations],
        },
        semantics.key("bound"): None if bound is None else bound.value,
        "bound_origin": "" if bound is None else bound.origin,
        "rests_on": "" if bound is None else bound.basis,
        "gap": gap_to(first.value, bound),
        "best_known_value_ns": best_ns,
        "claims": claim_objects(claims, semantics),
    }


def _print(
    instance: Instance,
    semantics: Semantics,
    verdict: Verification,
    bound: Bound | None,
    best_ns: int | None,
    claims: Sequence[Claim],
) -> None:
    console, first, second = output(), verdict.first, verdict.second
    console.print(f"{instance.name}: {semantics.label}")
    if first.uses:
        console.print(plan_table(instance, verdict.plan, first, semantics))
        for line in server_lines(first):
            console.print(line)
    values = [
        "none" if value is None else format_value(value, semantics.unit)
        for value in (first.value, second.value)
    ]
    if verdict.agree:
        console.print(f"value    {values[0]} (both referees)")
    else:
        exact = f" ({first.value} and {second.value})"
        console.print(f"value    {values[0]} and {values[1]}{exact}: the referees DISAGREE")
    if bound is not None:
        basis = describe_basis(bound.origin, bound.basis)
        words = gap_words(gap_to(first.value, bound), first.value, bound)
        console.print(f"bound    {format_value(bound.value, semantics.unit)} ({basis})")
        console.print(f"gap      {words}")
    if best_ns is not None and best_ns != first.value:
        console.print(f"best     {format_value(best_ns, semantics.unit)} is recorded")
    for claim in claims:
        console.print(f"claimed  {claim_words(claim, semantics)}")
    console.print(f"verdict  {'feasible' if first.feasible else 'infeasible'}")
    for violation in first.violations:
        print_line(f"- {violation}")
    if not verdict.agree:
        console.print(f"second referee: {'' if second.feasible else 'in'}feasible")
        for violation in second.violations:
            print_line(f"- {violation}")
