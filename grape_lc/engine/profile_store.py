"""Profiles on disk: one file for each machine, model and set of engine settings.

A file holds the whole key beside the fit, and is used only if both are as they should be: a
profile of another machine, of an older version or cut short is left alone, with a line in the log.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grape_lc.config import cache_dir
from grape_lc.errors import ConfigError
from grape_lc.files import write_whole
from grape_lc.scheduler.cost import LinearCost
from grape_lc.strict_json import StrictJSONError, read_bytes, read_json

logger = logging.getLogger(__name__)

VERSION = 2
"""Of the file's form and of what the coefficients mean."""

MOST_MAPE = 0.15
MOST_P95 = 0.40
"""Errors on held-out steps above which a fit is neither stored nor used: on single ones at the
machine's pace, and on medians as they were measured."""

_CPU_INFO = Path("/proc/cpuinfo")

Key = Mapping[str, Any]


def processor() -> str:
    """Name of the CPU model, as the system tells it."""
    try:
        for line in _CPU_INFO.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def path_of(key: Key) -> Path:
    """Where the profile of ``key`` (plain values) is kept; it may not exist."""
    return cache_dir() / "profiles" / f"{_digest(key)}.json"


def _digest(key: Key) -> str:
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]


def refusal(profile: Mapping[str, Any]) -> str | None:
    """Why a profile is not to be used; None if its errors are small enough.

    Single steps are what the scheduler predicts, at a pace that it has to follow. Where the
    machine changes its pace so much that medians are far off too, it cannot.
    """
    for kind, which in (
        ("heldout_single", "on single steps"),
        ("heldout_unpaced", "as they were measured"),
    ):
        for name, text, bound in (
            ("mape", "mean", MOST_MAPE),
            ("p95_error", "95th percentile", MOST_P95),
        ):
            value = profile[kind][name]
            if not value <= bound:  # so that NaN is refused too
                return f"the {text} of its errors {which} is {value:.1%}, above {bound:.0%}"
    return None


def save(key: Key, profile: Mapping[str, Any]) -> Path:
    """Write a profile: plain values with ``coefficients``, ``heldout_single``; returns the file.

    Raises ConfigError if its errors are too large or the file cannot be written.
    """
    why = refusal(profile)
    if why is not None:
        raise ConfigError(f"the profile is not stored: {why}")
    path = path_of(key)
    content = {"version": VERSION, "key": dict(key), **profile}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(content, indent=1))
    except OSError as error:
        raise ConfigError(f"cannot write the profile {path}: {error.strerror}") from error
    return path


def load(key: Key) -> LinearCost | None:
    """The stored F of ``key``, or None: there is none, or it is not usable (logged)."""
    try:
        path = path_of(key)
        text = read_bytes(path)
    except FileNotFoundError:
        return None
    except (ConfigError, OSError, StrictJSONError) as error:
        logger.warning("no profile is used: %s", error)
        return None
    try:
        return _read(read_json(text), key)
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        logger.warning("the profile %s is ignored, F will be learned: %s", path, error)
        return None


def _read(content: Any, key: Key) -> LinearCost:
    if content["version"] != VERSION:
        raise ValueError(f"its version is {content['version']!r}, not {VERSION}")
    if content["key"] != json.loads(json.dumps(key)):
        raise ValueError("it was made for another machine, model or setting")
    why = refusal(content)
    if why is not None:
        raise ValueError(why)
    return LinearCost.from_mapping(content["coefficients"])
