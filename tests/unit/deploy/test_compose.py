"""compose.yaml: valid, closed to the outside, and made of files and names that exist."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from compose_spec import PyOptions

from alerts import rules
from alerts.promql import parse_duration
from monitors.redlines import RedLines

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "compose.yaml").read_text(encoding="utf-8")
STACK: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
NAMES = list(SERVICES)

DATA_FOLDERS = {  # where each image keeps what must survive a restart
    "prometheus": "/prometheus",
    "alertmanager": "/alertmanager",
    "tempo": "/var/tempo",
    "loki": "/loki",
    "grafana": "/var/lib/grafana",
}


def mounts(name: str) -> dict[str, str]:
    """Target folder -> source of one service."""
    found: dict[str, str] = {}
    for volume in SERVICES[name].get("volumes", ()):
        source, target, *_ = volume.split(":")
        found[target] = source
    return found


def inside(name: str, path: str) -> Path | None:
    """The repository file that `path` inside a container is; None where it lies in a volume."""
    for target, source in mounts(name).items():
        if path.startswith(target + "/") and source.startswith("./"):
            return ROOT / source / path.removeprefix(target + "/")
    return None


def words(name: str) -> list[str]:
    service = SERVICES[name]
    return [*service.get("entrypoint", ()), *service.get("command", ())]


def test_it_is_a_valid_compose_file() -> None:
    stack = PyOptions(apply_merge=True).from_yaml(TEXT)
    stack.validate()
    assert set(stack.service_names()) == set(NAMES)


def test_the_whole_grafana_stack_and_both_planes_are_there() -> None:
    assert {
        "runtime", "control", "prometheus", "alertmanager", "grafana", "tempo", "loki", "alloy",
    } <= set(NAMES)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_service_waits_only_for_services_that_exist_and_can_say_they_are_ready(
    name: str,
) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        assert other in SERVICES
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other], f"{name} waits for ever"


@pytest.mark.parametrize("name", NAMES)
def test_volumes_and_networks_are_declared_and_mounted_files_exist(name: str) -> None:
    for source in mounts(name).values():
        if source.startswith("./"):
            assert (ROOT / source).is_dir(), source
        else:
            assert source in STACK["volumes"], source
    assert set(SERVICES[name]["networks"]) <= set(STACK["networks"])


def test_every_declared_volume_is_used() -> None:
    used = {source for name in NAMES for source in mounts(name).values()}
    assert set(STACK["volumes"]) <= used


@pytest.mark.parametrize("name", NAMES)
def test_ports_are_published_on_loopback_only(name: str) -> None:
    for port in SERVICES[name].get("ports", ()):
        assert port.startswith("127.0.0.1:"), port


@pytest.mark.parametrize("name", NAMES)
def test_images_are_pinned_to_an_exact_version(name: str) -> None:
    image = SERVICES[name]["image"]
    assert image == "redline:local" or re.search(r":v?\d+\.\d+\.\d+$", image), image


@pytest.mark.parametrize("name", [n for n in NAMES if n not in {"prepare", "alloy"}])
def test_a_lasting_service_has_a_health_check(name: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"][0] == "CMD", "distroless images have no shell"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (name, word.partition("=")[2] or word)
        for name in NAMES
        for word in words(name)
        if re.search(r"(^|=)/etc/\S+\.?\w*$", word) and "bin" not in word
    ],
)
def test_a_configuration_file_named_in_a_command_exists(name: str, path: str) -> None:
    found = inside(name, path)
    assert path in mounts(name) or (found is not None and found.is_file()), path


@pytest.mark.parametrize(("name", "folder"), DATA_FOLDERS.items())
def test_what_must_survive_a_restart_is_on_a_volume(name: str, folder: str) -> None:
    assert mounts(name)[folder] in STACK["volumes"]


def test_prometheus_has_the_flags_that_the_rules_rely_on() -> None:
    given = words("prometheus")
    assert set(rules.prometheus_flags(RedLines().alerts)) <= set(given)
    name = "--storage.tsdb.retention.time="
    [kept] = [word.removeprefix(name) for word in given if word.startswith(name)]
    assert parse_duration(kept) >= rules.RETENTION_S
    assert "--enable-feature=exemplar-storage" in words("prometheus")


def test_prometheus_scrapes_and_alerts_to_services_of_the_stack() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = [
        target
        for part in (*config["scrape_configs"], *config["alerting"]["alertmanagers"])
        for static in part["static_configs"]
        for target in static["targets"]
    ]
    assert {target.partition(":")[0] for target in targets} == {
        "runtime", "control", "alertmanager",
    }  # fmt: skip
    for target in targets:
        host, _, port = target.partition(":")
        assert f"127.0.0.1:{port}:{port}" in SERVICES[host]["ports"]
    for rule_file in config["rule_files"]:
        assert (ROOT / "deploy/prometheus" / rule_file).is_file()


def test_alertmanager_reads_its_token_where_prepare_leaves_it() -> None:
    config = yaml.safe_load((ROOT / "deploy/alertmanager/alertmanager.yml").read_text())
    [hook] = [h for r in config["receivers"] for h in r.get("webhook_configs", ()) if
              "http_config" in h]  # fmt: skip
    token = Path(hook["http_config"]["authorization"]["credentials_file"])
    assert mounts("alertmanager")[str(token.parent)] == "token"
    assert mounts("prepare")[words("prepare")[-1]] == "token"
    assert f"/{token.name}" in (ROOT / "deploy/planes/prepare").read_text()
    assert urlsplit(hook["url"]).hostname == "control"
