"""The log of a study: one JSON line per run, appended and synced, never rewritten.

A study may be killed at any moment. What can be missing then is the end of the last line; it is cut
off when the log is opened again, and that run is done anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from placegap.instances.files.output_files import OutputError, append_whole
from placegap.instances.reading.errors import InputError

Record = dict[str, Any]

LOG_NAME = "runs.jsonl"

LOCK_S = 1.0  # a study that was killed holds the lock until its workers, copies of it, have ended


def canonical_json(content: Any) -> str:
    """JSON with one spelling per content: sorted keys, no spaces, no NaN."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def run_key(identity: Mapping[str, Any]) -> str:
    """SHA-256 of what identifies a run (`Run.identity`)."""
    return hashlib.sha256(canonical_json(identity).encode()).hexdigest()


def parse_log(
    data: bytes, path: str | Path, check: Callable[[Record], object]
) -> tuple[dict[str, Record], bytes]:
    """The runs of a log by key, and the line at its end that was cut off while it was written."""
    # Every other line that is no JSON, has no key or fails the `check` is an InputError.
    *lines, cut_off = data.split(b"\n")
    with suppress(ValueError, RecursionError):
        json.loads(cut_off)  # only the end of the line is missing
        lines, cut_off = [*lines, cut_off], b""
    records: dict[str, Record] = {}
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            key = record["key"]
            check(record)
            records[key] = record
        except (ValueError, RecursionError, TypeError, KeyError) as error:
            why = f" ({error})" if isinstance(error, InputError) else ""
            raise InputError(f"line {number} is not a run{why}; mend or remove it", path) from None
    return records, cut_off


class RunLog(AbstractContextManager["RunLog"]):
    """An open log: `records` by key, and `append`. One process at a time may hold it."""

    def __init__(
        self, path: str | Path, check: Callable[[Record], object] = lambda record: None
    ) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise InputError(f"cannot be opened: {error.strerror}", self.path) from None
        try:
            self._lock()
            data = self.path.read_bytes()
            self.records, cut_off = parse_log(data, self.path, check)
            if cut_off:
                os.ftruncate(self._file, len(data) - len(cut_off))
            elif data and not data.endswith(b"\n"):
                append_whole(self._file, b"\n")
        except BaseException:
            os.close(self._file)
            raise

    def append(self, record: Record) -> None:
        """Write one run, which has a "key", and wait until it is on the disk."""
        try:
            append_whole(self._file, (canonical_json(record) + "\n").encode())
            os.fsync(self._file)
        except OSError as error:
            raise OutputError(
                f"cannot be written: {error.strerror}; the {len(self.records)} runs before are"
                " intact, and the same command continues from there",
                self.path,
            ) from None
        self.records[record["key"]] = record

    def __exit__(self, *_: object) -> None:
        """Close the file, which also releases the lock."""
        os.close(self._file)

    def _lock(self) -> None:
        end = time.monotonic() + LOCK_S
        with suppress(OSError):  # a file system without locks: go on without
            while True:
                try:
                    return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except (BlockingIOError, PermissionError):
                    if time.monotonic() > end:
                        raise InputError("another study is writing to it", self.path) from None
                    time.sleep(LOCK_S / 20)
