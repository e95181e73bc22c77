from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.names import SEPARATOR, check_name, dotted, name_key, path_key
from inver.errors import Invalid

texts = st.text(st.characters(codec="utf-8"), max_size=40)


def accepted(value: str) -> bool:
    try:
        return check_name(value, "name") == value
    except Invalid:
        return False


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "a",
        "...",
        "a.b",
        "with space",
        "a/b",
        "50%",
        "a+b",
        "a%2Fb",
        "*",
        "'; DROP TABLE x; --",
        "日本語",
        "全角\u3000空白",
        "Größe",
        "🐟",
        "é" * 127,
        "x" * 255,
    ],
)
def test_names_of_every_protocol_are_taken_as_given(name):
    assert check_name(name, "name") == name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "is empty"),
        (".", "not a name"),
        ("..", "not a name"),
        (" a", "white space"),
        ("a ", "white space"),
        ("\u3000a", "white space"),
        ("a\u00a0", "white space"),
        ("a\x00b", "U+0000 at position 1"),
        ("a\nb", "U+000A at position 1"),
        ("a\x1fb", "U+001F at position 1"),
        ("ab\x7f", "U+007F at position 2"),
        ("\x85a", "U+0085 at position 0"),
        ("pay\u202epal", "U+202E at position 3"),
        ("a\u200bb", "U+200B at position 1"),
        ("\ufeffa", "U+FEFF at position 0"),
        ("tag\U000e0041", "U+E0041 at position 3"),
        ("a\u2028b", "U+2028 at position 1"),
        ("a\u2029b", "U+2029 at position 1"),
        ("a\ud800b", "U+D800 at position 1"),
        ("a\ue000b", "U+E000 at position 1"),
        ("x" * 256, "256 bytes"),
        ("é" * 128, "256 bytes"),
    ],
)
def test_what_cannot_be_a_name_is_refused_with_the_reason(name, problem):
    with pytest.raises(Invalid) as refused:
        check_name(name, "table")
    assert problem in refused.value.message
    assert refused.value.message.startswith("table ")
    assert refused.value.field == "table"
    assert refused.value.fix


@given(texts)
def test_an_accepted_name_shows_all_its_characters(value):
    hidden = any(unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} for c in value)
    fits = 0 < len(value.encode()) <= 255 and value == value.strip() and value not in (".", "..")
    assert accepted(value) == (fits and not hidden)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Orders", "oRDERS"),
        ("É", "é"),
        ("Cafe\u0301", "CAFÉ"),
        ("STRASSE", "straße"),
        ("ΣΑΣ", "σας"),
        ("ΑΙ", "ᾳ"),
        ("ǰ", "J\u030c"),
        ("\u212b", "å"),
    ],
)
def test_spellings_of_one_name_have_one_key(one, other):
    assert name_key(one) == name_key(other)


def test_different_names_have_different_keys():
    names = ["a", "b", "a ", "á", "aa", "ı", "i̇", "ａ", "a.b", "a/b"]
    assert len({name_key(name) for name in names}) == len(names)


@given(texts)
def test_a_key_is_its_own_key(value):
    key = name_key(value)
    assert name_key(key) == key


def test_every_single_character_has_a_stable_and_normal_key():
    keys = [name_key(chr(c)) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    assert [key for key in keys if name_key(key) != key] == []
    assert [key for key in keys if not unicodedata.is_normalized("NFC", key)] == []


@given(texts)
def test_canonically_equivalent_names_have_one_key(value):
    forms = {unicodedata.normalize(form, value) for form in ("NFC", "NFD")}
    assert {name_key(form) for form in forms} == {name_key(value)}


@given(st.text(st.characters(max_codepoint=127), max_size=40))
def test_the_short_way_for_ascii_agrees_with_the_rule(value):
    assert name_key(value) == unicodedata.normalize("NFC", value.casefold())


@given(st.lists(texts.filter(accepted), max_size=4), st.lists(texts.filter(accepted), max_size=4))
def test_paths_have_one_key_exactly_if_their_parts_do(one, other):
    same = [name_key(part) for part in one] == [name_key(part) for part in other]
    assert (path_key(one) == path_key(other)) == same


def test_a_part_with_a_dot_is_not_two_parts():
    assert path_key(["a.b"]) != path_key(["a", "b"])
    assert path_key(["A", "b"]) == f"a{SEPARATOR}b"


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        (["main", "sales", "Orders"], "main.sales.Orders"),
        (["main", "a.b"], "main.`a.b`"),
        (["main", "tick`ed"], "main.`tick``ed`"),
        (["with space"], "with space"),
    ],
)
def test_paths_are_shown_with_dots(parts, shown):
    assert dotted(parts) == shown
