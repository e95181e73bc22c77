"""What is asked of a token service, and what is made of its answers. B2 and B5 are of the attack list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inver.domain.locations import Location
from inver.errors import Broken, Invalid, InverError, Unavailable
from inver.ports import StorageAccess
from inver.secrets import Secret
from inver.storage.options import StorageOptions
from inver.storage.sts import _credential, _refused, session_policy

ROLE = "arn:aws:iam::123456789012:role/team/lake"
KEYS: dict[str, Any] = {"access_key": "id", "secret_key": Secret("key"), "region": "eu-central-1"}
ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>the/secret+</SecretAccessKey><SessionToken>tok==</SessionToken>
<Expiration>2024-01-01T01:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


def statements(location: str, access: StorageAccess = StorageAccess.READ, **more: str) -> list[Any]:
    text = session_policy(Location.parse(location), access, **more)
    assert text.isascii()
    told = json.loads(text)
    assert told["Version"] == "2012-10-17"
    assert all(each["Effect"] == "Allow" for each in told["Statement"])
    found: list[Any] = told["Statement"]
    return found


def test_a_policy_names_one_folder_and_what_is_below_it():
    objects, listing = statements("s3://bucket/root/orders")
    assert objects["Action"] == ["s3:GetObject"]
    # B5: a sibling whose name begins alike is not below it.
    assert objects["Resource"] == "arn:aws:s3:::bucket/root/orders/*"
    assert (listing["Action"], listing["Resource"]) == (["s3:ListBucket"], "arn:aws:s3:::bucket")
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["root/orders/*"]}}
    assert statements("s3://bucket/root/orders/") == [objects, listing]


def test_who_may_write_may_also_delete():
    objects, _ = statements("s3://bucket/orders", StorageAccess.READ_WRITE)
    assert {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"} <= set(objects["Action"])
    assert not [action for action in objects["Action"] if "*" in action or "Bucket" in action]


def test_b2_a_name_is_no_pattern():
    objects, listing = statements("s3://bucket/a*/b$c/ü")
    assert objects["Resource"] == "arn:aws:s3:::bucket/a${*}/b${$}c/ü/*"
    assert listing["Condition"]["StringLike"]["s3:prefix"] == ["a${*}/b${$}c/ü/*"]
    quoted, _ = statements('s3://bucket/a"},{"b')
    assert quoted["Resource"] == 'arn:aws:s3:::bucket/a"},{"b/*'


def test_other_parts_of_aws_have_other_names():
    objects, _ = statements("s3://bucket/orders", partition="aws-cn")
    assert objects["Resource"] == "arn:aws-cn:s3:::bucket/orders/*"


def test_keys_and_when_they_end():
    keys = _credential(ANSWER.encode())
    assert (keys.access_key_id, keys.expires_at) == ("ASIA1", 1_704_070_800_000)
    assert keys.secret_access_key is not None
    assert keys.session_token is not None
    assert (keys.secret_access_key.reveal(), keys.session_token.reveal()) == ("the/secret+", "tok==")
    assert "secret" not in repr(keys).replace("secret_access_key", "")


@pytest.mark.parametrize(
    "answer",
    ["", "{}", "<x/>", ANSWER.replace("SessionToken", "Other"), ANSWER.replace("2024-01-01T01", "soon")],
)
def test_answers_that_are_none(answer: str):
    with pytest.raises(Unavailable):
        _credential(answer.encode())


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (403, "<E><Error><Code>AccessDenied</Code></Error></E>", Broken),
        (400, "<E><Error><Code>PackedPolicyTooLarge</Code></Error></E>", Broken),
        (400, "<E><Error><Code>Throttling</Code></Error></E>", Unavailable),
        (429, "", Unavailable),
        (503, "<html>", Unavailable),
        (404, "not here", Broken),
    ],
)
def test_refusals(status: int, body: str, kind: type[InverError]):
    error = _refused(status, body.encode())
    assert type(error) is kind
    assert ("AccessDenied" in body) == ("AccessDenied" in error.message)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"sts_role": ROLE}, "sts_role"),
        ({**KEYS, "region": None, "sts_role": ROLE}, "sts_role"),
        ({**KEYS, "sts_role": "lake"}, "sts_role"),
        ({**KEYS, "sts_role": "arn:aws:iam::1:user/lake"}, "sts_role"),
        ({**KEYS, "sts_role": ROLE + "*"}, "sts_role"),
        ({**KEYS, "sts_role": ROLE, "sts_endpoint": "http://sts.example"}, "sts_endpoint"),
        ({**KEYS, "sts_role": ROLE, "sts_endpoint": "sts.example"}, "sts_endpoint"),
    ],
)
def test_settings_that_do_not_do(given: dict[str, Any], field: str):
    with pytest.raises(Invalid) as refused:
        StorageOptions(**given)
    assert refused.value.field == field


def test_settings_that_do():
    StorageOptions(**KEYS, sts_role=ROLE)
    StorageOptions(**KEYS, sts_role=ROLE.replace("aws", "aws-us-gov"), sts_endpoint="https://sts.example/x")
