"""The model card of the shipped pair, written from what was measured."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from monitors.contract import MediaRung
from monitors.rungs import RUNGS
from runtime.quality.bootstrap import Estimate
from runtime.quality.score import ALL, Report, compare
from runtime.quality.tasks import WORDINGS
from tools.train_tiny import CONTROL, FIRST, SECOND, Recipe

MEDIA = {
    MediaRung.FULL: "full",
    MediaRung.P360_8K: "360p and 8 kHz",
    MediaRung.P160_8K: "160x160 and 8 kHz",
}
COSTLY_RUNGS = (2, 3, 4)  # those that change media or kv
POLICIES = {
    "native": "no reuse",
    "reuse": "the article's thresholds (S1.3)",
    "lowest50": "lowest-entropy 50 %",
    "random50": "random 50 %",
}

_HEAD = Path(__file__).with_name("card.md")


def fewer(count: int) -> int:
    """Samples of each task where many evaluations stand side by side, or speech takes its time."""
    return max(1, count * 2 // 5)


def more(count: int) -> int:
    """Samples of each task where a difference of a fraction of a point is looked for."""
    return count * 2


def card(reports: Mapping[str, Report], count: int) -> str:
    """Markdown. `reports` by the names that `tools.measure_tiny` gives them."""
    recipe, some, many = Recipe(), fewer(count), more(count)
    head = _HEAD.read_text(encoding="utf-8").format(
        seed=recipe.seed, steps=recipe.steps_of(FIRST), more=recipe.steps_of(SECOND)
    )
    sections = [head]
    for version in (FIRST, SECOND):
        whole = reports[f"{version}-checkpoint-8s-n{count}-every"]
        longer = reports[f"{version}-checkpoint-16s-n{count}"]
        spoken = reports[f"{version}-checkpoint-8s-n{some}-spoken"]
        native, reused = (reports[f"{version}-{kv}-8s-n{many}"] for kv in ("native", "reuse"))
        sections += [
            f"## {version} (`{whole.weights_digest}`)",
            _tasks(whole, longer, spoken),
            _cost(native, reused),
        ]
    sections += ["## K/V reuse, and int8, with and without training for it", _reuse_words()]
    for version, title in ((FIRST, f"{FIRST}, trained with K/V sharing"), (CONTROL, "control")):
        rows = {
            name: reports[f"{version}-{name}-8s-n{some}"]
            for reuse in POLICIES
            for name in (reuse, f"{reuse}+int8")
        }
        sections += [f"### {title}", _policies(rows)]
    rungs = {
        0: reports[f"{FIRST}-checkpoint-8s-n{some}-spoken"],
        **{n: reports[f"{FIRST}-checkpoint-8s-n{some}-rung{n}"] for n in COSTLY_RUNGS},
    }
    sections += [f"## What a rung of the ladder costs ({FIRST}, n = {some})", _rungs(rungs)]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def _tasks(whole: Report, longer: Report, spoken: Report) -> str:
    long_of = {task.task: task for task in longer.tasks}
    spoken_of = {task.task: task for task in spoken.tasks}
    rows = []
    for task in whole.tasks:
        long, said = long_of.get(task.task), spoken_of.get(task.task)
        rows.append(
            (
                f"{task.task}: “{WORDINGS[task.task][0].format('…')}”",
                _percent(task.exact),
                f"{task.nats.value:.4f}",
                _percent(long.exact) if long else "",
                _percent(said.spoken) if said and said.spoken else "",
            )
        )
    heads = (
        f"task (n = {whole.count})",
        "exact, 8 s",
        "NLL, nats a token",
        "exact, 16 s",
        f"spoken, 8 s (n = {spoken.count})",
    )
    return _table(heads, rows)


def _cost(native: Report, reused: Report) -> str:
    found = compare(native, reused)
    tasks = ", ".join(f"{one.task} {_points(one.exact)}" for one in found)
    return (
        f"What reuse by the article's thresholds costs, in points of exact match on the same "
        f"{native.count} clips of 8 s a task: {tasks}."
    )


def _reuse_words() -> str:
    return (
        "Exact match over digits, colours and pairs of 8 s. Difference: against no reuse without "
        "int8, on the same samples, in points. Aliased: share of the entries that may point at "
        "the layer below (layer 1 of 4; not the first block, not the newest 64 tokens)."
    )


def _policies(rows: Mapping[str, Report]) -> str:
    base, lines = rows["native"], []
    for name, report in rows.items():
        reuse, _, form = name.partition("+")
        all_of = next(d for d in compare(base, report) if d.task == ALL)
        right = sum(t.exact.value * t.n for t in report.tasks) / sum(t.n for t in report.tasks)
        nats = sum(t.nats.value for t in report.tasks) / len(report.tasks)
        use = report.kv_use
        lines.append(
            (
                POLICIES[reuse] + (", int8" if form else ""),
                f"{right:.1%}",
                "" if name == "native" else _points(all_of.exact),
                f"{nats:.4f}",
                "" if use.aliased_share is None else f"{use.aliased_share:.0%}",
                f"{use.native_bytes_per_token / use.bytes_per_token:.2f}x",
            )
        )
    n = sum(task.n for task in base.tasks)
    heads = (f"policy (n = {n})", "exact", "difference", "NLL", "aliased", "KV bytes saved")
    return _table(heads, lines)


def _rungs(rungs: Mapping[int, Report]) -> str:
    rows = [
        (
            f"{number}: media {MEDIA[RUNGS[number].media]}, kv {RUNGS[number].kv.name.lower()}",
            *(_percent(task.exact) for task in report.tasks),
        )
        for number, report in rungs.items()
    ]
    return _table(("rung", *(str(task.task) for task in rungs[0].tasks)), rows)


def _percent(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} [{estimate.low:.1%}, {estimate.high:.1%}]"


def _points(estimate: Estimate) -> str:
    value, low, high = (100 * x for x in (estimate.value, estimate.low, estimate.high))
    return f"{value:+.1f} [{low:+.1f}, {high:+.1f}]"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
