"""What compose.yaml mounts: settings of both planes, Grafana's provisioning, Tempo, Loki, Alloy."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from alerts import policy, rules
from dashboards import build, page
from monitors.logs import FIELDS
from redline import up
from redline.control.settings import ControlSettings
from runtime.model.shipped import SHIPPED
from runtime.settings import RuntimeSettings
from tests.unit.deploy.test_compose import SERVICES, inside, mounts

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def load(path: str) -> Any:
    return yaml.safe_load((DEPLOY / path).read_text(encoding="utf-8"))


# ---------------------------------------------------------------- the planes
def run_prepare(tmp_path: Path) -> tuple[Path, str]:
    """Run `prepare` as the container does, from its state folder; (state folder, token)."""
    state, token = tmp_path / "state", tmp_path / "token"
    for folder in (state, token):
        folder.mkdir(exist_ok=True)
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
    subprocess.run(
        ["sh", DEPLOY / "planes/prepare", DEPLOY / "planes", state, token],
        cwd=state, env={"PATH": path}, check=True, timeout=30,
    )  # fmt: skip
    return state, (token / "control_token").read_text().strip()


def test_prepare_gives_both_planes_the_same_token_and_settings_that_they_accept(
    tmp_path: Path,
) -> None:
    state, token = run_prepare(tmp_path)
    runtime = RuntimeSettings.model_validate_json((state / "runtime.json").read_bytes())
    control = ControlSettings.model_validate_json((state / "control.json").read_bytes())
    assert len(token) >= 32
    assert runtime.control_token == control.token == token
    assert stat.S_IMODE((state / "runtime.json").stat().st_mode) == 0o600


def test_both_planes_read_the_same_policy_and_what_ships_changes_nothing(tmp_path: Path) -> None:
    state, _ = run_prepare(tmp_path)
    assert policy.load(state / "redline.yaml") == policy.load(None)
    for plane in ("runtime", "control"):
        assert "--lines redline.yaml" in " ".join(SERVICES[plane]["command"])


def test_prepare_a_second_time_changes_nothing(tmp_path: Path) -> None:
    state, token = run_prepare(tmp_path)
    before = {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}
    assert run_prepare(tmp_path) == (state, token)
    assert {path: path.read_bytes() for path in state.rglob("*") if path.is_file()} == before


def test_prepare_points_the_runtime_at_the_checkpoints_that_ship(tmp_path: Path) -> None:
    state, _ = run_prepare(tmp_path)
    runtime = RuntimeSettings.model_validate_json((state / "runtime.json").read_bytes())
    served = {spec.name: (spec.version, spec.checkpoint) for spec in runtime.residents}
    assert served == {name: (v, SHIPPED[v]) for name, v in up.EMBEDDED_VERSIONS.items()}
    assert all((checkpoint / "config.json").is_file() for _, checkpoint in served.values())


def test_the_planes_find_each_other_and_tempo() -> None:
    runtime = json.loads((DEPLOY / "planes/runtime.json").read_text())
    control = json.loads((DEPLOY / "planes/control.json").read_text())
    assert control["runtime_url"] == f"http://runtime:{runtime['port']}"
    assert f"127.0.0.1:{control['port']}:{control['port']}" in SERVICES["control"]["ports"]
    otlp = load("tempo/tempo.yaml")["distributor"]["receivers"]["otlp"]["protocols"]["http"]
    port = otlp["endpoint"].rpartition(":")[2]
    assert runtime["trace"]["endpoint"] == f"http://tempo:{port}"


# ---------------------------------------------------------------- Grafana
SOURCES: dict[str, dict[str, Any]] = {
    source["uid"]: source
    for source in load("grafana/provisioning/datasources/redline.yaml")["datasources"]
}


@pytest.mark.parametrize("uid", SOURCES)
def test_a_data_source_is_a_service_of_the_stack(uid: str) -> None:
    url = urlsplit(SOURCES[uid]["url"])
    assert url.hostname in SERVICES
    assert SOURCES[uid]["type"] == uid


def test_each_kind_of_source_that_a_dashboard_asks_for_is_provisioned() -> None:
    wanted = {
        variable["query"]
        for path in (ROOT / "dashboards/json").glob("*.json")
        for variable in json.loads(path.read_text())["templating"]["list"]
        if variable["type"] == "datasource"
    }
    assert wanted == {"prometheus", "loki"} <= {source["type"] for source in SOURCES.values()}


def test_exemplars_traces_and_logs_lead_to_each_other() -> None:
    exemplar = SOURCES["prometheus"]["jsonData"]["exemplarTraceIdDestinations"][0]
    assert (exemplar["name"], exemplar["datasourceUid"]) == ("trace_id", "tempo")
    derived = SOURCES["loki"]["jsonData"]["derivedFields"][0]
    assert derived["datasourceUid"] == "tempo"
    assert re.search(derived["matcherRegex"], f'{{"trace_id":"{"0f" * 16}"}}')
    to_logs = SOURCES["tempo"]["jsonData"]["tracesToLogsV2"]
    assert to_logs["datasourceUid"] == "loki"
    assert "trace_id" in FIELDS
    assert "trace_id" in to_logs["query"]


def test_grafana_counts_on_the_scrape_interval_that_prometheus_has() -> None:
    assert SOURCES["prometheus"]["jsonData"]["timeInterval"] == f"{rules.SCRAPE_S:g}s"


def test_dashboards_are_provisioned_from_the_folder_they_are_mounted_on() -> None:
    [provider] = load("grafana/provisioning/dashboards/redline.yaml")["providers"]
    assert mounts("grafana")[provider["options"]["path"]] == "./dashboards/json"
    assert provider["allowUiUpdates"] is False
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    found = inside("grafana", home)
    assert found is not None
    assert found.is_file()
    assert found.stem in build.BUILDERS


def test_the_links_of_the_dashboards_lead_to_what_the_stack_serves() -> None:
    status, runbooks = (urlsplit(url) for url in page.PLACES.values())
    assert f"{status.hostname}:{status.port}:8090" in SERVICES["control"]["ports"]
    index = inside("grafana", f"/usr/share/grafana{runbooks.path}")
    assert index is not None
    assert index.is_file()


# ---------------------------------------------------------------- Tempo, Loki, Alloy
def test_tempo_has_none_of_the_keys_that_version_3_dropped() -> None:
    dropped = {"ingester", "ingester_client", "compactor", "metrics_generator_client"}
    config = load("tempo/tempo.yaml")
    assert dropped.isdisjoint(config)
    assert f":{config['server']['http_listen_port']}" in SOURCES["tempo"]["url"]


@pytest.mark.parametrize(("name", "folder"), [("tempo", "/var/tempo"), ("loki", "/loki")])
def test_everything_stored_lies_on_the_volume(name: str, folder: str) -> None:
    text = (DEPLOY / name / f"{name}.yaml").read_text()
    paths = re.findall(r": (/\S+)$", text, flags=re.MULTILINE)
    assert paths
    assert all(path == folder or path.startswith(folder + "/") for path in paths)


def test_loki_deletes_old_logs() -> None:
    config = load("loki/loki.yaml")
    assert config["compactor"]["retention_enabled"] is True
    assert config["limits_config"]["retention_period"].endswith("h")
    assert f":{config['server']['http_listen_port']}" in SOURCES["loki"]["url"]


def alloy() -> str:
    text = (DEPLOY / "alloy/config.alloy").read_text()
    return "\n".join(line for line in text.splitlines() if not line.strip().startswith("//"))


def test_alloy_brackets_and_quotes_close() -> None:
    bare, open_ = re.sub(r'"[^"\n]*"', "", alloy()), []
    assert '"' not in bare
    for character in bare:
        if character in "([{":
            open_.append(character)
        elif character in ")]}":
            assert "".join([*open_[-1:], character]) in {"()", "[]", "{}"}
            open_.pop()
    assert open_ == []


def test_alloy_components_refer_to_components_that_exist() -> None:
    made = {
        f"{kind}.{label}" for kind, label in re.findall(r'^([a-z_.]+) "(\w+)" \{', alloy(), re.M)
    }
    used = re.findall(r"((?:local|loki)\.\w+\.\w+)\.(?:targets|receiver)", alloy())
    used += re.findall(r"(loki\.source\.\w+\.\w+)\.", alloy())
    assert used
    assert set(used) <= made


def test_alloy_tails_the_files_that_the_planes_write_and_sends_them_to_loki() -> None:
    tailed = set(re.findall(r'"__path__" = "([^"]+)"', alloy()))
    written = {
        match[1]
        for name in ("runtime", "control")
        for word in SERVICES[name]["command"]
        for match in re.finditer(r"tee -a (\S+)\)", word)
    }
    engines = json.loads((DEPLOY / "planes/runtime.json").read_text())["log_dir"]
    assert tailed == written | {f"{engines}/*.log"}
    assert engines.startswith("/var/log/redline/")
    assert 'url = "http://loki:3100/loki/api/v1/push"' in alloy()
    for name in ("runtime", "control", "alloy"):
        assert mounts(name)["/var/log/redline"] == "logs"


def test_dashboards_ask_loki_for_the_labels_that_alloy_gives() -> None:
    given = set(re.findall(r'"(job|plane)" = "\w+"', alloy())) | {"level"}
    for path in (ROOT / "dashboards/json").glob("*.json"):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                if target["datasource"]["type"] == "loki":
                    assert set(re.findall(r"(\w+)=", target["expr"])) <= given


# ---------------------------------------------------------------- the image
def test_the_image_is_made_of_every_room_and_of_files_that_exist() -> None:
    copied = {
        source
        for line in (DEPLOY / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ")
        for source in line.split()[1:-1]
    }
    assert {"alerts", "dashboards", "monitors", "redline", "rollout", "runtime"} <= copied
    assert all((ROOT / source).exists() for source in copied)
    sent = (DEPLOY / "Dockerfile.dockerignore").read_text()
    assert all(f"!{source}\n" in sent for source in copied)
