"""The keys: rotation, purposes, and settings that cannot be meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_agents.errors import Misconfigured
from infinity_agents.wire.keys import Keyring

ONE = "one:0123456789abcdef"
TWO = "two:fedcba9876543210"


class TestParsing:
    def test_the_first_signs(self):
        assert Keyring.parse(f"{TWO},{ONE}").sign("p", b"m").startswith("two:")

    def test_spaces_around_a_key_are_nothing(self):
        assert Keyring.parse(f" {ONE} , {TWO}\n").keys == Keyring.parse(f"{ONE},{TWO}").keys

    def test_a_secret_may_hold_colons(self):
        assert Keyring.parse("k:0123:4567:89ab:cdef").keys == {"k": b"0123:4567:89ab:cdef"}

    @pytest.mark.parametrize(
        "setting",
        [
            "",
            "no-colon-at-all-here",
            ":0123456789abcdef",
            "a b:0123456789abcdef",
            f"{ONE},",
            "k" * 33 + ":0123456789abcdef",
        ],
    )
    def test_not_a_key(self, setting):
        with pytest.raises(Misconfigured, match="keyid:secret"):
            Keyring.parse(setting)

    def test_too_short_a_secret(self):
        with pytest.raises(Misconfigured, match="16 characters") as caught:
            Keyring.parse("k:short-secret")
        assert "short-secret" not in str(caught.value)

    def test_one_name_for_two_keys(self):
        with pytest.raises(Misconfigured, match="twice"):
            Keyring.parse(f"{ONE},{ONE}")

    def test_secrets_do_not_show(self):
        assert "0123456789abcdef" not in repr(Keyring.parse(ONE))


class TestProving:
    keys = Keyring.parse(f"{ONE},{TWO}")

    @given(message=st.binary(max_size=50), purpose=st.text(max_size=10))
    def test_what_it_signs_it_accepts(self, message, purpose):
        assert self.keys.proves(purpose, message, self.keys.sign(purpose, message))

    def test_each_key_counts(self):
        for setting in (ONE, TWO):
            assert self.keys.proves("p", b"m", Keyring.parse(setting).sign("p", b"m"))

    def test_a_key_that_is_not_there_does_not(self):
        assert not Keyring.parse(ONE).proves("p", b"m", Keyring.parse(TWO).sign("p", b"m"))

    def test_another_message(self):
        assert not self.keys.proves("p", b"n", self.keys.sign("p", b"m"))

    def test_another_purpose(self):
        assert not self.keys.proves("q", b"m", self.keys.sign("p", b"m"))

    def test_another_key_under_the_same_name(self):
        assert not self.keys.proves("p", b"m", Keyring.parse("one:another-secret-16").sign("p", b"m"))

    def test_the_name_of_another_key(self):
        mac = self.keys.sign("p", b"m").partition(":")[2]
        assert not self.keys.proves("p", b"m", f"two:{mac}")

    @given(st.text(max_size=80))
    def test_nonsense(self, proof):
        assert not self.keys.proves("p", b"m", proof)
        assert not self.keys.proves("p", b"m", f"one:{proof}")

    def test_a_proof_cut_short_or_made_longer(self):
        proof = self.keys.sign("p", b"m")
        assert not self.keys.proves("p", b"m", proof[:-1])
        assert not self.keys.proves("p", b"m", proof + "0")
