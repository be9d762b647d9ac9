"""What an evaluation may be asked to do, and how the rest is refused."""

import pytest

from monitors.contract import KvRung, MediaRung
from runtime.quality.plan import KvPolicy, Plan, PlanError, Reuse, tasks_named
from runtime.quality.tasks import Kind


@pytest.mark.parametrize("reuse", list(Reuse))
def test_each_reuse_policy_goes_with_int8_and_without(reuse: Reuse) -> None:
    assert KvPolicy.named(reuse) == KvPolicy(reuse, KvRung.NATIVE)
    assert KvPolicy.named(f"{reuse}+int8") == KvPolicy(reuse, KvRung.INT8)
    assert KvPolicy.named(f"{reuse}+int8").name == f"{reuse}+int8"


def test_int8_alone_is_without_reuse() -> None:
    assert KvPolicy.named("int8") == KvPolicy(Reuse.NATIVE, KvRung.INT8)


@pytest.mark.parametrize("name", ["", "none", "reuse+int4", "int8+int8", "reuse+", "+int8"])
def test_another_policy_is_refused_with_the_choices(name: str) -> None:
    with pytest.raises(PlanError, match="native, reuse, lowest50, random50"):
        KvPolicy.named(name)


def test_tasks_are_named_once_each_and_in_order() -> None:
    assert tasks_named("digits, image,digits") == (Kind.DIGITS, Kind.IMAGE)


@pytest.mark.parametrize("names", ["digits,smells", "", " , "])
def test_other_tasks_are_refused_with_the_choices(names: str) -> None:
    with pytest.raises(PlanError, match="digits, colours, pairs"):
        tasks_named(names)


@pytest.mark.parametrize("rung", [-1, 6])
def test_another_rung_is_refused_with_the_choices(rung: int) -> None:
    with pytest.raises(PlanError, match="0, 1, 2, 3, 4, 5"):
        Plan(rung=rung)


@pytest.mark.parametrize("figure", ["seconds", "count", "pool_bytes"])
def test_figures_that_make_no_sense_are_named(figure: str) -> None:
    with pytest.raises(PlanError, match=f"{figure} is 0"):
        Plan(**{figure: 0})


def test_pages_have_the_lower_format_of_policy_and_rung() -> None:
    native, int8 = KvPolicy(Reuse.NATIVE), KvPolicy(Reuse.NATIVE, KvRung.INT8)
    assert [Plan(policy=native, rung=rung).kv for rung in (0, 3)] == [KvRung.NATIVE, KvRung.INT8]
    assert Plan(policy=int8).kv is KvRung.INT8
    assert Plan(rung=4).level.media is MediaRung.P160_8K
