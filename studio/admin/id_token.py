"""An ID token: who signed it, for whom, until when, and of which sign-in; and whom its claims name. Fetches nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from studio.errors import AdminRefused

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Of key pairs alone: with a shared secret, whoever can check a token could make one."""
CLAIMS = ("iss", "sub", "aud", "exp", "iat", "nonce")
LEEWAY_S = 60
"""By so much the provider's clock and ours may differ."""
NAME_CHARS = 80


@dataclass(frozen=True, slots=True)
class Expected:
    """What a token must say of itself."""

    issuer: str
    client_id: str
    nonce: str


def key_of(token: str, keys: Sequence[jwt.PyJWK]) -> jwt.PyJWK | None:
    """The published key that the token names, or the only one if it names none; None if there is no such key.

    Raises: AdminRefused if this is no token.
    """
    try:
        name = jwt.get_unverified_header(token).get("kid")
    except jwt.PyJWTError as error:
        raise AdminRefused("admin.oidc_token", reason=str(error)) from error
    found = [key for key in keys if name is None or key.key_id == name]
    return found[0] if len(found) == 1 else None


def claims_of(token: str, key: jwt.PyJWK, expected: Expected) -> dict[str, Any]:
    """What the token says, once everything that makes it worth believing was checked.

    Raises: AdminRefused for a signature, issuer, audience, time or nonce that is not right.
    """
    try:
        claims: dict[str, Any] = jwt.decode(
            token, key, algorithms=list(ALGORITHMS), audience=expected.client_id, issuer=expected.issuer,
            leeway=LEEWAY_S, options={"require": list(CLAIMS)},
        )  # fmt: skip
    except jwt.PyJWTError as error:
        raise AdminRefused("admin.oidc_token", reason=str(error)) from error
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if (several or "azp" in claims) and claims.get("azp") != expected.client_id:
        raise AdminRefused("admin.oidc_token", reason="azp")
    if not secrets.compare_digest(str(claims["nonce"]).encode("utf-8", "replace"), expected.nonce.encode()):
        raise AdminRefused("admin.oidc_token", reason="nonce")
    return claims


def is_named(claims: dict[str, Any], admins: Iterable[tuple[str, str]]) -> bool:
    """Whether one of these claims has, or holds, the value beside it; an email counts once the provider verified it."""
    return any(
        value in _values(claims, claim)
        for claim, value in admins
        if claim != "email" or claims.get("email_verified") is True
    )


def name_of(claims: dict[str, Any]) -> str:
    """What the log calls somebody."""
    return str(claims.get("preferred_username") or claims.get("email") or claims["sub"])[:NAME_CHARS]


def _values(claims: dict[str, Any], claim: str) -> list[str]:
    """A claim's texts. `realm_access.roles` is a claim of that name, else the roles in realm_access."""
    found = claims.get(claim)
    if found is None and "." in claim:
        outer, _, inner = claim.partition(".")
        within = claims.get(outer)
        return _values(within, inner) if isinstance(within, dict) else []
    return [value for value in (found if isinstance(found, list) else [found]) if isinstance(value, str)]
