"""From a location and options to an obstore client. obstore loads on first use, not with the server."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from inver.domain.locations import Location
from inver.errors import Invalid
from inver.storage.options import StorageOptions

if TYPE_CHECKING:
    from obstore.store import (
        AzureConfig,
        AzureStore,
        ClientConfig,
        GCSConfig,
        GCSStore,
        RetryConfig,
        S3Config,
        S3Credential,
        S3Store,
    )

    Client = S3Store | GCSStore | AzureStore

_AZURE_HOST = ".dfs.core.windows.net"


def connect(root: Location, options: StorageOptions, *, retries: int) -> Client:
    """A client for everything below `root`."""
    client_options: ClientConfig = {
        "allow_http": options.allow_http,
        "connect_timeout": timedelta(seconds=5),
        "timeout": timedelta(seconds=20),
    }
    retry_config: RetryConfig = {"max_retries": retries, "retry_timeout": timedelta(seconds=20)}
    if root.scheme == "s3":
        return _s3(root, options, client_options, retry_config)
    if root.scheme == "gs":
        return _gcs(root, options, client_options, retry_config)
    if root.scheme == "abfss":
        return _azure(root, options, client_options, retry_config)
    raise Invalid(f"{root} is not in an object store", field="location")


def _s3(root: Location, options: StorageOptions, client: ClientConfig, retry: RetryConfig) -> S3Store:
    from obstore.store import S3Store

    config: S3Config = {
        "virtual_hosted_style_request": not options.path_style,
        # The bulk call saves nothing for one object, and not every S3 has it.
        "disable_bulk_delete": True,
    }
    if options.region:
        config["region"] = options.region
    if options.endpoint:
        endpoint = options.endpoint.rstrip("/")
        if not options.path_style:
            endpoint = endpoint.replace("://", f"://{root.authority}.", 1)
        config["endpoint"] = endpoint
        # AWS_ENDPOINT_URL_S3 of the environment would win over `endpoint`.
        config["aws_endpoint_url_s3"] = endpoint
    access_key, secret_key = options.access_key, options.secret_key
    if access_key is None or secret_key is None:
        return S3Store(
            root.authority, prefix=root.key, config=config, client_options=client, retry_config=retry
        )

    def credentials() -> S3Credential:
        # Given as a whole, because single keys would be mixed with AWS_SESSION_TOKEN of the environment.
        return {
            "access_key_id": access_key,
            "secret_access_key": secret_key.reveal(),
            "token": options.session_token.reveal() if options.session_token else None,
            "expires_at": None,
        }

    return S3Store(
        root.authority,
        prefix=root.key,
        config=config,
        client_options=client,
        retry_config=retry,
        credential_provider=credentials,
    )


def _gcs(root: Location, options: StorageOptions, client: ClientConfig, retry: RetryConfig) -> GCSStore:
    from obstore.store import GCSStore

    config: GCSConfig = {}
    if options.endpoint:
        config["base_url"] = options.endpoint
    if options.gcs_service_account:
        config["service_account_key"] = options.gcs_service_account.reveal()
    return GCSStore(root.authority, prefix=root.key, config=config, client_options=client, retry_config=retry)


def _azure(root: Location, options: StorageOptions, client: ClientConfig, retry: RetryConfig) -> AzureStore:
    from obstore.store import AzureStore

    container, _, host = root.authority.partition("@")
    config: AzureConfig = {"account_name": azure_account(host, options)}
    if options.endpoint:
        config["endpoint"] = options.endpoint
    if options.azure_key:
        config["account_key"] = options.azure_key.reveal()
    if options.azure_sas:
        config["sas_key"] = options.azure_sas.reveal()
    return AzureStore(container, prefix=root.key, config=config, client_options=client, retry_config=retry)


def azure_account(host: str, options: StorageOptions) -> str:
    """A location may name an account of Azure, never a host of its author's choice."""
    named = host.partition(".")[0]
    if host and not host.endswith(_AZURE_HOST) and options.endpoint is None:
        raise Invalid(
            f"{host} is not a host of Azure storage",
            field="location",
            fix=f"use account{_AZURE_HOST}, or let an administrator set the endpoint",
        )
    account = options.azure_account or named
    if not account:
        raise Invalid("no Azure account is named", field="location", fix="write container@account")
    if named and named != account:
        raise Invalid(f"the location names account {named}, and the storage is {account}", field="location")
    return account
