"""The rules that a user asks for, one by one, and the semantics that they make of a model's own."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from placegap.instances.problem.semantics import (
    FIELDS,
    OBJECTIVES,
    Semantics,
    memory_rule,
    parse_semantics,
)
from placegap.instances.reading.errors import from_validation_error


@dataclass(frozen=True)
class Rules:
    """Single rules that replace those of a model's semantics; None where one is not given."""

    objective: str | None = None
    plans: str | None = None
    channels: str | None = None
    transfers: str | None = None
    load: str | None = None
    replicas: bool | None = None
    levels: int | None = None
    subgraphs: int | None = None
    memory: str | None = None
    schedule: str | None = None
    stages_per_device: int | None = None
    microbatches: int | None = None
    sending: str | None = None

    def override(self, own: Semantics | None, default: str | None = None) -> Semantics:
        """The semantics to use: the file's own, with single fields replaced.

        Where no option names the objective, the options must belong to that of `default`, else the
        file's, else makespan, or they choose the first that they belong to. Another objective than
        the file's resets all other fields but the memory rule, which is the model's.

        Raises
        ------
        InputError
            If an option does not belong to the objective.

        Examples
        --------
        >>> from placegap.instances import Makespan
        >>> own = Makespan(channels="link")
        >>> Rules(transfers="per_tensor").override(own).label
        'makespan link per_tensor'
        >>> Rules(objective="max_load").override(own).label
        'max_load any add'
        >>> Rules(channels="link").override(MaxLoad(memory="peak")).label
        'makespan link per_edge peak'
        """
        given = {name: value for name, value in vars(self).items() if value is not None}
        usual = default or ("makespan" if own is None else own.objective)
        objective = self.objective or self._objective(usual)
        fields: dict[str, object] = {"objective": objective}
        if own is not None and objective == own.objective:
            fields = own.model_dump()
        elif own is not None and objective in [
            one for one in OBJECTIVES if "memory" in FIELDS[one]
        ]:
            fields["memory"] = memory_rule(own)
        stated = {**fields, **given}
        try:
            return parse_semantics(stated)
        except ValidationError as error:
            raise from_validation_error(error, stated, source="options") from None

    def _objective(self, default: str) -> str:
        given = {name for name, value in vars(self).items() if value is not None}
        usual_first = sorted(OBJECTIVES, key=lambda name: name != default)
        return next((name for name in usual_first if given.intersection(FIELDS[name])), default)
