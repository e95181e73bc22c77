"""How a remote store is reached. An administrator sets these; no request carries them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from inver.errors import Invalid
from inver.secrets import Secret

_ROLE = re.compile(r"arn:[a-z0-9-]+:iam:[^\s:]*:[^\s:]*:role/[^\s:*?]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageOptions:
    """Without credentials the provider's own chain applies: environment, instance role, workload identity."""

    endpoint: str | None = None
    allow_http: bool = False

    region: str | None = None
    path_style: bool = True
    access_key: str | None = None
    secret_key: Secret | None = None
    session_token: Secret | None = None
    sts_role: str | None = None
    """The role that is taken on for temporary keys."""
    sts_endpoint: str | None = None

    gcs_service_account: Secret | None = None
    """The JSON text of a service account key."""
    gcs_hmac_id: str | None = None
    gcs_hmac_secret: Secret | None = None
    """With an HMAC key, URLs cost a hundredth of what they cost with a service account's."""

    azure_account: str | None = None
    """Needed where the location does not name the account."""
    azure_key: Secret | None = None
    azure_sas: Secret | None = None

    def __post_init__(self) -> None:
        if (self.access_key is None) != (self.secret_key is None):
            raise Invalid("access_key and secret_key belong together", field="secret_key", fix="set both")
        if (self.gcs_hmac_id is None) != (self.gcs_hmac_secret is None):
            raise Invalid(
                "gcs_hmac_id and gcs_hmac_secret belong together", field="gcs_hmac_secret", fix="set both"
            )
        if self.session_token is not None and self.access_key is None:
            raise Invalid("session_token needs access_key and secret_key", field="session_token")
        self._check_endpoint("endpoint", self.endpoint)
        self._check_endpoint("sts_endpoint", self.sts_endpoint)
        if self.sts_role is None:
            return
        if not _ROLE.fullmatch(self.sts_role):
            raise Invalid("sts_role is not the ARN of a role", field="sts_role", fix="write arn:aws:iam::…")
        if self.access_key is None or self.region is None:
            raise Invalid("sts_role needs access_key, secret_key and region", field="sts_role")

    def _check_endpoint(self, field: str, endpoint: str | None) -> None:
        if endpoint is None:
            return
        scheme, _, rest = endpoint.partition("://")
        if scheme not in ("http", "https") or not rest or any(c in rest for c in "@?#\\ \t\r\n"):
            raise Invalid(
                f"{field} is not an http(s) URL without user, query and fragment",
                field=field,
                fix="write https://host:port",
            )
        if scheme == "http" and not self.allow_http:
            raise Invalid(
                f"{field} is not encrypted",
                field=field,
                fix="use https, or set allow_http for a network you trust",
            )
