"""Train the tiny checkpoints from nothing: `python -m tools.train_tiny OUT`.

Two processes, one per core. One trains the encoders, fills the bank of encoded seconds, trains
Thinker and Talker on it, and goes on for the second version. The other trains Code2Wav, then, on
the same encoders and bank, a control without K/V sharing. Then each gives one version's Talker its
last course. A run that was stopped goes on where it
was when it is started again with the same folder.
"""

import multiprocessing as mp
import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import torch
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from runtime.model import checkpoint, tiny
from runtime.model.checkpoint import Checkpoint
from tools.tiny import start, vocoder
from tools.tiny.bank import Bank, fill
from tools.tiny.dialogue_training import DialogueTraining
from tools.tiny.export import export
from tools.tiny.long_speech import LongSpeech
from tools.tiny.loop import SAVE_EVERY, Loop, Tell
from tools.tiny.senses import SIZES, Senses

SKELETON, BANK, RECIPE = "start", "bank.pt", "recipe.json"
FIRST, SECOND, CONTROL = "tiny-omni-1", "tiny-omni-2", "control"
RATE = 2e-3
LONG_SPEECH_RATE = 7e-4


@dataclass(frozen=True)
class Course:
    """One stretch of dialogues. `stream`: of random numbers; `start`: in the curriculum."""

    name: str
    stream: int
    steps: int
    rate: float
    start: float = 1.0
    shortest: int = 2  # seconds of a clip, where the curriculum is at its end
    speaks: bool = True


@dataclass(frozen=True)
class Recipe:
    """Steps of each stage; all of it takes about an hour on 2 cores."""

    seed: int = 1
    senses: int = 1000
    vocoder: int = 1500
    first: tuple[Course, ...] = (
        Course("dialogues", 3, 4000, RATE, start=0.0),
        Course("settling", 4, 500, 5e-4),
        Course("long-clips", 6, 1600, 1e-3, shortest=8, speaks=False),
        Course("further", 7, 250, 3e-4, shortest=4),
    )
    long_speech: int = 450  # of each version's Talker alone
    second: tuple[Course, ...] = (Course("further-still", 8, 250, 3e-4, shortest=4),)
    shrink: int = 1  # what the steps were divided by, and the bank is

    @property
    def control(self) -> Course:
        """The same curriculum; long clips are not needed to compare what reuse costs."""
        return replace(self.first[0], name=CONTROL, speaks=False)

    def steps_of(self, version: str) -> int:
        """Steps of dialogues behind a version."""
        if version == CONTROL:
            return self.control.steps
        courses = self.first + (self.second if version == SECOND else ())
        return sum(course.steps for course in courses)

    def shrunk(self, by: int) -> "Recipe":
        """A trial: it learns nothing and takes every path."""

        def less(courses: tuple[Course, ...]) -> tuple[Course, ...]:
            return tuple(replace(c, steps=max(1, c.steps // by)) for c in courses)

        return replace(
            self,
            senses=max(1, self.senses // by),
            vocoder=max(1, self.vocoder // by),
            long_speech=max(1, self.long_speech // by),
            first=less(self.first),
            second=less(self.second),
            shrink=by,
        )


class Stages:
    """The stages of one process, each resumable, all on one model."""

    def __init__(self, folder: Path, recipe: Recipe, tell: Tell) -> None:
        torch.set_num_threads(1)  # two threads wait for each other on small matrices
        torch.set_flush_denormal(True)
        self._folder, self._recipe, self._tell = folder, recipe, tell
        self._checkpoint: Checkpoint = checkpoint.load(folder / SKELETON)
        self.model: Any = self._checkpoint.model
        start.draw(self.model, recipe.seed)

    def senses(self) -> None:
        self._learn("thinker")
        torch.manual_seed(self._recipe.seed)
        senses, rng = Senses(self.model, self._checkpoint.figures), self._rng(1)
        loop = self._loop("senses", senses, rng, RATE)
        steps = self._recipe.senses
        for _ in loop.steps(steps):
            digits, colours, shapes = senses.losses(SIZES[rng.integers(len(SIZES))], rng)
            loop.learn(digits + colours + shapes, steps, digits=digits.item(), seen=colours.item())

    def bank(self) -> None:
        """Encode seconds with the encoders as they are now; leave both for the other process."""
        file = self._folder / BANK
        if not file.exists():
            encoders = self.model.thinker.model.state_dict()
            figures, shrink = self._checkpoint.figures, self._recipe.shrink
            made = fill(self.model, figures, self._rng(2), shrink=shrink)
            part = file.with_suffix(".part")
            torch.save({"encoders": encoders, "bank": made.state()}, part)
            part.replace(file)

    def dialogues(self, course: Course, *, shared: bool) -> None:
        """`shared`: with K/V sharing."""
        found = torch.load(_await(self._folder / BANK), weights_only=True)
        if course.start == 0.0:
            self.model.thinker.model.load_state_dict(found["encoders"])
        heads = ["thinker.model.language_model", "thinker.lm_head"]
        self._learn(*heads, *(["talker"] if course.speaks else []))
        torch.manual_seed(self._recipe.seed + course.stream)
        rng, bank = self._rng(course.stream), Bank.of(found["bank"])
        training = DialogueTraining(
            self._checkpoint, bank, rng, shared=shared, speaks=course.speaks
        )
        loop = self._loop(course.name, self.model, rng, course.rate)
        training.run(loop, course.steps, start=course.start, shortest=course.shortest)

    def vocoder(self, name: str) -> None:
        self._learn("code2wav")
        torch.manual_seed(self._recipe.seed)
        rng = self._rng(5)
        loop = self._loop(name, self.model.code2wav, rng, RATE, decay=0.0, betas=(0.8, 0.99))
        vocoder.train(self.model.code2wav, loop, self._recipe.vocoder, rng)

    def long_speech(self, version: str) -> None:
        """Of a version that is trained but for this."""
        self.model.load_state_dict(torch.load(self._folder / f"{version}.weights"))
        self._learn("talker")
        torch.manual_seed(self._recipe.seed)
        rng = self._rng(9)
        bank = Bank.of(torch.load(self._folder / BANK)["bank"])
        loop = self._loop(f"{version}-speech", self.model, rng, LONG_SPEECH_RATE)
        LongSpeech(self._checkpoint, bank, rng).run(loop, self._recipe.long_speech)

    def save(self, name: str) -> None:
        """The whole model as it is now."""
        torch.save(self.model.state_dict(), self._folder / f"{name}.weights")

    def _learn(self, *parts: str) -> None:
        for name, weight in self.model.named_parameters():
            weight.requires_grad_(name.startswith(parts))

    def _rng(self, stream: int) -> np.random.Generator:
        return np.random.default_rng([self._recipe.seed, stream])

    def _loop(
        self, name: str, module: Any, rng: np.random.Generator, rate: float, **kwargs: Any
    ) -> Loop:
        file = self._folder / f"{name}.state"
        every = max(1, SAVE_EVERY // self._recipe.shrink)
        return Loop(name, file, module, rng, rate=rate, save_every=every, tell=self._tell, **kwargs)


def train_pair(folder: Path, recipe: Recipe, tell: Tell) -> None:
    stages = Stages(folder, recipe, tell)
    stages.senses()
    stages.bank()
    for course in recipe.first:
        stages.dialogues(course, shared=True)
    stages.save(FIRST)
    for course in recipe.second:
        stages.dialogues(course, shared=True)
    stages.save(SECOND)


def train_vocoder_and_control(folder: Path, recipe: Recipe, tell: Tell) -> None:
    stages = Stages(folder, recipe, tell)
    stages.vocoder("vocoder")
    stages.save("vocoder")
    stages.dialogues(recipe.control, shared=False)
    stages.save(CONTROL)


def train_first_voice(folder: Path, recipe: Recipe, tell: Tell) -> None:
    _train_voice(FIRST, folder, recipe, tell)


def train_second_voice(folder: Path, recipe: Recipe, tell: Tell) -> None:
    _train_voice(SECOND, folder, recipe, tell)


def _train_voice(version: str, folder: Path, recipe: Recipe, tell: Tell) -> None:
    stages = Stages(folder, recipe, tell)
    stages.long_speech(version)
    stages.save(_voiced(version))


def _voiced(version: str) -> str:
    """The weights of a version that ships, all courses behind it."""
    return f"{version}-voiced"


def _await(file: Path) -> Path:
    """The other process makes it."""
    while not file.exists():
        time.sleep(1.0)
    return file


def assemble(folder: Path, recipe: Recipe) -> None:
    """The three folders from what the processes left."""
    skeleton = folder / SKELETON
    model: Any = checkpoint.load(skeleton).model
    spoken = torch.load(folder / "vocoder.weights")
    spoken = {name: w for name, w in spoken.items() if name.startswith("code2wav.")}
    for version in (FIRST, SECOND, CONTROL):
        trained = version if version == CONTROL else _voiced(version)
        model.load_state_dict({**torch.load(folder / f"{trained}.weights"), **spoken})
        export(
            model,
            skeleton,
            folder / version,
            version=version,
            seed=recipe.seed,
            steps=recipe.steps_of(version),
            shared=version != CONTROL,
        )


def run(folder: Path, recipe: Recipe) -> None:
    """Train, or go on training, until the folders are there.

    Raises `typer.BadParameter` when the folder was begun under another recipe, `RuntimeError` when
    a process fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keep_to(folder, recipe)
    tiny.create(folder / SKELETON, version=SKELETON, seed=recipe.seed)
    _in_processes([train_pair, train_vocoder_and_control], folder, recipe)
    _in_processes([train_first_voice, train_second_voice], folder, recipe)
    assemble(folder, recipe)


def _in_processes(work: list[Callable[..., None]], folder: Path, recipe: Recipe) -> None:
    context = mp.get_context("spawn")
    told: mp.Queue[tuple[str, int, int, Mapping[str, float]]] = context.Queue()
    processes = [context.Process(target=_work, args=(one, folder, recipe, told)) for one in work]
    for process in processes:
        process.start()
    try:
        _show(told, processes)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def keep_to(folder: Path, recipe: Recipe) -> None:
    """Write the recipe; raises `typer.BadParameter` where another one is written already."""
    file, written = folder / RECIPE, msgspec.json.format(msgspec.json.encode(recipe)) + b"\n"
    if not file.exists():
        file.write_bytes(written)
    elif file.read_bytes() != written:
        raise typer.BadParameter(
            f"{folder} was begun under another recipe ({RECIPE} in it, not this seed, shrink or "
            "steps); go on as it was begun, or name another folder"
        )


def _work(work: Callable[..., None], folder: Path, recipe: Recipe, told: Any) -> None:
    work(folder, recipe, lambda *figures: told.put(figures))


def _show(told: Any, processes: list[Any]) -> None:
    """A bar for each stage. Raises `RuntimeError` when a process fails."""
    columns = (TextColumn("{task.description:16}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), TextColumn("{task.fields[figures]}")) as bars:
        bar_of: dict[str, Any] = {}
        while any(process.is_alive() for process in processes) or not told.empty():
            _require_success(processes)
            try:
                name, step, total, figures = told.get(timeout=1.0)
            except queue.Empty:
                continue
            if name not in bar_of:
                bar_of[name] = bars.add_task(name, total=total, figures="")
            shown = "  ".join(f"{key} {value:.3f}" for key, value in figures.items())
            bars.update(bar_of[name], completed=step, figures=shown)
    for process in processes:
        process.join()
    _require_success(processes)  # one may have failed during the last wait


def _require_success(processes: list[Any]) -> None:
    for process in processes:
        if process.exitcode:
            raise RuntimeError(f"{process.name} failed with code {process.exitcode}")


def main(
    folder: Annotated[Path, typer.Argument(help="where the checkpoints and the state go")],
    seed: Annotated[int, typer.Option(min=0, max=999, help="of weights and data")] = 1,
    shrink: Annotated[int, typer.Option(min=1, help="divide all steps: a trial of the path")] = 1,
) -> None:
    """Train tiny-omni-1, tiny-omni-2 and the control; about an hour on 2 cores."""
    run(folder, Recipe(seed=seed).shrunk(shrink) if shrink > 1 else Recipe(seed=seed))


if __name__ == "__main__":
    typer.run(main)
