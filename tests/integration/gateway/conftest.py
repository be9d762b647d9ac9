"""Gateways over scripted engines: one shared by tests that leave it as it was, and fresh ones."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from runtime.settings import MediaLimits
from tests.support.gateway import Gateway, running_gateway, settings_for

LIMITS = MediaLimits(body_bytes=300_000, clip_seconds=4.0, items=3, prompt_chars=2_000)


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """For tests that run on the package's event loop and leave no route, level or drill behind."""
    async with running_gateway(settings_for(tmp_path_factory.mktemp("g"), limits=LIMITS)) as it:
        yield it


@pytest_asyncio.fixture(loop_scope="package")
async def gateway(shared: Gateway) -> AsyncIterator[Gateway]:
    """The shared one for a test that steers it: restored afterwards."""
    shared.since = shared.plane.book.evidence.newest_seq
    yield shared
    await shared.restore()


@pytest_asyncio.fixture
async def fresh(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway of this test's own."""
    async with running_gateway(settings_for(tmp_path)) as it:
        yield it
