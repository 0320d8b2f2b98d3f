"""Comments on fields as the reference shows them: an extension of griffe, which reads docstrings.

A note stands in lines ``#: ...`` above a field, perhaps with the names of several, or at its end.
"""

from __future__ import annotations

import re
from typing import Any

from griffe import Class, Docstring, Extension

NAMES = re.compile(r"((?:\w+, )+\w+): (.*)", re.DOTALL)


class FieldNotes(Extension):
    """Gives fields of classes the comments beside them as docstrings."""

    def on_class(self, *, cls: Class, **_: Any) -> None:
        """Read the notes of a class when its members are known."""
        for name, note in notes(cls.source).items():
            field = cls.members.get(name)
            if field is not None and field.is_attribute and field.docstring is None:
                field.docstring = Docstring(note, parent=field)  # type: ignore[arg-type]


def notes(source: str) -> dict[str, str]:
    r"""The notes on the fields of a class, from its source.

    Examples
    --------
    >>> notes("class A:\n    #: a, b: Ends\n    #: of it.\n    a: int\n    b: int\n    c: int  # B")
    {'a': 'Ends of it.', 'b': 'Ends of it.', 'c': 'B'}
    """
    found, above = dict[str, str](), list[str]()
    for line in source.splitlines():
        if comment := re.fullmatch(r" +#: ?(.*)", line):
            above.append(comment[1])
        elif field := re.match(r" {4}(\w+): [^#]*(?:#:? (.*))?", line):
            text = " ".join(above)
            several = NAMES.fullmatch(text)
            texts = (
                dict.fromkeys(several[1].split(", "), several[2]) if several else {field[1]: text}
            )
            for name, note in texts.items():
                if note or field[2]:
                    found.setdefault(name, note or field[2])
            above = []
    return found
