"""Logs are one JSON object a line, with ids and nothing that a client said."""

import io
import json
import logging
import sys
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


@pytest.mark.usefixtures("root_as_before")
def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError):
        logs.configure(io.StringIO(), "loud")
