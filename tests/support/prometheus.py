"""Debian's Prometheus, scraping one target and running the generated rules four times a second."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from alerts import rules
from alerts.policy import make
from monitors.redlines import RedLines
from tests.support.ports import free_ports

SCRAPE_S = 0.25

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs Prometheus: apt-get install prometheus"
)


@contextmanager
def prometheus(
    folder: Path, target: int, lines: RedLines, *flags: str, evaluation_s: float = SCRAPE_S
) -> Iterator[httpx.Client]:
    """A client of a Prometheus that scrapes port `target` of this machine."""
    [port] = free_ports(1)
    every, evaluated = (f"{round(seconds * 1000)}ms" for seconds in (SCRAPE_S, evaluation_s))
    (folder / "rules.yml").write_text(rules.render_rules(make(lines)))
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_interval: {every}, scrape_timeout: {every},"
        f" evaluation_interval: {evaluated}}}\n"
        "rule_files: [rules.yml]\n"
        "scrape_configs:\n"
        f"- {{job_name: redline-runtime, static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}\n"
    )
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                *flags,
            ],
            stdout=log,
            stderr=log,
        )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            yield client
    finally:
        process.terminate()
        process.wait(20)
