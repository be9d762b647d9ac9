"""The bench of traces measures what it says it does."""

from bench import traces
from monitors.labels import Keep, Milestone, Stage
from monitors.trace_queue import TraceQueue
from monitors.tracing import Tracing
from runtime.requests import Requests


def test_the_request_it_measures_is_a_whole_one_and_its_trace_is_handed_over() -> None:
    held = traces.Held()
    queue = TraceQueue(held)
    requests = Requests(Tracing(queue))
    record = requests.find(traces.one_request(requests))
    queue.close(30.0)
    (trace,) = held.traces
    assert trace.record == record
    assert {stage.stage for stage in (*record.stages, *record.legs[0].stages)} == (
        set(Stage) - {Stage.FETCH}
    )
    assert len(record.noted()) == len(Milestone) + 1 + 2 + 1
    assert record.trace is not None
    assert record.trace.keep == (Keep.SAMPLED, Keep.LINE)


def test_each_figure_is_measured() -> None:
    figures = traces.figures(quick=True)
    assert all(figure.value for figure in figures)
    assert len({figure.bar for figure in figures}) == len(figures)
