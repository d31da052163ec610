"""Signing in by an OpenID provider: authorization code with PKCE, and who of its people is an administrator."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
import time
from dataclasses import dataclass

from studio.admin.id_token import Expected, claims_of, is_named, key_of, name_of
from studio.admin.provider import Client, Provider
from studio.errors import AdminRefused
from studio.messages import render
from studio.protocols import Clock
from studio.settings import Settings

logger = logging.getLogger(__name__)

FLOW_S = 600.0
"""A sign-in that was begun ends by then."""


@dataclass(frozen=True, slots=True)
class Flow:
    """The secrets of one sign-in. All come from its cookie and a key of this process, so nothing is kept in between."""

    state: str
    nonce: str
    verifier: str

    @property
    def challenge(self) -> str:
        return _text(hashlib.sha256(self.verifier.encode()).digest())


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider sends a browser back with."""

    state: str = ""
    code: str = ""
    error: str = ""
    iss: str = ""


class SignIn:
    """admins: claims and the value that each must have or hold; whoever has one of them is let in."""

    def __init__(self, provider: Provider, admins: tuple[tuple[str, str], ...], clock: Clock) -> None:
        self.host = provider.host
        self._provider = provider
        self._admins = admins
        self._clock = clock
        self._key = secrets.token_bytes(32)

    async def begin(self, redirect_uri: str) -> tuple[str, str]:
        """The address where the person signs in, and a cookie that ties the answer to this browser.

        Raises: ProviderError if the provider is of no use.
        """
        cookie = f"{int(self._clock() + FLOW_S)}.{secrets.token_urlsafe(24)}"
        flow = self._flow(cookie)
        asked = {"state": flow.state, "nonce": flow.nonce, "code_challenge": flow.challenge}
        return await self._provider.page(redirect_uri, asked), cookie

    async def end(self, cookie: str, answer: Answer, redirect_uri: str) -> str:
        """The name of the administrator whom the answer proves.

        Raises: AdminRefused if it proves nobody, or somebody who is none; ProviderError.
        """
        flow = self._flow(cookie)
        ours = secrets.compare_digest(answer.state.encode("utf-8", "replace"), flow.state.encode())
        if not ours or self._clock() > int(cookie.partition(".")[0]):
            raise AdminRefused("admin.oidc_state")
        issuer = await self._provider.issuer()
        if answer.iss and answer.iss != issuer:
            raise AdminRefused("admin.oidc_token", reason="iss")
        if answer.error or not answer.code:
            reason = "".join(filter(str.isprintable, answer.error[:100])) or "code"  # anybody may write it
            raise AdminRefused("admin.oidc_refused", provider=self.host, reason=reason)
        token = await self._provider.id_token(answer.code, redirect_uri, flow.verifier)
        key = key_of(token, await self._provider.keys()) or key_of(token, await self._provider.keys(again=True))
        if key is None:
            raise AdminRefused("admin.oidc_token", reason="kid")
        claims = claims_of(token, key, Expected(issuer, self._provider.client.id, flow.nonce))
        if not is_named(claims, self._admins):
            subject = str(claims["sub"])[:100]
            raise AdminRefused("admin.oidc_not_listed", name=name_of(claims), subject=subject)
        return name_of(claims)

    def _flow(self, cookie: str) -> Flow:
        return Flow(*(self._derived(use, cookie) for use in ("state", "nonce", "verifier")))

    def _derived(self, use: str, cookie: str) -> str:
        text = f"{use} {cookie}".encode("utf-8", "replace")
        return _text(hmac.digest(self._key, text, "sha256"))


def sign_in_of(settings: Settings) -> SignIn | None:
    """What the settings ask for; None without a provider, or if nobody could sign in."""
    if not settings.oidc_issuer:
        return None
    if not settings.admins():
        logger.warning("%s", render("admin.oidc_nobody"))
        return None
    client = Client(settings.oidc_client_id, settings.oidc_client_secret, settings.oidc_scopes)
    return SignIn(Provider(settings.oidc_issuer, client), settings.admins(), time.monotonic)


def _text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
