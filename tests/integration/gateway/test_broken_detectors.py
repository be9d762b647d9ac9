"""A detector that breaks on a request's media: the request is served, and on call can see it."""

from pathlib import Path
from typing import NoReturn

import pytest
from prometheus_client.parser import text_string_to_metric_families

from monitors import catalog
from monitors.contract import RequestFinished
from monitors.detectors import lip_sync, pixels
from monitors.labels import Detector, Judgement, Outcome
from tests.integration.gateway.test_input_faults import CLIP, send
from tests.support.gateway import ALONE, Gateway, running_gateway, settings_for


def broken(*_: object) -> NoReturn:
    raise ArithmeticError("what the client said")


async def test_a_request_is_served_though_two_detectors_break(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken_detectors: list[str]
) -> None:
    monkeypatch.setattr(lip_sync, "judge", broken)
    monkeypatch.setattr(pixels, "look", broken)
    async with running_gateway(settings_for(tmp_path, **ALONE)) as gateway:
        answer = await send(gateway, CLIP, "s")
        assert answer.status_code == 200, answer.text
        await gateway.plane.verdicts.settled("b")
        (ending,) = (entry.body for entry in gateway.bodies("finished"))
        assert isinstance(ending, RequestFinished)
        assert (ending.outcome, ending.faulted) == (Outcome.OK, False)
        assert await failed(gateway) == {Detector.LIP_SYNC: 1, Detector.PIXELS: 1}
    assert len(broken_detectors) == 2
    assert not [line for line in broken_detectors if "client" in line]


async def failed(gateway: Gateway) -> dict[str, float]:
    """Judgements "failed" by detector, as Prometheus reads them, those at 0 left out."""
    text = (await gateway.client.get("/metrics")).text
    return {
        sample.labels["detector"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == catalog.DETECTOR_JUDGEMENTS.name
        and sample.labels["judgement"] == Judgement.FAILED
        and sample.value
    }
