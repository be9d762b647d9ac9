"""Prometheus' and Alertmanager's own tools, run as a test needs them."""

import os
import shutil
import subprocess


def run(tool: str, *arguments: object, timeout_s: float = 120, check: bool = True) -> str:
    """The tool's output; fails with it where the tool does, unless `check` is off."""
    assert shutil.which(tool), f"{tool} is missing: deploy/debian-packages prometheus ..."
    done = subprocess.run(
        [tool, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "GOGC": "800"},  # short-lived: a third of its time is collecting else
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done.stdout + done.stderr
