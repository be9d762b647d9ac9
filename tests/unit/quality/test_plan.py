"""What an evaluation may be asked to do, and how the rest is refused."""

import pytest

from monitors.contract import KvRung, MediaRung
from runtime.kv.formats import Format
from runtime.quality.plan import KvPolicy, Plan, PlanError, Reuse, tasks_named
from runtime.quality.tasks import Kind

PACKED = [Format.INT8, Format.INT4, Format.SUBSPACE]


@pytest.mark.parametrize("reuse", list(Reuse))
@pytest.mark.parametrize("form", PACKED)
def test_each_reuse_policy_goes_with_a_packed_form_and_without(reuse: Reuse, form: Format) -> None:
    name = f"{reuse}+{form.name.lower()}"
    assert KvPolicy.named(reuse) == KvPolicy(reuse, Format.NATIVE)
    assert KvPolicy.named(name) == KvPolicy(reuse, form)
    assert KvPolicy.named(name).name == name


@pytest.mark.parametrize("form", PACKED)
def test_a_form_alone_is_without_reuse(form: Format) -> None:
    assert KvPolicy.named(form.name.lower()) == KvPolicy(Reuse.NATIVE, form)


@pytest.mark.parametrize("name", ["", "none", "reuse+int2", "int8+int8", "reuse+", "+int8"])
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


def test_a_rung_tells_what_becomes_of_pages_that_the_policy_leaves_native() -> None:
    assert [Plan(rung=rung).kv for rung in (0, 3)] == [KvRung.NATIVE, KvRung.INT8]
    assert Plan(policy=KvPolicy.named("int4")).kv is KvRung.NATIVE
    assert Plan(rung=4).level.media is MediaRung.P160_8K
