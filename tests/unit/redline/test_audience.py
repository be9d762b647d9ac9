"""`rollout start --allow/--deny/--mirror`: keys are digests before anything leaves this process."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from monitors.client_key import CanaryClients, digest_of
from redline.audience import AudienceError, audience_of
from redline.cli import app
from redline.control.api import ProposalAnswer, StartAnswer
from rollout.audience import ANYBODY, Audience
from tests.support.http_server import Answer, recording_server
from tests.unit.redline.samples import PLAN, rollout

KEY = "sk-in-clear-0123"


def test_keys_come_one_by_one_or_from_a_file_each_once(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("k1\n\n  k2 \nk1\n")
    found = audience_of([f"@{file}", "k3"], ["k4"], 10)
    digests = tuple(map(digest_of, ("k1", "k2", "k3")))
    assert found == Audience(
        clients=CanaryClients(allow=digests, deny=(digest_of("k4"),)), mirror_weight=10
    )
    assert audience_of([], [], 0) == ANYBODY


def test_what_cannot_be_a_list_is_a_sentence_without_its_keys(tmp_path: Path) -> None:
    empty, many = tmp_path / "empty", tmp_path / "many"
    empty.write_text("\n")
    many.write_text("\n".join(f"{KEY}{i}" for i in range(501)))
    with pytest.raises(AudienceError, match="nobody would be allowed"):
        audience_of([f"@{empty}"], [], 0)
    with pytest.raises(AudienceError, match="at most 500 keys") as refused:
        audience_of([], [f"@{many}"], 0)
    assert KEY not in str(refused.value)
    with pytest.raises(AudienceError, match=r"--deny @.*nowhere: cannot be read"):
        audience_of([], [f"@{tmp_path}/nowhere"], 0)


@pytest.mark.parametrize("words", [["@{empty}"], [""], [" ", "@{empty}"], ["@/dev/null"]])
def test_a_list_without_a_key_is_refused_on_either_side(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "empty").write_bytes(b"\xef\xbb\xbf\n \n")
    given = [word.format(empty=tmp_path / "empty") for word in words]
    with pytest.raises(AudienceError, match=r"--allow: .* nobody would be allowed"):
        audience_of(given, [], 0)
    with pytest.raises(AudienceError, match=r"--deny: .* nobody would be denied"):
        audience_of([], given, 0)


def test_a_file_of_another_system_has_the_same_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"\xef\xbb\xbfk1\r\nk2\r\n")
    found = audience_of([], [f"@{file}"], 0)
    assert found.clients.deny == tuple(map(digest_of, ("k1", "k2")))


def test_the_command_sends_digests_and_says_what_it_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audience = Audience(clients=CanaryClients(allow=(digest_of(KEY),)), mirror_weight=25)
    plan = msgspec.structs.replace(PLAN, audience=audience)
    answer = StartAnswer(plan=plan, detectable=None, status=rollout())
    with recording_server() as server:
        told = ProposalAnswer(plan=plan, detectable=None)
        server.answers["/api/rollout/propose"] = Answer(msgspec.json.encode(told))
        server.answers["/api/rollout/start"] = Answer(msgspec.json.encode(answer))
        for part in ("RUNTIME", "CONTROL"):
            monkeypatch.setenv(f"REDLINE_{part}_URL", server.url)
        monkeypatch.setenv("REDLINE_TOKEN", "t")
        words = ["rollout", "start", "--allow", KEY, "--mirror", "25", "--yes"]
        done = CliRunner().invoke(app, words)
        asked, seen = server.seen
    assert done.exit_code == 0, done.output
    assert KEY.encode() not in asked.body + seen.body
    assert digest_of(KEY).encode() in seen.body
    said = " ".join(done.output.split())
    assert "its audience: only 1 allowed client(s), copies of 25 % of B's sessions" in said
    assert "how much the allowed clients ask is not known, nor what a bake can detect" in said
    assert digest_of(KEY) not in said


def test_a_file_that_is_not_there_ends_the_command_with_2() -> None:
    done = CliRunner().invoke(app, ["rollout", "start", "--allow", "@nowhere"])
    assert done.exit_code == 2
    assert "cannot be read" in done.output
