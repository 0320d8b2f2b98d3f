"""Formulas of the pages as MathML, which browsers draw by themselves: no script, no other host.

A hook of MkDocs. `pymdownx.arithmatex` finds the formulas, in dollars as GitHub reads them; they
are turned into MathML while the site is built.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(?:span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</(?:span|div)>', re.S)


def on_page_content(content: str, **_: Any) -> str:
    """Set the formulas of a page."""
    return FORMULA.sub(
        lambda found: mathml(html.unescape(found[2]), block=found[1] == "["), content
    )


def mathml(formula: str, *, block: bool = False) -> str:
    r"""A formula of LaTeX as MathML; one that is wider than its page scrolls by itself.

    Examples
    --------
    >>> mathml("x_{ik}")[-72:]
    '<msub><mi>x</mi><mrow><mi>i</mi><mi>k</mi></mrow></msub></mrow></math>'
    """
    drawn: str = convert(" ".join(formula.split()), display="block" if block else "inline")
    return f'<div class="formula">{drawn}</div>' if block else drawn
