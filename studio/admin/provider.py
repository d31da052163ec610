"""The OpenID provider over HTTP: what it publishes of itself, its keys, and a code turned into an ID token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import jwt

from studio.errors import AdminRefused, ProviderError
from studio.protocols import Clock
from studio.settings import is_safe_address

PATIENCE_S = 10.0
FRESH_S = 3600.0
"""So long what the provider publishes is not asked for again: a key that it withdrew is forgotten by then."""
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(frozen=True, slots=True)
class Client:
    """What the provider knows us by. secret: "" for a public client, which PKCE alone protects."""

    id: str
    secret: str
    scopes: str


class Provider:
    """One provider. Owner: the event loop. Each call raises ProviderError if it does not answer, or not as one does."""

    def __init__(
        self, issuer: str, client: Client, patience_s: float = PATIENCE_S, clock: Clock = time.monotonic
    ) -> None:
        self._wanted = issuer.rstrip("/")
        self.patience_s = patience_s
        self._clock = clock
        self._document: dict[str, Any] = {}
        self._keys: list[jwt.PyJWK] = []
        self._read_s = float("-inf")
        self.client = client
        self.host = urlsplit(issuer).netloc

    async def page(self, redirect_uri: str, flow: Mapping[str, str]) -> str:
        """The address where a person signs in. flow: state, nonce and code_challenge."""
        document = await self._published()
        wanted = {"response_type": "code", "client_id": self.client.id, "scope": self.client.scopes}
        wanted |= {"redirect_uri": redirect_uri, "code_challenge_method": "S256", **flow}
        return str(httpx.URL(document["authorization_endpoint"]).copy_merge_params(wanted))

    async def issuer(self) -> str:
        """Its name, as its tokens have it."""
        return str((await self._published())["issuer"])

    async def keys(self, again: bool = False) -> list[jwt.PyJWK]:
        """Its keys for signatures. again: ask once more, since a token names one that is not known."""
        document = await self._published()
        if again or not self._keys:
            self._keys = _signing_keys(await self._json("GET", document["jwks_uri"]))
        return self._keys

    async def id_token(self, code: str, redirect_uri: str, verifier: str) -> str:
        """The ID token that a code stands for. Raises AdminRefused if the provider does not take the code."""
        document = await self._published()
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        form |= {"code_verifier": verifier}
        ways = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        auth: httpx.BasicAuth | None = None
        if self.client.secret and "client_secret_basic" in ways:
            auth = httpx.BasicAuth(quote(self.client.id, safe=""), quote(self.client.secret, safe=""))
        else:
            form |= {"client_id": self.client.id}
            form |= {"client_secret": self.client.secret} if self.client.secret else {}
        reply = await self._json("POST", document["token_endpoint"], data=form, auth=auth)
        if "error" in reply:
            raise AdminRefused("admin.oidc_refused", provider=self.host, reason=str(reply["error"])[:100])
        return str(reply.get("id_token", ""))

    async def _published(self) -> dict[str, Any]:
        """Its discovery document, read again when it is an hour old; with it, the keys."""
        now_s = self._clock()
        if now_s - self._read_s > FRESH_S:
            document = await self._json("GET", f"{self._wanted}/.well-known/openid-configuration")
            if str(document.get("issuer")).rstrip("/") != self._wanted:
                raise self._wrong(f"issuer {document.get('issuer')}")
            for name in ENDPOINTS:
                if not is_safe_address(document.get(name)):
                    raise self._wrong(name)
            self._document, self._keys, self._read_s = document, [], now_s
        return self._document

    async def _json(self, method: str, address: str, **how: Any) -> dict[str, Any]:
        """A JSON object within our patience; of a form, also the error that it is refused with."""
        try:
            async with asyncio.timeout(self.patience_s), httpx.AsyncClient(timeout=self.patience_s) as client:
                reply = await client.request(method, address, **how)
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
            raise ProviderError("admin.oidc_down", provider=self.host, reason=type(error).__name__) from error
        try:
            body = reply.json()
        except ValueError:
            body = None
        if reply.status_code >= 500 or reply.status_code == 429:
            raise ProviderError("admin.oidc_down", provider=self.host, reason=f"HTTP {reply.status_code}")
        if isinstance(body, dict) and (reply.is_success or (method == "POST" and "error" in body)):
            return body
        raise self._wrong(f"HTTP {reply.status_code}, {httpx.URL(address).path}")

    def _wrong(self, reason: str) -> ProviderError:
        return ProviderError("admin.oidc_wrong", provider=self.host, reason=reason[:200])


def _signing_keys(published: Mapping[str, Any]) -> list[jwt.PyJWK]:
    """Those of its keys that we can check signatures with; others, which it may need, are left out."""
    entries, found = published.get("keys"), []
    for entry in entries if isinstance(entries, list) else []:
        try:
            key = jwt.PyJWK(entry)
        except (jwt.PyJWTError, AttributeError):  # the latter: no object
            continue
        if key.public_key_use in (None, "sig"):
            found.append(key)
    return found
