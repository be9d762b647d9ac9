"""A new model for a resident that serves nobody: checked first, swapped in, or refused in words."""

import errno
import os
import signal
from pathlib import Path

import httpx
import msgspec
import pytest

from monitors.contract import Observed
from monitors.labels import ResidentState
from monitors.preparing import Loading, LoadStage
from tests.support.gateway import A, B, Gateway, running_gateway, settings_for, until

shared_loop = pytest.mark.asyncio(loop_scope="package")
ENDED = (LoadStage.LOADED, LoadStage.REFUSED)


def a_model(folder: Path, name: str, *marks: str) -> Path:
    model = folder / name
    model.mkdir()
    (model / "config.json").write_text("{}")
    for mark in marks:
        (model / mark).touch()
    return model


async def order(gateway: Gateway, name: str, model: Path, load: str = "l1") -> httpx.Response:
    body = {"load": load, "checkpoint": str(model), "version": model.name}
    return await gateway.led("POST", f"/residents/{name}/load", **body)


def newest(gateway: Gateway, name: str = A) -> Loading:
    loading = gateway.plane.loading(name)
    assert loading is not None
    return loading


async def loaded(gateway: Gateway, model: Path, load: str = "l1") -> Loading:
    assert (await order(gateway, A, model, load)).status_code == 200
    await until(lambda: newest(gateway).stage in ENDED)
    return newest(gateway)


async def test_a_model_is_loaded_while_b_serves_and_served_again_after_a_restart(
    tmp_path: Path,
) -> None:
    settings = settings_for(tmp_path)
    async with running_gateway(settings) as gateway:
        before = await gateway.status(A)
        answer = await order(gateway, A, a_model(tmp_path, "v3", "slow"))
        seen = msgspec.json.decode(answer.content, type=Observed)
        assert [r.loading.stage for r in seen.residents if r.loading] == [LoadStage.CHECKING]
        await until(lambda: newest(gateway).read == 0.5)
        assert (await gateway.status(A))["version"] == "v2", "it serves until it is checked"
        served: set[str] = set()
        while newest(gateway).stage not in ENDED:
            served.add((await gateway.chat("hi")).headers["X-Redline-Version"])
        assert served == {"v1"}
        after = await gateway.status(A)
        assert (after["version"], after["state"]) == ("v3", ResidentState.READY)
        assert (after["weights_digest"], after["checkpoint"]) == (
            "digest-of-v3",
            str(tmp_path / "v3"),
        )
        for epoch in ("pool_epoch", "min_pool_epoch"):
            assert after[epoch] > before[epoch]
        assert after["pid"] != before["pid"]
        text = (await gateway.client.get("/metrics")).text
        assert ('version="v3"' in text, 'version="v2"' in text) == (True, False)
        await gateway.route(50)
        answers = [await gateway.chat("hi", user=f"u{i}") for i in range(12)]
        assert {each.headers["X-Redline-Version"] for each in answers} == {"v1", "v3"}
    async with running_gateway(settings) as gateway:
        assert (await gateway.status(A))["version"] == "v3"
        assert newest(gateway).stage is LoadStage.LOADED
        await order(gateway, A, a_model(tmp_path, "v4", "slow"), "l2")
        await until(lambda: newest(gateway).read == 0.5)
    assert gateway.plane.work == set(), "a gateway that stops ends the check"


@shared_loop
async def test_a_model_that_fails_its_check_leaves_the_engine_untouched(
    gateway: Gateway, tmp_path: Path
) -> None:
    before = await gateway.status(A)
    loading = await loaded(gateway, a_model(tmp_path, "v3", "refused"), "refused")
    assert (loading.stage, "v3: is refused" in loading.detail) == (LoadStage.REFUSED, True)
    after = await gateway.status(A)
    assert [after[key] for key in ("version", "pid", "pool_epoch")] == [
        before[key] for key in ("version", "pid", "pool_epoch")
    ]


async def test_a_model_that_does_not_come_up_gives_its_place_back(
    fresh: Gateway, tmp_path: Path
) -> None:
    loading = await loaded(fresh, a_model(tmp_path, "v3", "late"))
    assert loading.stage is LoadStage.REFUSED
    assert "v3: is late; 'a' is v2 again" in loading.detail
    await until(lambda: fresh.plane.is_ready(A))
    after = await fresh.status(A)
    assert (after["version"], after["weights_digest"]) == ("v2", "digest-of-v2")


async def test_a_flush_starts_an_engine_that_was_refused_at_the_start(tmp_path: Path) -> None:
    """What docs/runbooks/redline-no-way-back.md says to do after a restart of the data plane."""
    settings = settings_for(tmp_path)
    mark = tmp_path / "v1" / "late"
    mark.touch()
    async with running_gateway(settings, wait=False) as gateway:
        supervisor = gateway.plane.supervisors[B]
        await until(lambda: supervisor.refused and gateway.plane.is_ready(A))
        pid, mark_above = (await gateway.status(A))["pid"], gateway.plane.min_pool_epoch(B) + 1
        mark.unlink()
        answer = await gateway.led("POST", f"/residents/{B}/flush", min_pool_epoch=mark_above)
        assert answer.status_code == 200, answer.text
        assert gateway.plane.is_ready(B)
        assert (await gateway.status(A))["pid"] == pid, "and nobody else is touched"


@pytest.mark.parametrize("mark", ["held", "late"])
async def test_an_engine_that_is_no_longer_there_is_never_taken_for_the_new_model(
    fresh: Gateway, tmp_path: Path, mark: str
) -> None:
    """It loads the old weights, or dies again and again of them, when the new ones are ordered."""
    supervisor = fresh.plane.supervisors[A]
    (tmp_path / "v2" / mark).touch()
    assert supervisor.pid is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    await until(lambda: supervisor.state is ResidentState.DEAD)
    if mark == "held":
        await until(lambda: supervisor.state is ResidentState.LOADING and supervisor.pid)
    assert (await order(fresh, A, a_model(tmp_path, "v3"))).status_code == 200
    await until(lambda: newest(fresh).stage is not LoadStage.CHECKING)
    (tmp_path / "v2" / mark).unlink()
    await until(lambda: newest(fresh).stage in ENDED)
    assert newest(fresh).stage is LoadStage.LOADED
    after = await fresh.status(A)
    assert (after["version"], after["weights_digest"]) == ("v3", "digest-of-v3")


async def test_weights_that_are_not_those_that_were_checked_are_refused(
    fresh: Gateway, tmp_path: Path
) -> None:
    loading = await loaded(fresh, a_model(tmp_path, "v3", "other"))
    assert loading.stage is LoadStage.REFUSED
    assert "its weights are others than those that were checked" in loading.detail
    await until(lambda: fresh.plane.is_ready(A))
    assert (await fresh.status(A))["weights_digest"] == "digest-of-v2"


async def test_a_model_that_cannot_be_noted_gives_its_place_back(
    fresh: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a data plane that starts again would serve another one than it says."""

    def store(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fresh.plane.models, "store", store)
    loading = await loaded(fresh, a_model(tmp_path, "v3"))
    assert loading.stage is LoadStage.REFUSED
    assert "No space left on device; 'a' is v2 again" in loading.detail
    await until(lambda: fresh.plane.is_ready(A))
    after = await fresh.status(A)
    assert (after["version"], after["weights_digest"]) == ("v2", "digest-of-v2")


@shared_loop
async def test_a_path_that_cannot_be_is_refused_at_once(gateway: Gateway, tmp_path: Path) -> None:
    for name, words in (
        ("v9", "no checkpoint folder that the data plane can see"),
        ("v1", "version v1 is another resident's"),
        ("no good name", "version"),
    ):
        model = tmp_path / name if name == "v9" else a_model(tmp_path, name)
        answer = await order(gateway, A, model, "impossible")
        assert (answer.status_code, words in answer.json()["error"]) == (422, True)
    relative = await gateway.led(
        "POST", f"/residents/{A}/load", load="relative", checkpoint="models/v3", version="v3"
    )
    assert "give the whole path" in relative.json()["error"]
    loading = (await gateway.status(A))["loading"]
    assert loading is None or loading["load"] not in ("impossible", "relative")


@shared_loop
async def test_a_resident_that_serves_is_given_no_other_model(
    gateway: Gateway, tmp_path: Path
) -> None:
    model = a_model(tmp_path, "v3", "slow")
    assert (await order(gateway, B, model)).status_code == 409
    await gateway.route(5)
    answer = await order(gateway, A, model)
    assert answer.status_code == 409
    assert "5 % of the traffic" in answer.json()["error"]
    await gateway.route(0)
    assert (await order(gateway, A, model)).status_code == 200
    assert (await order(gateway, A, model)).status_code == 200, "a repeated order is no second one"
    assert (await order(gateway, A, model, "l2")).status_code == 409
    await gateway.route(5)  # while it is checked
    await until(lambda: newest(gateway).stage is LoadStage.REFUSED)
    assert "5 % of the traffic" in newest(gateway).detail
    assert (await gateway.status(A))["version"] == "v2"
