"""What a thread inherits, and what a summary may stand for."""

from dataclasses import replace

import pytest

from infinity_agents.conversation.history import Summary
from infinity_agents.conversation.lineage import (
    Lineage,
    Segment,
    clipped,
    compaction_range,
    inherit,
    is_safe_point,
    last_safe_point,
)
from infinity_agents.conversation.slice import size_of
from infinity_agents.conversation.threads import ThreadKind
from tests.conversation.building import CHILD, a_slice, call, called, event, result, said, user

CONVERSATION = [user(), said("a"), called("x"), result("x"), event("e"), called("y"), result("y"), called("z")]


class TestSafePoints:
    def test_never_between_a_call_and_its_result(self):
        safe = [index for index in range(len(CONVERSATION) + 1) if is_safe_point(CONVERSATION, index)]
        assert safe == [0, 1, 2, 4, 5, 7]

    @pytest.mark.parametrize(("length", "point"), [(0, 0), (1, 1), (3, 2), (4, 4), (6, 5), (7, 7), (8, 7)])
    def test_the_last_one(self, length, point):
        assert last_safe_point(CONVERSATION[:length]) == point


class TestInherit:
    def test_a_child_sees_its_parent_up_to_the_spawn_point(self):
        assert inherit(Lineage(), "root", 0, 5, None) == Lineage((Segment("root", 0, 5),))

    def test_a_grandchild_sees_both(self):
        parent = Lineage((Segment("root", 0, 5),))
        assert inherit(parent, "child", 5, 9, None).segments == (Segment("root", 0, 5), Segment("child", 5, 9))

    def test_nothing_said_is_no_segment(self):
        assert inherit(Lineage(), "root", 0, 0, None) == Lineage()
        parent = Lineage((Segment("root", 0, 5),))
        assert inherit(parent, "child", 5, 5, None).segments == (Segment("root", 0, 5),)

    def test_a_summary_comes_along_and_what_it_stands_for_does_not(self):
        lineage = inherit(Lineage(), "root", 0, 9, Summary("root", 4, "short"))
        assert lineage == Lineage((Segment("root", 4, 9),), ("root", 4))

    def test_a_summary_up_to_the_spawn_point_leaves_nothing(self):
        assert inherit(Lineage(), "root", 0, 9, Summary("root", 9, "short")) == Lineage((), ("root", 9))

    def test_the_childs_own_summary_of_its_inherited_prefix(self):
        parent = Lineage((Segment("root", 0, 5),))
        summary = Summary("child", 3, "short")
        lineage = inherit(parent, "child", 5, 8, summary)
        assert lineage == Lineage((Segment("root", 3, 5), Segment("child", 5, 8)), ("child", 3))

    def test_the_childs_own_summary_beyond_it(self):
        parent = Lineage((Segment("root", 0, 5),), ("root", 2))
        lineage = inherit(parent, "child", 5, 8, Summary("child", 6, "short"))
        assert lineage == Lineage((Segment("child", 6, 8),), ("child", 6))

    def test_an_inherited_summary_stands_for_a_grandchild_too(self):
        parent = Lineage((Segment("root", 2, 5),), ("root", 2))
        lineage = inherit(parent, "child", 5, 8, Summary("root", 2, "short"))
        assert lineage == Lineage((Segment("root", 2, 5), Segment("child", 5, 8)), ("root", 2))

    def test_a_compaction_child_may_see_only_a_part_of_what_is_inherited(self):
        parent = Lineage((Segment("root", 0, 5), Segment("child", 5, 9)))
        assert inherit(parent, "grandchild", 9, 7, None).segments == (Segment("root", 0, 5), Segment("child", 5, 7))
        assert inherit(parent, "grandchild", 9, 3, None).segments == (Segment("root", 0, 3),)

    def test_positions_name_one_entry_along_the_whole_lineage(self):
        # Generation after generation, each with some entries of its own and sometimes a summary.
        lineage, base, summary = Lineage(), 0, None
        for generation in range(6):
            stop = base + generation
            if generation == 3:
                summary = Summary(f"t{generation}", 2, "short")
            lineage, base = inherit(lineage, f"t{generation}", base, stop, summary), stop
            start = summary.up_to if summary else 0
            seen = [p for segment in lineage.segments for p in range(segment.start, segment.stop)]
            assert seen == list(range(start, stop))


def test_clipping_leaves_what_is_not_summarised():
    lineage = Lineage((Segment("root", 0, 5), Segment("child", 5, 9)))
    assert clipped(lineage, 0) == lineage.segments
    assert clipped(lineage, 3) == (Segment("root", 3, 5), Segment("child", 5, 9))
    assert clipped(lineage, 5) == (Segment("child", 5, 9),)
    assert clipped(lineage, 9) == ()


class TestCompactionRange:
    def test_the_oldest_that_fit(self):
        assert compaction_range([user()] * 10, 4, lambda entry: 1) == 4

    def test_all_where_all_fit(self):
        assert compaction_range([user()] * 10, 100, lambda entry: 1) == 10

    def test_never_a_pending_call(self):
        assert compaction_range(CONVERSATION, 100, lambda entry: 1) == 7

    @pytest.mark.parametrize("room", range(12))
    def test_never_between_a_call_and_its_result(self, room):
        count = compaction_range(CONVERSATION, room, lambda entry: 1)
        assert is_safe_point(CONVERSATION, count)
        assert 0 < count <= max(room, 1)

    def test_a_whole_exchange_even_where_it_does_not_fit(self):
        assert compaction_range([called("a"), result("a"), user()], 1, lambda entry: 10) == 2

    def test_nothing_to_take(self):
        assert compaction_range([], 10, lambda entry: 1) == 0
        assert compaction_range([called("a")], 10, lambda entry: 1) == 0

    def test_room_counts_what_entries_weigh(self):
        light, heavy = user("x"), user("x" * 3000)
        assert size_of(heavy) >= 1000 > size_of(light)
        assert compaction_range([light, light, heavy, light], 900, size_of) == 2


class TestSpawning:
    def spawned(self, slice_, **fields):
        slice_.spawn(ThreadKind.CHILD, "root.t1", born_of="c", first=(), **fields) if fields else slice_.spawn(
            ThreadKind.CHILD, "root.t1", born_of="c", first=(user().content[0],)
        )
        return slice_.spawned[-1]

    def test_it_sees_nothing_of_the_call_that_makes_it(self):
        child, lineage = self.spawned(a_slice(pending=call("c")))
        assert child.base == 1
        assert lineage.segments == (Segment("root", 0, 1),)

    def test_a_child_of_a_child_sees_the_whole_lineage(self):
        thread = replace(CHILD, base=3)
        slice_ = a_slice(thread=thread, lineage=Lineage((Segment("root", 0, 3),)), history=[user()] * 3, history_from=0)
        slice_.thread = replace(thread, length=0)
        slice_.append(user())
        child, lineage = self.spawned(slice_)
        assert child.base == 4
        assert child.ancestors == ("root", "root.child")
        assert lineage.segments == (Segment("root", 0, 3), Segment("root.child", 3, 4))

    def test_after_a_summary_it_sees_the_summary(self):
        slice_ = a_slice(history=[user(), said("a"), user()])
        slice_.summarise(2, "short")
        child, lineage = self.spawned(slice_)
        assert child.base == 3
        assert lineage == Lineage((Segment("root", 2, 3),), ("root", 2))

    def test_a_child_that_summarises_its_inherited_prefix_leaves_its_ancestors_alone(self):
        thread = replace(CHILD, base=3)
        inherited = Lineage((Segment("root", 0, 3),))
        slice_ = a_slice(thread=thread, lineage=inherited, history=[user(), said("a"), user()], history_from=0)
        slice_.summarise(2, "short")
        assert slice_.summaries == [Summary("root.child", 2, "short")]
        assert slice_.history == [user()]
        assert slice_.lineage == inherited
