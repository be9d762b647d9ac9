"""The documents: commands that exist, links that lead somewhere, figures that have one home."""

import re
import shlex
import tomllib
from pathlib import Path

import msgspec
import pytest
import typer.main

from monitors import catalog
from monitors.contract import DrainOrder, FlushOrder, LadderOrder, ProbeOrder, Route
from monitors.redlines import LadderLines
from redline.cli import app
from runtime.refusals import of_engine
from runtime.residents.port import Failed

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
RUNBOOKS = sorted((ROOT / "docs/runbooks").glob("redline-*.md"))
COMMANDS = typer.main.get_command(app)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code(text: str) -> list[str]:
    """Every line of every code block, and every piece of inline code."""
    blocks = re.findall(r"^ *```[a-z]*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()] + re.findall(
        r"`([^`]+)`", rest
    )


def redline_calls(text: str) -> list[list[str]]:
    """The words after `redline` of each call of the command line."""
    found = []
    for line in code(text):
        match = re.match(r"(?:\S*; )*(?:\S*/)?redline ([a-z-]+.*)", line.strip())
        if match:
            found.append(shlex.split(match[1], comments=True))
    return found


def complain(words: list[str]) -> str | None:
    """What is wrong with a call: a command or an option that there is not."""
    command = COMMANDS
    for at, word in enumerate(words):
        if not hasattr(command, "commands"):
            known = {opt for param in command.params for opt in param.opts + param.secondary_opts}
            wrong = [w for w in words[at:] if w.startswith("-") and w not in known | {"--help"}]
            return f"no option {wrong}" if wrong else None
        if word not in command.commands:
            return f"no command {word!r}"
        command = command.commands[word]
    return None


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_call_of_the_command_line_is_one_that_exists(path: Path) -> None:
    wrong = [(words, why) for words in redline_calls(path.read_text()) if (why := complain(words))]
    assert wrong == []


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (["rollout", "undo"], "no command"),
        (["inject", "slow", "--loud"], "no option"),
        (["rollout", "status"], None),
    ],
)
def test_a_call_that_does_not_exist_is_found(call: list[str], why: str | None) -> None:
    found = complain(call)
    assert found is None if why is None else why in str(found)


def test_the_pages_do_call_the_command_line() -> None:
    assert sum(len(redline_calls(path.read_text())) for path in PAGES) > 30


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_links_lead_to_files_that_are_there(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", path.read_text())
    gone = [t for t in targets if "://" not in t and not (path.parent / t).exists()]
    assert gone == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_metrics_are_named_as_in_the_catalog(path: Path) -> None:
    known = {m.name for m in catalog.ALL}
    known |= {f"{m.name}_{end}" for m in catalog.ALL for end in ("bucket", "count", "sum", "info")}
    named = set(re.findall(r"(?<![:\w])redline_[a-z_]+[a-z](?![:\w(/.])", path.read_text()))
    assert named - known == set()


@pytest.mark.parametrize("path", RUNBOOKS, ids=name_of)
def test_a_runbook_page_has_its_parts_in_the_order_of_their_use(path: Path) -> None:
    heads = re.findall(r"^## (.*)", path.read_text(), re.MULTILINE)
    assert heads == ["Redline has already", "Check", "By hand", "Over when"]


def test_the_page_on_shedding_says_what_a_client_is_answered() -> None:
    answer = of_engine(Failed("one", "shed", "dropped"), begun=False)
    assert answer.retry_after_s == 1
    said = f"`{answer.status}` with the code `{answer.code}` and a `Retry-After` of a second"
    assert said in (ROOT / "docs/runbooks/redline-first-packet-shed.md").read_text()


def test_the_readme_says_how_long_a_rung_takes_to_come_back() -> None:
    lines = LadderLines()
    assert (lines.dwell_s, lines.relapse_s) == (60.0, 600.0)
    assert lines.max_dwell_s == lines.memory_s == 1_800.0
    assert (
        "A dwell is a minute; a rung that is needed again within ten minutes doubles it, up to"
        " half an hour, and the half hour of load with it"
    ) in (ROOT / "README.md").read_text()


def test_the_runbooks_read_the_token_of_the_compose_stack_where_it_is_mounted() -> None:
    alertmanager = (ROOT / "deploy/alertmanager/alertmanager.yml").read_text()
    [token] = re.findall(r"credentials_file: (\S+)", alertmanager)
    assert f"exec -T alertmanager cat {token})" in (ROOT / "docs/runbooks/README.md").read_text()


def test_every_dependency_has_a_line_that_says_why() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = {re.split(r"[<>=\[ ]", need)[0] for need in wanted}
    said = (ROOT / "docs/adr/dependencies.md").read_text()
    assert {name for name in names if not re.search(rf"[ (]{name}[,) ]", said)} == set()


ORDERS = {
    "levels": LadderOrder,
    "route": Route,
    "drain": DrainOrder,
    "flush": FlushOrder,
    "probe": ProbeOrder,
}


def orders_by_hand() -> list[tuple[str, str]]:
    """(what is ordered, its body) of each order that a runbook has on-call send, as a shell would
    fill it in."""
    found: list[tuple[str, str]] = []
    for page in sorted((ROOT / "docs/runbooks").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for path, body in re.findall(r"order (?:PUT|POST) (\S+) '(\{.*?\})'$", text, re.M | re.S):
            kind = next(part for part in reversed(path.split("/")) if part in ORDERS)
            found.append((kind, re.sub(r"'\$(?:[A-Z]+|\([^)]*\))'", "7", body)))
    return found


def test_every_kind_of_order_is_in_a_runbook() -> None:
    assert {kind for kind, _ in orders_by_hand()} == set(ORDERS)


@pytest.mark.parametrize(("kind", "body"), orders_by_hand())
def test_an_order_that_a_runbook_has_sent_by_hand_is_one(kind: str, body: str) -> None:
    msgspec.json.decode(body, type=ORDERS[kind])
