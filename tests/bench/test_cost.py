"""The page about cost says what the script computes, and the script counts what a slice was seen to do."""

from bench import cost


def test_the_page_is_what_the_script_writes():
    assert cost.PAGE.read_text() == cost.page(), "run python -m bench.cost"


def test_a_total_is_the_sum_of_its_lines():
    total = sum(line.total for line in cost.a_thousand_slices())
    assert f"| **all** | | | **{total:.2f}** |" in cost.page()
