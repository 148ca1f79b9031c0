"""Text for people and for models, cleaned of what neither can take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_agents.conversation.content import (
    Blob,
    Document,
    Image,
    Text,
    mended,
    plain_text,
    shown,
    without_surrogates,
)

BAD = "\N{REPLACEMENT CHARACTER}"
ESC = "\x1b"
BEL = "\x07"


class TestShown:
    @pytest.mark.parametrize(
        ("text", "seen"),
        [
            ("plain", "plain"),
            ("tab\tline\nnext", "tab\tline\nnext"),
            ("windows\r\nline", "windows\nline"),
            ("over\rwritten", "overwritten"),
            (f"{ESC}[31mred{ESC}[0m", "red"),
            (f"{ESC}[1;38;5;208mbold{ESC}[m", "bold"),
            (f"{ESC}[2J{ESC}[Hcleared", "cleared"),
            (f"{ESC}[?25lhidden", "hidden"),
            ("\x9b31mred", "red"),
            (f"{ESC}]0;title{BEL}text", "text"),
            (f"{ESC}]0;title{ESC}\\text", "text"),
            ("\x9d0;title\x9ctext", "text"),
            (f"{ESC}]8;;https://evil.example{ESC}\\link{ESC}]8;;{ESC}\\", "link"),
            (f"{ESC}]52;c;c2VjcmV0{BEL}clipboard", "clipboard"),
            (f"before{ESC}]0;never closed", "before"),
            ("bell\x07back\x08space", "bellbackspace"),
            ("nul\x00del\x7fnel\x85", "nuldelnel"),
            ("\u202eesrever\u202c", "esrever"),
            ("\u2066isolated\u2069", "isolated"),
            ("a\ud800b", f"a{BAD}b"),
            (
                "emoji \N{GRINNING FACE} \N{LATIN SMALL LETTER E WITH ACUTE}",
                "emoji \N{GRINNING FACE} \N{LATIN SMALL LETTER E WITH ACUTE}",
            ),
            ("\u05e9\u05dc\u05d5\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
        ],
    )
    def test_what_people_see(self, text, seen):
        assert shown(text) == seen

    @given(st.text() | st.text("\x1b[]0;m\x07\\\x9b\x9c\x9da\u202e\ud800\r\n"))
    def test_nothing_that_moves_a_terminal_is_left(self, text):
        seen = shown(text)
        assert not [
            letter
            for letter in seen
            if (letter < " " and letter not in "\t\n")
            or "\x7f" <= letter <= "\x9f"
            or "\u202a" <= letter <= "\u202e"
            or "\u2066" <= letter <= "\u2069"
            or "\ud800" <= letter <= "\udfff"
        ]
        seen.encode()

    @given(st.text(st.characters(blacklist_categories=["Cc", "Cs", "Cf"])))
    def test_ordinary_text_stays_as_it_is(self, text):
        assert shown(text) == text


@given(st.text())
def test_mended_text_is_what_a_model_can_take(text):
    taken = mended(text)
    taken.encode()
    assert "\x00" not in taken
    assert len(taken) == len(text)
    assert mended(taken) == taken


def test_mending_keeps_escapes():
    assert mended("\x1b[31m\x00") == f"\x1b[31m{BAD}"


def test_without_surrogates():
    assert without_surrogates("a\ud83d\ude00b\x00") == f"a{BAD}{BAD}b\x00"


def test_parts_for_a_reader_of_text():
    parts = (
        Text("look"),
        Image("aGk=", "image/png"),
        Document("aGk=", "application/pdf", "a.pdf"),
        Blob("0" * 64, 12, "image"),
    )
    lines = plain_text(parts).split("\n")
    assert lines[0] == "look"
    assert "image/png" in lines[1]
    assert "a.pdf" in lines[2]
    assert "image" in lines[3]
    assert len(lines) == 4
