"""Logs are one JSON object a line, with ids and nothing that a client said."""

import asyncio
import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator

import pytest

from monitors import logs


@pytest.fixture
def root_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def format_record(message: str, *args: object, extra: dict[str, object] | None = None) -> str:
    logger = logging.getLogger("redline.test")
    record = logger.makeRecord(
        logger.name, logging.WARNING, __file__, 1, message, args, None, extra=extra
    )
    record.created = 1_700_000_000.1239
    return logs.JsonFormatter().format(record)


def test_a_record_is_one_line_whatever_its_message_holds() -> None:
    line = format_record('two\nlines, "quotes" and %s', "ümläut")
    assert "\n" not in line
    assert json.loads(line) == {
        "ts": "2023-11-14T22:13:20.123Z",
        "level": "warning",
        "logger": "redline.test",
        "message": 'two\nlines, "quotes" and ümläut',
    }


def test_ids_are_fields_and_anything_else_is_left_out() -> None:
    line = json.loads(
        format_record(
            "finished",
            extra={
                "trace_id": "ab" * 16,
                "span_id": "cd" * 8,
                "request_id": "r1",
                "session": "s1",
                "resident": "a",
                "prompt": "a secret",
            },
        )
    )
    assert {field: line[field] for field in logs.FIELDS} == {
        "trace_id": "ab" * 16,
        "span_id": "cd" * 8,
        "request_id": "r1",
        "session": "s1",
        "resident": "a",
    }
    assert "a secret" not in line.values()


def test_an_unknown_id_is_absent() -> None:
    assert "trace_id" not in json.loads(format_record("m", extra={"trace_id": None}))


@pytest.mark.usefixtures("root_as_before")
def test_configure_sends_every_logger_to_the_stream_once() -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.configure(first, "debug")
    logs.configure(second, "info")
    logging.getLogger("some.library").info("heard")
    logging.getLogger("some.library").debug("too quiet")
    assert first.getvalue() == ""
    assert [json.loads(line)["message"] for line in second.getvalue().splitlines()] == ["heard"]


@pytest.mark.usefixtures("root_as_before")
def test_a_scheduler_that_skips_a_tick_says_nothing_and_one_that_fails_does() -> None:
    stream = io.StringIO()
    logs.configure(stream)
    scheduler = logging.getLogger("apscheduler.scheduler")
    scheduler.warning("Execution of job skipped: maximum number of running instances reached")
    scheduler.error("Job raised an exception")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == [
        "Job raised an exception"
    ]


@pytest.mark.usefixtures("root_as_before")
def test_an_exception_comes_with_its_traceback_on_the_same_line() -> None:
    stream = io.StringIO()
    logs.configure(stream)
    try:
        raise RuntimeError("the disk is gone")
    except RuntimeError:
        logging.getLogger("x").error("could not write", exc_info=sys.exc_info())
    (line,) = stream.getvalue().splitlines()
    assert "RuntimeError: the disk is gone" in json.loads(line)["exception"]


def test_fields_of_the_whole_process_are_on_every_line_and_a_records_own_come_first() -> None:
    logger = logging.getLogger("redline.test")
    formatter = logs.JsonFormatter({"resident": "a"})
    record = logger.makeRecord(logger.name, logging.INFO, __file__, 1, "m", (), None)
    assert json.loads(formatter.format(record))["resident"] == "a"
    record.resident = "b"
    assert json.loads(formatter.format(record))["resident"] == "b"


async def test_lines_of_a_request_carry_its_ids_and_those_of_another_do_not() -> None:
    """As the server runs them: each request in a task of its own."""

    async def request(number: int) -> list[dict[str, str]]:
        known = {"request_id": f"r{number}"}
        logs.about(lambda: known)
        lines = [json.loads(format_record("before"))]
        await asyncio.sleep(0)
        known["session"] = f"s{number}"  # learned on the way
        child = asyncio.create_task(asyncio.to_thread(format_record, "in a thread"))
        return [*lines, json.loads(await child)]

    for number, lines in enumerate(await asyncio.gather(request(0), request(1))):
        assert [line["request_id"] for line in lines] == [f"r{number}"] * 2
        assert [line.get("session") for line in lines] == [None, f"s{number}"]
    assert "request_id" not in json.loads(format_record("nobody's"))


def raised(err: Exception, cause: Exception | None = None) -> str:
    """The exception of a line about a request."""
    try:
        raise err from cause
    except type(err):
        record = logging.getLogger("x").makeRecord(
            "x", logging.ERROR, __file__, 1, "failed", (), sys.exc_info(), extra={"request_id": "r"}
        )
    return json.loads(logs.JsonFormatter().format(record))["exception"]


def test_an_error_of_a_request_shows_its_place_and_kind_and_not_what_it_may_quote() -> None:
    shown = raised(ValueError("invalid: a secret"), KeyError("another secret"))
    assert "secret" not in shown
    assert "in raised" in shown
    assert f"ValueError: {logs.LEFT_OUT}" in shown
    assert f"KeyError: {logs.LEFT_OUT}" in shown


def test_an_error_of_the_system_is_told_in_full() -> None:
    assert "No space left" in raised(OSError(28, "No space left on device"))
    assert "MemoryError: 2 GB" in raised(MemoryError("2 GB"))


@pytest.mark.usefixtures("root_as_before")
def test_a_warning_is_a_line_too() -> None:
    stream = io.StringIO()
    logs.configure(stream, resident="a")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old and slow", stacklevel=1)
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["logger"], line["resident"]) == ("py.warnings", "a")
    assert "old and slow" in line["message"]


@pytest.mark.usefixtures("root_as_before")
def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError):
        logs.configure(io.StringIO(), "loud")
