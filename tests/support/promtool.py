"""Prometheus' and Alertmanager's own tools, run as a test needs them."""

import shutil
import subprocess


def run(tool: str, *arguments: object, timeout_s: float = 120) -> str:
    """The tool's output; fails with it where the tool does."""
    assert shutil.which(tool), f"{tool} is missing: deploy/debian-packages prometheus ..."
    command = [tool, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
