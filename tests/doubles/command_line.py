"""What a command printed."""

import pytest


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on stderr, short; nothing may be on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("placegap: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert len(err) <= 301
    return err.removeprefix("placegap: ").rstrip("\n")
