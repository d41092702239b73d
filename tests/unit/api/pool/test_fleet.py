"""Which actors are started, stopped and killed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from raylog.api.pool.rules.fleet import (
    ANSWER_SECONDS,
    FAILED_STARTS,
    PLACE_SECONDS,
    START_SECONDS,
    Actor,
    Deaths,
    Fleet,
    Phase,
    Plan,
    is_bad_handler,
    plan,
)

CALM = Deaths()


def actor(name: str, phase: Phase = Phase.RUNNING, version: int = 1, since: float = 0.0, load: int = 0) -> Actor:
    return Actor(name, version, phase, since, since, load)


def test_it_starts_what_is_missing_and_stops_what_is_spare() -> None:
    assert plan(Fleet((), 3), CALM, 0) == Plan(start=3)
    there = [actor("a", load=3), actor("b", load=1), actor("c", Phase.STARTING), actor("d", Phase.WAITING)]
    assert plan(Fleet(there, 4), CALM, 0) == Plan()
    assert plan(Fleet(there, 2), CALM, 0) == Plan(stop=("c", "d")), "those that work are missed the most"
    assert plan(Fleet(there, 1), CALM, 0) == Plan(stop=("c", "d", "b"))
    assert set(plan(Fleet(there, 0), CALM, 0).stop) == set("abcd")


def test_those_that_stop_are_replaced_when_more_are_wanted_again() -> None:
    assert plan(Fleet([actor("a", Phase.STOPPING)], 1), CALM, 0) == Plan(start=1)


def test_what_does_not_come_answer_or_end_is_killed() -> None:
    late = [
        (actor("a", Phase.STARTING), START_SECONDS),
        (actor("a", Phase.RUNNING), ANSWER_SECONDS),
        (actor("a", Phase.STOPPING), 60.0),
        (actor("a", Phase.ENDED), 0.0),
        (actor("a", Phase.HALTED), 0.0),
    ]
    for each, seconds in late:
        assert plan(Fleet([each], 1), CALM, seconds).kill == ("a",)
        assert seconds == 0.0 or plan(Fleet([each], 1), CALM, seconds - 1).kill == ()
    assert plan(Fleet([actor("a", Phase.WAITING)], 1), CALM, 1e6) == Plan(), "Ray has no place for it"
    found = Actor("a", 1, Phase.WAITING, 0.0, 0.0, is_found=True)
    assert plan(Fleet([found], 1), CALM, ANSWER_SECONDS - 1) == Plan(), "it may be busy"
    assert plan(Fleet([found], 1), CALM, ANSWER_SECONDS).kill == ("a",)


def test_deaths_in_a_row_make_pauses_that_grow() -> None:
    deaths, at, pauses = Deaths(), 0.0, []
    for _ in range(9):
        deaths = deaths.one_more(at, while_starting=False)
        pauses.append(max(0.0, deaths.next_start() - at))
        at += pauses[-1] + 2
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert plan(Fleet((), 1), deaths, at - 3) == Plan()
    assert plan(Fleet((), 1), deaths, at + 60) == Plan(start=1)
    assert deaths.one_more(at + 1000, while_starting=False).count == 1


def test_actors_that_die_together_are_replaced_at_once() -> None:
    deaths = Deaths()
    for number in range(10):
        deaths = deaths.one_more(number / 10, while_starting=False)
    assert plan(Fleet((), 10), deaths, 1.0) == Plan(start=10)


def test_a_handler_that_never_comes_up_is_taken_back_if_there_was_another() -> None:
    deaths = Deaths()
    for _ in range(FAILED_STARTS):
        assert not is_bad_handler(deaths, has_former=True)
        deaths = deaths.one_more(deaths.last_at + 2 if deaths.count else 0.0, while_starting=True)
    assert is_bad_handler(deaths, has_former=True)
    assert not is_bad_handler(deaths, has_former=False)
    assert not is_bad_handler(deaths.came_up(), has_former=True)


def test_a_roll_out_starts_one_more_and_then_stops_an_old_one() -> None:
    old = [actor("a"), actor("b")]
    assert plan(Fleet(old, 2, version=2), CALM, 0) == Plan(start=1)
    for phase in (Phase.WAITING, Phase.STARTING):
        assert plan(Fleet([*old, actor("c", phase, 2)], 2, 2), CALM, 0) == Plan()
    assert plan(Fleet([*old, actor("c", Phase.RUNNING, 2)], 2, 2), CALM, 0) == Plan(stop=("a",))
    waiting = [*old, actor("c", Phase.WAITING, 2)]
    room = Plan(stop=("a",), makes_room=True)
    assert plan(Fleet(waiting, 2, 2), CALM, PLACE_SECONDS) == room, "it makes room where there is none"
    leaving = [actor("a", Phase.STOPPING), actor("b"), actor("c", Phase.RUNNING, 2)]
    assert plan(Fleet(leaving, 2, 2), CALM, 0) == Plan(), "one after the other"
    assert plan(Fleet([actor("a")], 0, 2), CALM, 0) == Plan(stop=("a",))


def roll_out(places: int, old_places: int, wanted: int, seconds: int = 1_000) -> tuple[list[Actor], int]:
    """Return who is there after a roll-out, and how few worked meanwhile. New ones get at most so many places."""
    actors = {
        f"old{number}": actor(f"old{number}", Phase.RUNNING if number < old_places else Phase.WAITING)
        for number in range(wanted)
    }
    made, least, room_made_at = 0, wanted, None
    for now in map(float, range(seconds)):
        for name, each in list(actors.items()):
            used = Counter((one.phase, one.version) for one in actors.values())
            working = used[Phase.RUNNING, 1] + used[Phase.RUNNING, 2] + used[Phase.STOPPING, 1]
            if each.phase is Phase.STOPPING:
                del actors[name]
            elif each.phase is Phase.WAITING and working < old_places and used[Phase.RUNNING, 2] < places:
                actors[name] = Actor(name, each.version, Phase.RUNNING, now, now)
            elif each.phase is Phase.RUNNING:
                actors[name] = Actor(name, each.version, each.phase, each.since, now)
        todo = plan(Fleet(list(actors.values()), wanted, 2, room_made_at=room_made_at), CALM, now)
        room_made_at = now if todo.makes_room else room_made_at
        for name in todo.stop:
            actors[name] = Actor(name, actors[name].version, Phase.STOPPING, now, now)
        for _ in range(todo.start):
            made += 1
            actors[f"new{made}"] = actor(f"new{made}", Phase.WAITING, 2, now)
        least = min(least, sum(each.phase is Phase.RUNNING for each in actors.values()))
    return list(actors.values()), least


def test_a_roll_out_that_finds_no_place_at_all_stops_one_and_no_more() -> None:
    there, least = roll_out(places=0, old_places=4, wanted=4)
    assert least == 3
    assert sorted((each.version, each.phase.value) for each in there) == [(1, "running")] * 3 + [(2, "waiting")]
    assert roll_out(places=2, old_places=4, wanted=4)[1] == 3, "nor when the later ones find none"


def test_a_roll_out_goes_on_in_a_full_cluster_also_when_many_wait() -> None:
    for wanted in (4, 9):
        there, least = roll_out(places=4, old_places=4, wanted=wanted)
        assert least == 3
        assert {each.version for each in there} == {2}
        assert sum(each.phase is Phase.RUNNING for each in there) == 4


@given(st.integers(1, 6), st.integers(0, 6), st.lists(st.integers(0, 6), max_size=5))
def test_a_roll_out_comes_to_its_end_without_a_gap(first: int, wanted: int, later: list[int]) -> None:
    """Whatever is wanted meanwhile, all have the newest handler in the end, and as many work as are wanted."""
    actors = {f"old{number}": actor(f"old{number}") for number in range(first)}
    wishes = [wanted, *later]
    made = 0
    for now in range(200):
        wish = wishes[min(now // 3, len(wishes) - 1)]
        working = sum(each.phase is Phase.RUNNING for each in actors.values())
        todo = plan(Fleet(list(actors.values()), wish, 2), CALM, float(now))
        ends = [name for name, each in actors.items() if each.phase is Phase.STOPPING]
        for name in ends:
            del actors[name]
        for name, each in list(actors.items()):
            if each.phase in (Phase.WAITING, Phase.STARTING):
                after = Phase.STARTING if each.phase is Phase.WAITING else Phase.RUNNING
                actors[name] = Actor(name, each.version, after, float(now), float(now))
            elif each.phase is Phase.RUNNING:
                actors[name] = Actor(name, each.version, each.phase, each.since, float(now))
        for name in todo.stop:
            actors[name] = Actor(name, actors[name].version, Phase.STOPPING, float(now), float(now))
        for _ in range(todo.start):
            made += 1
            actors[f"n{made}"] = actor(f"n{made}", Phase.WAITING, 2, float(now))
        there = [each for each in actors.values() if each.phase is not Phase.STOPPING]
        assert len(there) <= max(wish + 1, working)
        if len(set(wishes)) == 1 and first >= wish:
            assert sum(each.phase is Phase.RUNNING for each in actors.values()) >= wish, "no gap"
    assert Counter(each.version for each in actors.values()) == Counter({2: wishes[-1]} if wishes[-1] else {})
