"""What `redline up` decides before it starts anything."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from alerts.policy import make
from monitors.redlines import FaultLines, RedLines
from redline import up
from redline.control.settings import ControlSettings
from redline.settings import Ports, SettingsError, Stack, control_token, find_stack, token_path
from runtime.model.shipped import SHIPPED
from runtime.settings import RuntimeSettings, TraceSettings
from tests.support.ports import free_ports


def plan(state: Path) -> up.Plan:
    runtime, control, prometheus, alertmanager = free_ports(4)
    ports = Ports(
        runtime=runtime, control=control, prometheus=prometheus, alertmanager=alertmanager
    )
    return up.Plan(state_dir=state, ports=ports)


def test_a_taken_port_is_named_with_the_flag_that_moves_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        others = free_ports(3)
        ports = Ports(runtime=others[0], control=port, prometheus=others[1], alertmanager=others[2])
        with pytest.raises(up.UpError, match=f"port {port} is taken.*--control-port"):
            up.require_free(ports, prometheus=True)


def test_free_ports_pass() -> None:
    runtime, control, prometheus, alertmanager = free_ports(4)
    up.require_free(
        Ports(runtime=runtime, control=control, prometheus=prometheus, alertmanager=alertmanager),
        prometheus=True,
    )


def test_the_embedded_profile_moves_two_figures_and_no_other() -> None:
    article, embedded = RedLines(), up.embedded_lines(24.0)
    assert embedded.cache.gpu_mem_gb == pytest.approx(0.0144)
    assert embedded.latency.min_count == 5
    back = embedded.model_copy(
        update={
            "cache": embedded.cache.model_copy(update={"gpu_mem_gb": article.cache.gpu_mem_gb}),
            "latency": embedded.latency.model_copy(update={"min_count": article.latency.min_count}),
        }
    )
    assert back == article


def test_two_stacks_cannot_share_a_state_folder(tmp_path: Path) -> None:
    with (
        up.only_stack_in(tmp_path),
        pytest.raises(up.UpError, match="another stack runs"),
        up.only_stack_in(tmp_path),
    ):
        pass


def test_every_file_a_child_reads_is_written_and_private(tmp_path: Path) -> None:
    asked = plan(tmp_path)
    residents = tuple(
        up.ResidentSpec(name=name, version=version, checkpoint=tmp_path)
        for name, version in up.EMBEDDED_VERSIONS.items()
    )
    stack, children = up.plan_children(asked, residents, prometheus=True)
    names = [child.name for child in children]
    assert names == ["data plane", "control plane", "Alertmanager", "Prometheus"]
    for child in children:
        files = [word.split("=", 1)[-1] for word in child.command if ".json" in word]
        assert all(Path(name).exists() for name in files)
    assert (tmp_path / "runtime.json").stat().st_mode & 0o077 == 0
    assert token_path(tmp_path).stat().st_mode & 0o077 == 0
    assert f"127.0.0.1:{asked.ports.runtime}" in (tmp_path / "prometheus.yml").read_text()
    assert str(asked.ports.control) in (tmp_path / "alertmanager.yml").read_text()
    assert stack.prometheus_url == f"http://127.0.0.1:{asked.ports.prometheus}"


def test_the_data_plane_is_told_where_traces_go_and_what_is_in_them(tmp_path: Path) -> None:
    trace = TraceSettings(endpoint="http://tempo:4318", sample_ratio=0.1, capture_content=True)
    asked = replace(plan(tmp_path), trace=trace)
    up.plan_children(asked, up.find_residents(asked), prometheus=False)
    written = RuntimeSettings.model_validate_json((tmp_path / "runtime.json").read_bytes())
    assert written.trace == trace
    up.plan_children(
        replace(asked, trace=TraceSettings()), up.find_residents(asked), prometheus=False
    )
    written = RuntimeSettings.model_validate_json((tmp_path / "runtime.json").read_bytes())
    assert (written.trace.endpoint, written.trace.capture_content) == (None, False)


def test_a_model_folder_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    asked = replace(plan(tmp_path), models={up.CANARY: tmp_path / "empty"})
    with pytest.raises(up.UpError, match=r"--model-a: .*/empty holds no checkpoint"):
        up.find_residents(asked)


def test_without_model_folders_the_shipped_checkpoints_are_served(tmp_path: Path) -> None:
    found = up.find_residents(plan(tmp_path))
    assert {spec.name: (spec.version, spec.checkpoint) for spec in found} == {
        up.STABLE: ("tiny-omni-1", SHIPPED["tiny-omni-1"]),
        up.CANARY: ("tiny-omni-2", SHIPPED["tiny-omni-2"]),
    }


@pytest.mark.parametrize("given", [{up.STABLE}, {up.CANARY}, {up.STABLE, up.CANARY}])
def test_model_folders_are_the_residents_versions(tmp_path: Path, given: set[str]) -> None:
    models = {}
    for name in given:
        models[name] = tmp_path / f"omni-{name}"
        models[name].mkdir()
        (models[name] / "config.json").write_text("{}")
    found = up.find_residents(replace(plan(tmp_path), models=models))
    shipped = {n: SHIPPED[version] for n, version in up.EMBEDDED_VERSIONS.items()}
    assert {spec.name: spec.checkpoint for spec in found} == shipped | models
    assert all(spec.version == spec.checkpoint.name for spec in found)


@pytest.mark.parametrize(("prometheus", "says"), [(True, "http://p"), (False, "not evaluated yet")])
def test_the_welcome_says_what_listens_and_what_does_not(prometheus: bool, says: str) -> None:
    stack = Stack(
        runtime_url="http://r", control_url="http://c", prometheus_url="http://p",
        alertmanager_url="http://a", token="secret",
    )  # fmt: skip
    words = up.welcome(stack, prometheus)
    assert says in words
    assert "secret" not in words
    assert words.endswith("Ctrl-C stops everything.")


def test_the_token_is_made_once(tmp_path: Path) -> None:
    assert control_token(tmp_path) == control_token(tmp_path)
    assert len(control_token(tmp_path)) > 30


def test_a_stack_is_found_where_it_was_recorded(tmp_path: Path) -> None:
    stack = Stack(runtime_url="http://r", control_url="http://c", token="t")
    stack.save(tmp_path)
    assert find_stack(tmp_path) == stack
    assert (tmp_path / "stack.json").stat().st_mode & 0o077 == 0


def test_a_record_that_was_half_written_is_a_sentence(tmp_path: Path) -> None:
    """As after a crash or on a full disk, by a release that wrote it in place."""
    (tmp_path / "stack.json").write_text('{"runtime_url": "ht')
    with pytest.raises(SettingsError, match=r"cannot be read.*start it again"):
        find_stack(tmp_path)


def test_a_write_that_fails_leaves_the_old_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = Stack(runtime_url="http://r", control_url="http://c", token="t")
    stack.save(tmp_path)
    real = Path.write_text

    def full_disk(path: Path, text: str, **more: str) -> int:
        real(path, text[:9])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(OSError, match="No space"):
        stack.model_copy(update={"token": "other"}).save(tmp_path)
    assert find_stack(tmp_path) == stack


def test_without_a_stack_the_error_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match="redline up"):
        find_stack(tmp_path)
    monkeypatch.setenv("REDLINE_RUNTIME_URL", "http://r")
    monkeypatch.setenv("REDLINE_CONTROL_URL", "http://c")
    monkeypatch.setenv("REDLINE_TOKEN", "t")
    assert find_stack(tmp_path).runtime_url == "http://r"


def test_a_policy_reaches_the_planes_and_what_prometheus_and_alertmanager_read(
    tmp_path: Path,
) -> None:
    rules = {"RedlineCacheBelowFloor": {"for": "45s"}, "RedlineNoTraffic": {"enabled": False}}
    window = {"days": ["sunday"], "from": "02:00", "to": "04:00", "reason": "backups"}
    policy = make(RedLines(faults=FaultLines(rate=0.01)), rules, [window])
    residents = tuple(
        up.ResidentSpec(name=name, version=version, checkpoint=tmp_path)
        for name, version in up.EMBEDDED_VERSIONS.items()
    )
    up.plan_children(replace(plan(tmp_path), policy=policy), residents, prometheus=True)
    control = ControlSettings.model_validate_json((tmp_path / "control.json").read_bytes())
    assert control.policy.rules == policy.rules
    assert control.policy.machinery == policy.machinery
    runtime = RuntimeSettings.model_validate_json((tmp_path / "runtime.json").read_bytes())
    assert runtime.lines == control.lines == policy.lines
    assert "for: 45s" in (tmp_path / "rules.yml").read_text()
    assert "RedlineNoTraffic" not in (tmp_path / "rules.yml").read_text()
    assert "maintenance 1: " in (tmp_path / "alertmanager.yml").read_text()


def test_a_control_plane_with_a_rule_that_cannot_be_does_not_start() -> None:
    with pytest.raises(ValidationError, match="a rollback cannot be switched off"):
        ControlSettings(
            state_dir=Path(),
            runtime_url="http://127.0.0.1:1",
            token="t",
            rules={"RedlineFaultRate": {"enabled": False}},
        )
