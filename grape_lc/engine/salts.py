"""Salts that keep the prefix caches of tenants apart.

vLLM mixes a request's ``cache_salt`` into the hash of its first block, on which all later ones
build, so two requests share cached KV only if their salts are the same. A tenant's salt is the
HMAC-SHA256 (RFC 2104) of its name under a secret: who knows the name cannot make the salt.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from typing import Any

from grape_lc.errors import ConfigError

SECRET_VARIABLE = "GRAPE_LC_TENANT_SECRET"  # noqa: S105 - the name of a variable
"""Environment variable with a secret for engines whose salts are to be the same."""

LEAST_SECRET = 32
"""Characters of a secret that is given."""


class CacheSalts:
    """The salts of one engine. secret: None draws one, which nobody else has."""

    def __init__(self, secret: str | None = None) -> None:
        if secret is not None and len(secret) < LEAST_SECRET:
            raise ConfigError(
                f"{SECRET_VARIABLE} has {len(secret)} characters, at least {LEAST_SECRET} are "
                "needed; make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
        self._secret = secrets.token_bytes() if secret is None else secret.encode()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> CacheSalts:
        """With the secret that the environment gives, if it does. Raises ConfigError."""
        return cls(environment.get(SECRET_VARIABLE) or None)

    def of(self, tenant: str) -> str | None:
        """The tenant's salt, 64 hexadecimal digits; none for calls without a tenant."""
        if not tenant:
            return None
        name = tenant.encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, name, hashlib.sha256).hexdigest()


def what_mixes_tenants(speculative: Any) -> str | None:
    """What of an engine's drafting would show one tenant the answers of another; None: nothing.

    speculative: vLLM's configuration of it, if there is one. Suffix decoding drafts from a tree of
    all requests' answers: a guess that is right, of what another was answered, comes sooner.
    """
    if getattr(speculative, "method", None) != "suffix":
        return None
    if not speculative.suffix_decoding_max_cached_requests:
        return None
    return (
        "this engine drafts by suffix from the answers of all requests; for tenants make it with "
        "suffix_decoding_max_cached_requests=0 in speculative_config"
    )
