"""A new model for a resident that serves nobody: checked first, swapped in, or refused in words."""

from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from monitors.contract import Observed
from monitors.labels import ResidentState
from monitors.preparing import Loading, LoadStage
from tests.support.gateway import A, B, Gateway, running_gateway, settings_for, until

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


async def test_a_model_is_loaded_into_a_while_b_serves(fresh: Gateway, tmp_path: Path) -> None:
    before = await fresh.status(A)
    answer = await order(fresh, A, a_model(tmp_path, "v3", "slow"))
    seen = msgspec.json.decode(answer.content, type=Observed)
    assert [r.loading.stage for r in seen.residents if r.loading] == [LoadStage.CHECKING]
    await until(lambda: newest(fresh).read == 0.5)
    assert (await fresh.status(A))["version"] == "v2", "what is there serves until it is checked"
    served = []
    while newest(fresh).stage not in ENDED:
        served.append((await fresh.chat("hi")).headers["X-Redline-Version"])
    assert set(served) == {"v1"}
    after = await fresh.status(A)
    assert (after["version"], after["state"]) == ("v3", ResidentState.READY)
    assert (after["weights_digest"], before["weights_digest"]) == ("digest-of-v3", "digest-of-v2")
    assert after["pool_epoch"] > before["pool_epoch"]
    assert after["min_pool_epoch"] > before["min_pool_epoch"]
    assert after["pid"] != before["pid"]
    await fresh.route(50)
    assert "v3" in [
        (await fresh.chat("hi", user=f"u{i}")).headers["X-Redline-Version"] for i in range(12)
    ]


async def test_of_a_model_that_was_replaced_nothing_is_shown(
    fresh: Gateway, tmp_path: Path
) -> None:
    for number in range(3, 7):  # more of them than there may be live versions
        assert (await loaded(fresh, a_model(tmp_path, f"v{number}"), f"l{number}")).detail == ""
    text = (await fresh.client.get("/metrics")).text
    assert 'version="v6"' in text
    assert [f"v{n}" for n in range(2, 6) if f'version="v{n}"' in text] == []


@pytest.mark.parametrize(
    ("mark", "words"),
    [("refused", "v3: is refused"), ("late", "v3: is late; 'a' is v2 again")],
)
async def test_a_model_that_is_refused_leaves_the_resident_as_it_was(
    fresh: Gateway, tmp_path: Path, mark: str, words: str
) -> None:
    pid = (await fresh.status(A))["pid"]
    loading = await loaded(fresh, a_model(tmp_path, "v3", mark))
    assert loading.stage is LoadStage.REFUSED
    assert words in loading.detail
    await until(lambda: fresh.plane.is_ready(A))
    after = await fresh.status(A)
    assert (after["version"], after["weights_digest"]) == ("v2", "digest-of-v2")
    assert (after["pid"] == pid) is (mark == "refused"), "its engine was not even touched"
    assert (await loaded(fresh, a_model(tmp_path, "v4"), "l2")).stage is LoadStage.LOADED


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("v9", "no checkpoint folder that the data plane can see"),
        ("v1", "version v1 is another resident's"),
        ("no good name", "version"),
    ],
)
async def test_a_path_that_cannot_be_is_refused_at_once(
    fresh: Gateway, tmp_path: Path, path: str, words: str
) -> None:
    (tmp_path / "models").mkdir()
    for name in ("v1", "no good name"):
        a_model(tmp_path / "models", name)
    answer = await order(fresh, A, tmp_path / "models" / path)
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    relative = await fresh.led(
        "POST", f"/residents/{A}/load", load="l2", checkpoint="models/v3", version="v3"
    )
    assert "give the whole path" in relative.json()["error"]
    assert (await fresh.status(A))["loading"] is None


async def test_a_resident_that_serves_is_given_no_other_model(
    fresh: Gateway, tmp_path: Path
) -> None:
    model = a_model(tmp_path, "v3", "slow")
    assert (await order(fresh, B, model)).status_code == 409
    await fresh.route(5)
    answer = await order(fresh, A, model)
    assert answer.status_code == 409
    assert "5 % of the traffic" in answer.json()["error"]
    await fresh.route(0)
    assert (await order(fresh, A, model)).status_code == 200
    assert (await order(fresh, A, model)).status_code == 200, "a repeated order is no second one"
    assert (await order(fresh, A, model, "l2")).status_code == 409
    await fresh.route(5)  # while it is checked
    await until(lambda: newest(fresh).stage is LoadStage.REFUSED)
    assert "5 % of the traffic" in newest(fresh).detail
    assert (await fresh.status(A))["version"] == "v2"


async def test_a_gateway_that_starts_again_serves_what_was_loaded(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    async with running_gateway(settings) as gateway:
        await loaded(gateway, a_model(tmp_path, "v3"))
    async with running_gateway(settings) as gateway:
        assert (await gateway.status(A))["version"] == "v3"
        assert newest(gateway).stage is LoadStage.LOADED
    changed: Any = settings.residents[0].model_copy(update={"pool_mb": 25.0})
    settings = settings.model_copy(update={"residents": (changed, settings.residents[1])})
    async with running_gateway(settings) as gateway:
        assert (await gateway.status(A))["version"] == "v2", "who changed the settings meant it"


async def test_a_gateway_that_stops_in_the_middle_of_a_check_leaves_no_process(
    tmp_path: Path,
) -> None:
    async with running_gateway(settings_for(tmp_path)) as gateway:
        await order(gateway, A, a_model(tmp_path, "v3", "slow"))
        await until(lambda: newest(gateway).read == 0.5)
    assert gateway.plane.work == set()
