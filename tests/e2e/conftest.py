"""One whole stack for the end-to-end tests, and a clip with sound to send to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import media
from tests.support.stack import RunningStack, start_stack, stop_stack, wait_until

# Shared CPUs are slow at times: the lines are moved out so that only a drill crosses them,
# and the holds are shortened so that the suite need not wait for them.
LINES = """
cache: {gpu_mem_gb: 0.012, hold_s: 3}
latency: {first_packet_s: 3.0, degrade_s: 4.0, min_count: 4, window_s: 10}
ladder: {dwell_s: 3, max_dwell_s: 12, relapse_s: 30, lease_s: 30}
rollout: {bake_s: 300}
"""

# Windows, holds and leases are short, so that a drill takes seconds; the lines are moved out, so
# that nothing but a drill crosses them on a busy machine. A relapse doubles no dwell: every drill
# here comes soon after the last.
DRILL_LINES = """
cache: {gpu_mem_gb: 0.012, hold_s: 2}
latency: {first_packet_s: 1.0, degrade_s: 1.5, min_count: 4, window_s: 4}
ladder: {dwell_s: 10, max_dwell_s: 20, relapse_s: 0.1, lease_s: 30, moves_per_hour: 60}
rollout: {bake_s: 300, drain_s: 5, canary_lease_s: 2, lease_renewal_s: 0.5}
alerts: {heartbeat_s: 1, heartbeat_silence_s: 5}
"""


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of H.264 and AAC: a moving shape, and a voice."""
    path = tmp_path_factory.mktemp("media") / "clip.mp4"
    path.write_bytes(media.clip(2.0, sound="speech"))
    return path


@pytest.fixture(scope="session")
def lines_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "redline.yaml"
    path.write_text(LINES)
    return path


@pytest.fixture(scope="session")
def drill_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "drills.yaml"
    path.write_text(DRILL_LINES)
    return path


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test on a shared stack: no request, no page and no broken account is left."""
    yield
    if "stack" in request.fixturenames:
        stack: RunningStack = request.getfixturevalue("stack")
        wait_until(stack.at_rest, 60)
        assert stack.broken_invariants() == []


@pytest.fixture(scope="module")
def stack_lines(lines_file: Path) -> Path:
    """What the module's stack is started with; a module that wants other lines has its own."""
    return lines_file


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, stack_lines: Path) -> Iterator[RunningStack]:
    running = start_stack(tmp_path_factory.mktemp("stack"), stack_lines)
    try:
        yield running
    finally:
        print(running.logs())
        assert stop_stack(running) == [], "orphan processes after Ctrl-C"
