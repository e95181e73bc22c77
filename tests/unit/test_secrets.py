from __future__ import annotations

import copy
import logging
import pickle
import re
import traceback

import msgspec
import pytest

from inver.secrets import Secret, hash_secret, new_token_secret

PLAIN = "correct horse battery staple"


def test_a_secret_is_masked_wherever_it_is_shown(caplog):
    secret = Secret(PLAIN)
    logging.getLogger("inver.test").warning("using %s and %r", secret, {"key": secret})
    try:
        raise ValueError(secret)
    except ValueError:
        trace = traceback.format_exc()
    shown = [repr(secret), str(secret), f"{secret}", repr([secret]), caplog.text, trace]
    assert [text for text in shown if PLAIN in text] == []
    assert repr(secret) == "Secret(***)"
    assert secret.reveal() == PLAIN


def test_secrets_compare_by_value_and_only_with_secrets():
    assert Secret(PLAIN) == Secret(PLAIN)
    assert Secret(PLAIN) != Secret(PLAIN + "r")
    assert Secret("schlüssel") == Secret("schlüssel")
    assert Secret("\udc80") != Secret("\udc81")
    assert Secret(PLAIN) != PLAIN
    assert len({Secret(PLAIN), Secret(PLAIN), Secret("other")}) == 2


@pytest.mark.parametrize("dump", [pickle.dumps, copy.deepcopy, msgspec.json.encode])
def test_a_secret_is_not_serialised(dump):
    with pytest.raises(TypeError):
        dump(Secret(PLAIN))


def test_tokens_are_long_random_and_safe_in_urls():
    tokens = {new_token_secret().reveal() for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", token) for token in tokens)


def test_the_hash_is_sha256_of_the_text():
    # Of "abc", from the standard that defines SHA-256.
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert hash_secret(Secret("abc")) == hash_secret("abc") == known
