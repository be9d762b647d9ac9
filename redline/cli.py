"""The command line. Each command imports what it needs, so that `redline --help` is quick."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from monitors.labels import Storage
from redline import (
    bases,
    calibrate,
    evaluate,
    explain,
    generate,
    inject,
    ladder,
    maintenance,
    notify,
    rollout_app,
    voices,
)
from redline.drills import command as drill
from redline.options import Actor, LinesFile, StateDir
from redline.options import policy_of as _policy
from redline.options import stack_of as _stack
from redline.rollout_app import operate, verb
from redline.sentences import fail as _fail
from redline.settings import STATE_DIR, Ports

app = typer.Typer(
    name="redline",
    help="Runs omni-modal streaming models and keeps them inside three red lines: "
    "cache hit rate > 90 %, first packet < 250 ms, faults < 0.5 %.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(rollout_app.app, name="rollout")
app.add_typer(ladder.app, name="ladder")
app.command("eval")(evaluate.command)
app.command("calibrate")(calibrate.command)
app.command("bases")(bases.command)
app.command("explain")(explain.command)
app.command("inject")(inject.command)
app.command("drill")(drill.command)
app.command("voices")(voices.command)
app.command("generate")(generate.command)
app.command("maintenance")(maintenance.command)
app.command("notify")(notify.command)


@app.command()
def up(
    state_dir: StateDir = STATE_DIR,
    runtime_port: Annotated[int, typer.Option(help="Data plane.", min=1, max=65535)] = 8080,
    control_port: Annotated[int, typer.Option(help="Control plane.", min=1, max=65535)] = 8090,
    prometheus_port: Annotated[int, typer.Option(help="Prometheus.", min=1, max=65535)] = 9090,
    alertmanager_port: Annotated[int, typer.Option(help="Alertmanager.", min=1, max=65535)] = 9093,
    lines: LinesFile = None,
    model_a: Annotated[
        Path | None, typer.Option(help="Checkpoint folder of A, the canary.")
    ] = None,
    model_b: Annotated[Path | None, typer.Option(help="Checkpoint folder of B, stable.")] = None,
    pool_mb: Annotated[float, typer.Option(help="KV pool of each resident, MB.")] = 24.0,
    storage: Annotated[
        Storage, typer.Option(help="What complete KV blocks are packed into.")
    ] = Storage.NATIVE,
    prometheus: Annotated[bool, typer.Option(help="Start Prometheus and Alertmanager.")] = True,
    drills: Annotated[
        bool, typer.Option(help="Allow `redline inject` and `redline drill`.")
    ] = True,
    otlp: Annotated[
        str | None, typer.Option(help="OTLP endpoint for traces, as http://HOST:4318.")
    ] = None,
    trace_ratio: Annotated[
        float,
        typer.Option(help="Share of ordinary requests traced; bad ones always are.", min=0, max=1),
    ] = 1.0,
    trace_content: Annotated[
        bool, typer.Option(help="Traces also carry the text of prompts and answers.")
    ] = False,
) -> None:
    """Start both planes, two residents, Prometheus and Alertmanager on this machine."""
    from pydantic import ValidationError

    from redline import up as stack
    from runtime.settings import TraceSettings

    try:
        trace = TraceSettings(
            endpoint=otlp, sample_ratio=trace_ratio, capture_content=trace_content
        )
    except ValidationError as err:
        _fail(err, 2)
    models = {stack.CANARY: model_a, stack.STABLE: model_b}
    plan = stack.Plan(
        state_dir=state_dir,
        ports=Ports(
            runtime=runtime_port,
            control=control_port,
            prometheus=prometheus_port,
            alertmanager=alertmanager_port,
        ),
        policy=_policy(lines, stack.embedded_lines(pool_mb)),
        models={name: path for name, path in models.items() if path is not None},
        pool_mb=pool_mb,
        storage=storage,
        drills=drills,
        prometheus=prometheus,
        trace=trace,
    )
    try:
        code = stack.run(
            plan,
            lambda line: typer.echo(f"  {line}"),
            lambda found, prometheus: typer.echo(stack.welcome(found, prometheus)),
        )
    except (stack.UpError, OSError, ValidationError) as err:
        _fail(err, 2)
    raise typer.Exit(code)


@app.command()
def runtime(
    settings: Annotated[Path, typer.Option("--settings", help="RuntimeSettings as JSON.")],
    lines: LinesFile = None,
) -> None:
    """Run the data plane alone: gateway and one engine process per resident."""
    from pydantic import ValidationError

    from runtime import gateway
    from runtime.settings import RuntimeSettings

    try:
        given = RuntimeSettings.model_validate_json(settings.read_bytes())
    except (OSError, ValidationError) as err:
        _fail(f"{settings}: {err}", 2)
    given = given.model_copy(update={"lines": _policy(lines, given.lines).lines})
    raise typer.Exit(gateway.serve(given))


@app.command()
def control(
    settings: Annotated[Path, typer.Option("--settings", help="ControlSettings as JSON.")],
    lines: LinesFile = None,
    journal: Annotated[
        str | None,
        typer.Option(
            help="postgresql://USER:PASSWORD@HOST/DATABASE for control planes of several machines; "
            "by itself a SQLite file in the state folder.",
            envvar="REDLINE_JOURNAL_URL",
        ),
    ] = None,
) -> None:
    """Run the control plane alone: alert receiver, ladder, rollout, journal, status page."""
    from pydantic import ValidationError

    from redline.control import app as plane
    from redline.control.settings import ControlSettings

    try:
        given = ControlSettings.model_validate_json(settings.read_bytes())
    except (OSError, ValidationError) as err:
        _fail(f"{settings}: {err}", 2)
    if lines is not None:
        policy = _policy(lines, given.lines)
        said = {"lines": policy.lines, "rules": dict(policy.given), "notify": policy.notify}
        given = given.model_copy(update=said)
    if journal is not None:
        given = given.model_copy(update={"journal_url": journal})
    raise typer.Exit(plane.serve(given))


@app.command()
def send(
    clips: Annotated[list[Path], typer.Argument(help="Video, audio or image files.")],
    ask: Annotated[str, typer.Option("--ask", help="The question.")] = "What do you see and hear?",
    out: Annotated[Path, typer.Option("--out", help="Where the spoken answer goes.")] = Path(
        "answer.wav"
    ),
    text_only: Annotated[
        bool, typer.Option("--text-only", help="No speech: bypasses the Talker.")
    ] = False,
    session: Annotated[str | None, typer.Option(help="Stay on one resident by this name.")] = None,
    low_latency: Annotated[
        bool, typer.Option(help="160x160 video and 8 kHz audio (S2.5).")
    ] = False,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer, tokens.")] = None,
    resident: Annotated[
        str | None,
        typer.Option(
            "--resident", "-r", help="This one answers, whatever its share; no verdict counts it."
        ),
    ] = None,
    state_dir: StateDir = STATE_DIR,
) -> None:
    """Send real audio and video; print the streamed text and the three first-output times."""
    from redline import send as client
    from redline.client import ClientError

    missing = [str(c) for c in clips if not c.is_file()]
    if missing:
        _fail(f"no such file: {', '.join(missing)}", 2)
    if not out.absolute().parent.is_dir():
        _fail(f"--out {out}: there is no such folder", 2)
    try:
        answer = client.send(
            _stack(state_dir),
            clips,
            ask,
            speech=not text_only,
            on_text=lambda text: typer.echo(text, nl=False),
            session=session,
            low_latency=low_latency,
            max_tokens=max_tokens,
            resident=resident,
        )
        if answer.pcm:
            answer.write_wav(out)
    except (ClientError, OSError) as err:
        _fail(err)
    typer.echo(f"\n\n{client.summary(answer, out)}")


@app.command()
def tables(
    once: Annotated[bool, typer.Option("--once", help="Print once and end.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The tables as JSON on one line; implies --once.")
    ] = False,
    state_dir: StateDir = STATE_DIR,
) -> None:
    """The three tables, live: cache, latency, faults, by the red lines of the stack.

    Exit codes: 0, they were shown, whatever is in them; 1, the stack does not answer; 2, wrong
    usage. In JSON null is unknown.
    """
    import msgspec
    from rich.console import Console

    from redline import tables_view as view
    from redline.client import ClientError

    stack = _stack(state_dir)
    try:
        if as_json:
            typer.echo(msgspec.json.encode(view.fetch(stack)).decode())
        elif once:
            Console().print(view.draw(view.fetch(stack)))
        else:
            view.follow(stack)
    except ClientError as err:
        _fail(err)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


@app.command()
def status(state_dir: StateDir = STATE_DIR) -> None:
    """Who serves, at which level, what fires, and what the rollout is doing."""
    from redline.drills.lock import running_drill
    from redline.operate import show_status

    drill_name = running_drill(state_dir)
    if drill_name is not None:
        typer.echo(f"a drill runs: {drill_name}")
    operate(lambda stack: show_status(stack), state_dir)


@app.command()
def freeze(actor: Actor = "operator", state_dir: StateDir = STATE_DIR) -> None:
    """Kill switch: no more moves but those toward the stable version."""
    verb("freeze", actor, state_dir)


@app.command("dry-run")
def dry_run(actor: Actor = "operator", state_dir: StateDir = STATE_DIR) -> None:
    """The ladder logs what it would do and stays on its rungs, until `unfreeze`."""
    verb("dry-run", actor, state_dir)


@app.command()
def unfreeze(actor: Actor = "operator", state_dir: StateDir = STATE_DIR) -> None:
    """End a freeze or a dry run."""
    verb("unfreeze", actor, state_dir)


def main() -> None:
    """Entry point of the `redline` script."""
    sys.exit(app())


if __name__ == "__main__":
    main()
