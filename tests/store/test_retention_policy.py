"""Which savepoints a policy keeps: as the real restic does, and what is protected on top."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.config.duration import parse_duration
from savepoints.model import Edit, Savepoint
from savepoints.moments import parse_rfc3339, rfc3339
from savepoints.store.retention_policy import (
    ALL,
    Decision,
    RetentionPolicy,
    decide,
)
from tests.samples import BEGINNING, savepoint

GOLDEN = json.loads((Path(__file__).parents[1] / "data/retention/restic.json").read_text())
LATER = datetime(2030, 1, 1, tzinfo=UTC)
# What restic has no word for.
OURS = {"the last good one", "the newest of generation 1"}


def policy_of(flags: dict[str, Any]) -> RetentionPolicy:
    """Read the flags of restic; its durations are sums such as `14d12h`."""
    counts = {
        f"keep_{name}": ALL if count == "unlimited" else count
        for name, count in flags.items()
        if name not in {"within", "tag"}
    }
    parts = re.findall(r"\d+[dh]", flags.get("within", ""))
    return RetentionPolicy(
        **counts,
        keep_within=sum((parse_duration(part) for part in parts), timedelta()) or None,
        keep_tags=(flags["tag"],) if "tag" in flags else (),
    )


def decided(
    savepoints: Iterable[Savepoint],
    policy: RetentionPolicy,
    needed: Mapping[str, Sequence[str]] | None = None,
    now: datetime = LATER,
) -> dict[str, Decision]:
    found = decide(list(savepoints), policy, needed or {}, now=now)
    return {one.savepoint.id: one for one in found}


def kept(
    savepoints: Iterable[Savepoint], policy: RetentionPolicy, now: datetime = LATER
) -> set[str]:
    return {name for name, one in decided(savepoints, policy, now=now).items() if one.kept}


def taken_at(moments: Sequence[datetime], **about: Any) -> list[Savepoint]:
    return [savepoint(number, created_at=moment, **about) for number, moment in enumerate(moments)]


@pytest.mark.parametrize("run", GOLDEN["runs"], ids=lambda run: json.dumps(run["flags"]))
def test_the_same_are_kept_for_the_same_reasons_as_by_restic(run: dict[str, Any]) -> None:
    policy = policy_of(run["flags"])
    for scenario, times in GOLDEN["scenarios"].items():
        there = [
            savepoint(
                number,
                created_at=parse_rfc3339(time),
                tags=("release",) if number in GOLDEN["tagged"] else (),
            )
            for number, time in enumerate(times)
        ]

        found = {
            rfc3339(one.savepoint.created_at): as_restic_says(set(one.reasons) - OURS)
            for one in decide(there, policy, {}, now=LATER)
        }

        expected = {
            rfc3339(parse_rfc3339(time)): as_restic_says(matches)
            for time, matches in run["kept"][scenario].items()
        }
        assert {time: why for time, why in found.items() if why} == expected, scenario


def as_restic_says(reasons: Iterable[str]) -> set[str]:
    """Leave out in which unit a duration is written, and how a tag."""
    words = {"has tags [release]": "tagged release"}
    return {
        "within" if reason.startswith("within") else words.get(reason, reason) for reason in reasons
    }


def test_the_golden_data_has_the_rule_about_the_oldest() -> None:
    matches = {
        match
        for run in GOLDEN["runs"]
        for found in run["kept"].values()
        for why in found.values()
        for match in why
    }

    assert {"oldest hourly", "oldest daily", "oldest weekly", "oldest monthly"} <= matches
    assert GOLDEN["restic"] == "0.18.1"


def test_trap_wal_g_636_the_order_is_that_of_the_recorded_times_and_not_of_the_names() -> None:
    # After an upgrade names sorted before the older ones, and the new backups were deleted.
    old = savepoint(1, id="sp-99991231-235959-zzzzzz")
    new = savepoint(2, id="sp-20000101-000000-aaaaaa")

    assert kept([old, new], RetentionPolicy(keep_last=1)) == {new.id}


def test_an_empty_policy_removes_nothing() -> None:
    there = [savepoint(number) for number in range(5)]

    found = decided(there, RetentionPolicy())

    assert all(one.kept for one in found.values())
    assert found[there[0].id].reasons == ("no policy",)
    assert RetentionPolicy().is_empty
    assert RetentionPolicy(keep_tags=()).is_empty
    assert not RetentionPolicy(keep_tags=("release",)).is_empty


def test_each_query_is_decided_by_itself_and_can_have_its_own_policy() -> None:
    there = [savepoint(n, query=query, id=f"{query}-{n}") for query in "abc" for n in range(4)]
    policies = {"a": RetentionPolicy(keep_last=1), "b": RetentionPolicy(keep_last=3)}

    found = decide(there, policies, {}, now=LATER)

    names = {one.savepoint.id for one in found if one.kept}
    assert names == {"a-3", "b-3", "b-2", "b-1", "c-3", "c-2", "c-1", "c-0"}


def test_pinned_and_tagged_ones_stay() -> None:
    there = [savepoint(number) for number in range(6)]
    there[0] = replace(there[0], pinned=True)
    there[1] = replace(there[1], tags=("release", "blue"))
    there[2] = replace(there[2], tags=("blue",))

    found = decided(there, RetentionPolicy(keep_last=1))

    assert found[there[0].id].reasons == ("pinned",)
    assert found[there[1].id].reasons == ("tagged release", "tagged blue")
    assert found[there[2].id].reasons == ("tagged blue",)
    assert [one.kept for one in found.values()] == [True, False, False, True, True, True]


def test_with_tags_named_only_those_protect() -> None:
    there = [savepoint(number) for number in range(3)]
    there[0] = replace(there[0], tags=("release", "blue"))
    there[1] = replace(there[1], tags=("blue",))

    found = decided(there, RetentionPolicy(keep_last=1, keep_tags=("release",)))

    assert found[there[0].id].reasons == ("tagged release",)
    assert not found[there[1].id].kept


def test_the_last_good_one_stays_although_newer_ones_are_broken() -> None:
    good, *broken = (savepoint(n, state="broken" if n else "complete") for n in range(4))

    found = decided([good, *broken], RetentionPolicy(keep_last=1))

    assert found[good.id].reasons == ("the last good one", "the newest of generation 1", "last")
    assert found[broken[-1].id].reasons == ("last",)
    assert kept([good, *broken], RetentionPolicy(keep_last=1)) == {good.id, broken[-1].id}


def test_the_newest_whole_one_of_each_generation_stays() -> None:
    there = [replace(savepoint(n), generation=1 + n // 3) for n in range(9)]
    there[5] = replace(there[5], state="broken")

    found = decided(there, RetentionPolicy(keep_last=1))

    assert {name for name, one in found.items() if one.kept} == {there[n].id for n in (2, 4, 8)}
    assert found[there[4].id].reasons == ("the newest of generation 2",)


EDIT = Edit("me", "a try", 0)


def test_what_was_edited_by_hand_pushes_out_nothing_of_the_query_itself() -> None:
    old, newest = savepoint(1), savepoint(2)
    edited = [replace(old, id=f"sp-edited-{n}", created_at=LATER, edit=EDIT) for n in range(2)]

    found = decided([old, newest, *edited], RetentionPolicy(keep_last=1))

    assert found[newest.id].reasons == ("the last good one", "the newest of generation 1", "last")
    assert not found[old.id].kept
    assert [found[one.id].reasons for one in edited] == [(), ("last",)]


def test_what_was_edited_by_hand_stays_where_something_needs_it() -> None:
    edited = replace(savepoint(1), edit=EDIT)

    found = decided(
        [edited, savepoint(2), replace(savepoint(3), edit=EDIT)],
        RetentionPolicy(keep_last=1),
        {edited.id: ("generation 2 began from it",)},
    )

    assert found[edited.id].reasons == ("generation 2 began from it",)


def test_what_something_else_needs_stays_with_its_reason() -> None:
    there = [savepoint(number) for number in range(3)]

    found = decided(
        there, RetentionPolicy(keep_last=1), {there[0].id: ("generation 2 began from it",)}
    )

    assert found[there[0].id].reasons == ("generation 2 began from it",)
    assert not found[there[1].id].kept


def test_those_that_are_being_removed_are_not_decided_about() -> None:
    there = [savepoint(0), savepoint(1, state="expired")]

    assert list(decided(there, RetentionPolicy(keep_last=1))) == [there[0].id]


def test_trap_a_savepoint_from_the_future_does_not_make_all_others_too_old() -> None:
    wrong_clock = savepoint(0, created_at=LATER + timedelta(days=400))
    there = [*taken_at([LATER - timedelta(hours=n) for n in (1, 2, 30)]), wrong_clock]

    assert kept(there, RetentionPolicy(keep_within=timedelta(hours=6))) == {
        wrong_clock.id, there[0].id, there[1].id,
    }  # fmt: skip


MOMENTS = st.lists(
    st.integers(0, 3 * 366 * 24 * 60).map(lambda minutes: BEGINNING - timedelta(minutes=minutes)),
    max_size=25,
    unique=True,
)
COUNT = st.integers(ALL, 4)
POLICIES = st.builds(
    RetentionPolicy,
    keep_last=COUNT,
    keep_hourly=COUNT,
    keep_daily=COUNT,
    keep_weekly=COUNT,
    keep_monthly=COUNT,
    keep_within=st.none() | st.timedeltas(timedelta(minutes=1), timedelta(days=500)),
    keep_tags=st.none() | st.just(("a",)) | st.just(()),
)


@st.composite
def stores(draw: st.DrawFn) -> list[Savepoint]:
    moments = draw(MOMENTS)
    return [
        replace(
            savepoint(number, created_at=moment, id=f"sp-{draw(st.integers(0, 999))}-{number}"),
            query=draw(st.sampled_from(["orders", "fork"])),
            generation=draw(st.integers(1, 2)),
            tags=draw(st.sampled_from([(), ("a",), ("b",), ("a", "b")])),
            pinned=draw(st.integers(0, 9)) == 0,
            state=draw(st.sampled_from(["complete"] * 5 + ["broken", "expired"])),
            edit=draw(st.sampled_from([None, None, None, EDIT])),
        )
        for number, moment in enumerate(moments)
    ]


def outcomes(decisions: Sequence[Decision]) -> list[tuple[Any, ...]]:
    """What was decided, without the names of savepoints; a group's reason names a member."""
    return [
        (
            one.savepoint.created_at,
            one.kept,
            [re.sub(r" with sp-[0-9-]+", "", why) for why in one.reasons],
        )
        for one in decisions
    ]


@given(stores(), POLICIES, st.randoms())
def test_neither_the_order_given_nor_the_names_matter(
    there: list[Savepoint], policy: RetentionPolicy, dice: Any
) -> None:
    mixed = there.copy()
    dice.shuffle(mixed)
    renamed = [replace(one, id=f"sp-{number}") for number, one in enumerate(mixed)]

    found = decide(there, policy, {}, now=LATER)

    assert decide(mixed, policy, {}, now=LATER) == found
    assert outcomes(found) == outcomes(decide(renamed, policy, {}, now=LATER))


@given(stores(), POLICIES)
def test_protections_hold_whatever_the_policy_says(
    there: list[Savepoint], policy: RetentionPolicy
) -> None:
    needed = {there[0].id: ("somebody needs it",)} if there else {}

    found = decided(there, policy, needed)

    alive = [one for one in there if one.state != "expired"]
    assert set(found) == {one.id for one in alive}
    complete = [one for one in alive if is_good(one)]
    for one in alive:
        is_protected = (
            one.pinned
            or (one.tags and policy.keep_tags is None)
            or set(one.tags) & set(policy.keep_tags or ())
            or one.id in needed
            or (
                one in complete
                and not any(
                    newer.created_at > one.created_at
                    for newer in complete
                    if (newer.query, newer.generation) == (one.query, one.generation)
                )
            )
        )
        assert found[one.id].kept or not is_protected
        assert found[one.id].kept == bool(found[one.id].reasons)


def is_good(one: Savepoint) -> bool:
    return one.state == "complete" and one.edit is None


@given(stores(), POLICIES)
def test_one_that_is_broken_or_edited_never_pushes_a_good_one_out(
    there: list[Savepoint], policy: RetentionPolicy
) -> None:
    good = [one for one in there if is_good(one)]
    others = {tag for one in there if not is_good(one) for tag in one.tags}

    alone, together = kept(good, policy), kept(there, policy) & {one.id for one in good}

    assert alone <= together
    if not any(tag in others for one in good for tag in one.tags):
        assert alone == together  # One that stays keeps its group, too.


@given(stores(), POLICIES)
def test_no_more_goes_than_if_all_were_whole(
    there: list[Savepoint], policy: RetentionPolicy
) -> None:
    alive = [one for one in there if one.state != "expired"]
    whole = [replace(one, state="complete", generation=1, edit=None) for one in alive]

    gone = {one.id for one in alive} - kept(alive, policy)

    assert gone <= {one.id for one in whole} - kept(whole, policy)


@given(stores(), POLICIES)
def test_what_is_left_is_kept_again(there: list[Savepoint], policy: RetentionPolicy) -> None:
    left = [one for one in there if one.id in kept(there, policy)]

    assert kept(left, policy) == {one.id for one in left}


@given(MOMENTS, st.integers(1, 5))
def test_one_that_is_added_pushes_out_one_at_most(moments: list[datetime], count: int) -> None:
    there = taken_at(sorted(moments))
    policy = RetentionPolicy(keep_last=count)
    before = kept(there[:-1], policy)

    assert len(before - kept(there, policy)) <= 1


@given(MOMENTS, COUNT, COUNT)
def test_the_counts_are_never_exceeded(moments: list[datetime], days: int, weeks: int) -> None:
    there = taken_at(moments)
    policy = RetentionPolicy(keep_daily=days, keep_weekly=weeks)

    if ALL not in (days, weeks) and not policy.is_empty:
        assert len(kept(there, policy)) <= max(1, days + weeks)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (RetentionPolicy(keep_last=3, keep_daily=ALL), "3 last, all daily"),
        (
            RetentionPolicy(keep_within=timedelta(hours=36), keep_tags=("a",)),
            "within 36h, tagged a",
        ),
        (RetentionPolicy(keep_within=timedelta(days=2)), "within 2d"),
        (RetentionPolicy(keep_within=timedelta(minutes=90)), "within 90m"),
        (RetentionPolicy(keep_within=timedelta(seconds=1.5)), "within 1500ms"),
        (RetentionPolicy(), "no rules"),
    ],
)
def test_a_policy_in_words(policy: RetentionPolicy, words: str) -> None:
    assert str(policy) == words


def test_a_policy_as_json() -> None:
    policy = RetentionPolicy(keep_last=2, keep_within=timedelta(hours=1), keep_tags=("a",))

    assert policy.to_json() == {
        "keep_last": 2, "keep_hourly": 0, "keep_daily": 0, "keep_weekly": 0, "keep_monthly": 0,
        "keep_within_seconds": 3600.0, "keep_tags": ["a"],
    }  # fmt: skip


def grouped(count: int) -> list[Savepoint]:
    """Return a savepoint of each of two queries for each group, the groups hours apart."""
    return [
        savepoint(
            2 * number + at,
            query=query,
            created_at=BEGINNING + timedelta(hours=number),
            tags=(f"group-{number}",),
        )
        for number in range(count)
        for at, query in enumerate(("silver", "gold"))
    ]


def test_trap_a_group_stays_or_goes_as_a_whole() -> None:
    there = grouped(4)
    policies = {
        "silver": RetentionPolicy(keep_last=1),
        "gold": RetentionPolicy(keep_last=3),
    }
    found = decide(there, policies, {}, now=LATER)
    stays = {one.savepoint.tags for one in found if one.kept}
    goes = {one.savepoint.tags for one in found if not one.kept}
    assert stays == {("group-1",), ("group-2",), ("group-3",)}
    assert goes == {("group-0",)}
    reasons = {one.savepoint.id: one.reasons for one in found}
    assert reasons[there[2].id] == (f"in the group group-1 with {there[3].id}",)


def test_a_query_without_a_policy_keeps_its_groups_whole() -> None:
    found = decide(grouped(3), {"silver": RetentionPolicy(keep_last=1)}, {}, now=LATER)
    assert all(one.kept for one in found)


def test_a_savepoint_in_two_groups_keeps_both_whole() -> None:
    old, other, new, last = grouped(2)
    linked = replace(other, tags=("group-0", "both"))
    third = replace(old, id=old.id[:-1] + "x", query="bronze", tags=("both",))
    newer = replace(third, id=old.id[:-1] + "y", tags=(), created_at=BEGINNING + timedelta(hours=9))
    policies = dict.fromkeys(("silver", "gold"), RetentionPolicy(keep_last=1)) | {
        "bronze": RetentionPolicy(keep_last=2)
    }
    found = decide([old, linked, new, last, third, newer], policies, {}, now=LATER)
    assert all(one.kept for one in found)
    without = decide([old, other, new, last, newer], policies, {}, now=LATER)
    assert {one.savepoint.id for one in without if not one.kept} == {old.id, other.id}


def test_a_tag_that_names_a_group_for_a_machine_protects_only_where_it_is_named() -> None:
    labels = savepoint(1, tags=("group-1",)).labels
    assert RetentionPolicy(keep_last=1).protects(labels) == ()
    assert RetentionPolicy(keep_tags=("group-1",)).protects(labels) == ("tagged group-1",)
