"""Markdown in posts: every part fits, nothing is lost, and code stays code."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from infinity_agents.slack.markdown import length, shown_in_slack, split

LINES = st.one_of(
    st.sampled_from(
        ["```", "```python", "~~~", "", "`````", "| a | b |", "|---|---|", "word " * 30, "x" * 700, "\U0001f389" * 200]
    ),
    st.sampled_from(["```" + "z" * 400, "`" * 300, "```a`b```"]),
    st.text(max_size=80),
)


def bare(text):
    return re.sub(r"[\s`~]|python", "", text)


@given(st.lists(LINES, max_size=40).map("\n".join), st.integers(300, 900))
@settings(max_examples=150, deadline=None)
def test_every_part_fits_and_together_they_say_it_all(text, limit):
    parts = split(text, limit)
    assert all(0 < length(part) <= limit for part in parts)
    assert bare("".join(parts)) == bare(text)


@given(st.integers(30, 400), st.sampled_from(["```python", "~~~~", "`````"]))
@settings(max_examples=50, deadline=None)
def test_a_block_that_is_cut_is_whole_in_each_part(lines, opening):
    fence = opening.removesuffix("python")
    text = "Before.\n\n" + "\n".join([opening, *(f"line {number}" for number in range(lines)), fence]) + "\n\nAfter."
    parts = split(text, 400)
    assert all(sum(line.startswith(fence) for line in part.split("\n")) % 2 == 0 for part in parts)
    assert "".join(parts).count("line ") == lines


def test_a_part_ends_with_a_paragraph_where_there_is_one():
    text = "\n\n".join("word " * 30 for _ in range(6))
    assert all(len(part) % 151 in {0, 149, 150} for part in split(text, 400))


def test_a_table_is_aligned_text():
    table = "| Town | Inhabitants |\n|:--|--:|\n| **K\u00f6ln** | 1\\|2 |\n| \u6771\u4eac | |"
    assert shown_in_slack(f"See:\n\n{table}\n\nDone.") == (
        "See:\n\n```\nTown  Inhabitants\n----  -----------\nK\u00f6ln  1|2\n\u6771\u4eac\n```\n\nDone."
    )


def test_what_is_code_is_no_table_and_what_has_bars_neither():
    code = "```\n| a | b |\n|---|---|\n```"
    assert shown_in_slack(code) == code
    assert shown_in_slack("a | b\nc | d") == "a | b\nc | d"


def test_a_mention_with_a_name_is_one_that_slack_knows():
    assert shown_in_slack("<@U1|Ann Lee>, ask <@U2> and <https://a.example|b>") == (
        "<@U1>, ask <@U2> and <https://a.example|b>"
    )


def test_nothing_rings_for_a_whole_channel():
    assert shown_in_slack("<!channel> <!here|here> <!subteam^S1|@ops>") == "@channel @here @ops"
