"""What display scripts say, and that nothing they contain gets out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infinity_agents.rap.display_script import MAX_SCRIPT, MAX_TEXT, evaluate

ARGS = {"location": "Tokyo", "days": 3, "hot": True, "note": None, "place": {"name": "Ginza"}, "list": [1]}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('"Weather for " + args.location', "Weather for Tokyo"),
        ("args.location", "Tokyo"),
        ('"in " + args.days + " days"', "in 3 days"),
        ('args.days + " days"', "3 days"),
        ('"" + args.hot', "true"),
        ('"at " + args.place.name', "at Ginza"),
        ('args["location"]', "Tokyo"),
        ('args["place"].name', "Ginza"),
        ('if args.missing == () { "none" } else { args.missing }', "none"),
        ('if args.note == () { "none" } else { "some" }', "none"),
        ('if args.location != () { "some" }', "some"),
        ('if args.days == 1 { "one" } else if args.days == 3 { "three" } else { "many" }', "three"),
        ('let s = "a"; s += "b"; if args.hot { s += "c"; } s', "abc"),
        ('let s = "a"; if args.days == 4 { s += "b"; } s += "c"; s', "ac"),
        ('let s = "a"; s = s + args.days; s', "a3"),
        ('let s; if s == () { s = "new"; } s', "new"),
        ('let x = if args.hot { "hot" } else { "cold" }; "It is " + x', "It is hot"),
        ('(1 + 2) + " items"', "3 items"),
        ('args.days + 1 + " days"', "4 days"),
        ('"a" + ()', "a"),
        ('"tab\\t\\"quoted\\" \\u00e9 \\x41"', 'tab\t"quoted" é A'),
        ("'x' + \"y\"", "xy"),
        ('// a comment\n"a" /* another */ + "b"', "ab"),
        ('if args.hot && args.days == 3 || args.nothing.at.all { "yes" }', "yes"),
        ('if !args.hot { "cold" } else { "hot" }', "hot"),
        ('if args.days == -3 { "minus" } else { "plus" }', "plus"),
        ("args.days", "3"),
        ("1.5", "1.5"),
        ('if args.note == () { "none" } else { args.note.name.length }', "none"),
    ],
)
def test_a_script_of_the_subset_is_evaluated(script, said):
    assert evaluate(script, ARGS) == said


@pytest.mark.parametrize(
    "script",
    [
        "",
        "()",
        "let s = 1;",
        '"a";',
        "args",
        "args.list",
        '"a" + args.place',
        "args.missing.field",
        "args.location.len()",
        'print("x")',
        "loop {}",
        'while true { "x" }',
        "for i in 0..10 { i }",
        "fn f() { 1 } f()",
        'import "x" as y; y::z',
        'eval("1")',
        "unknown",
        'if args.location { "not a bool" }',
        '"unclosed',
        '"a" + ',
        '"a" "b"',
        "1 +",
        "true + true",
        '"\\q"',
        '"\\uD800"',
        "99999999999999999999",
        '{ "a" ',
        '"a" }',
        "args[0]",
        "let if = 1;",
        "x += 1",
        "`template ${args.location}`",
        "(" * 1000 + "1" + ")" * 1000,
        "if true {" * 500 + "}" * 500,
        "!" * (MAX_SCRIPT - 1) + "1",
        "1+" * (MAX_SCRIPT // 2 - 1) + '"a"',
        '"' + "a" * MAX_SCRIPT + '"',
        'let s = "aaaaaaaaaaaaaaaa";' + "s += s;" * 30 + "s",
    ],
)
def test_everything_else_evaluates_to_nothing(script):
    assert evaluate(script, ARGS) is None


def test_what_an_argument_adds_counts_against_the_length():
    assert evaluate('"x" + args.long', {"long": "y" * MAX_TEXT}) is None


def test_huge_numbers_do_no_harm():
    assert evaluate('"" + (args.n + args.n)', {"n": 9 * 10**4299}) is None
    assert evaluate('"" + (args.n + 0.5)', {"n": 10**400}) is None


@given(st.text(alphabet="args.location\"+={}();!&|/ \nifelset1[]\\x'", max_size=60))
@settings(max_examples=300, deadline=None)
def test_no_script_raises(script):
    said = evaluate(script, ARGS)
    assert said is None or isinstance(said, str)


@given(st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_no_text_raises(script):
    said = evaluate(script, ARGS)
    assert said is None or isinstance(said, str)
