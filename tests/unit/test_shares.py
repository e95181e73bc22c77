from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inver.domain.shares import check_shared_name, is_shared_name, may_call_from, parse_networks
from inver.errors import Invalid


@pytest.mark.parametrize("name", ["orders", "Ärger", "a-b_c$", "x" * 255])
def test_names_that_recipients_can_write(name):
    assert check_shared_name(name, "as") == name


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a.b", "a#b", "a\u2003b", "\x00", "x" * 256, ".."])
def test_names_that_they_cannot(name):
    with pytest.raises(Invalid) as refused:
        check_shared_name(name, "as")
    assert refused.value.field == "as"


def test_some_names_may_have_dots():
    assert check_shared_name("acme.com", "name", dots=True) == "acme.com"


@given(st.text())
def test_a_shared_name_can_be_joined_by_dots_and_split_again(name):
    if is_shared_name(name):
        assert f"share.{name}.table".split(".") == ["share", name, "table"]
        assert "#" not in name


@pytest.mark.parametrize(
    ("networks", "client", "may"),
    [
        ([], "anything", True),
        (["10.0.0.0/8"], "10.1.2.3", True),
        (["10.0.0.0/8"], "11.1.2.3", False),
        (["10.0.0.7"], "10.0.0.7", True),
        (["10.0.0.7"], "10.0.0.70", False),
        (["2001:db8::/32"], "2001:db8:1::1", True),
        (["2001:db8::/32"], "10.0.0.1", False),
        (["10.0.0.0/8"], "::ffff:10.0.0.1", True),
        (["10.0.0.0/8", "192.0.2.0/24"], "192.0.2.9", True),
        (["0.0.0.0/0"], "", False),
        (["0.0.0.0/0"], "localhost", False),
    ],
)
def test_networks(networks, client, may):
    assert may_call_from(parse_networks(networks, "networks"), client) is may


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "example.com", "", "*"])
def test_what_is_no_network_is_refused(text):
    with pytest.raises(Invalid):
        parse_networks([text], "networks")
