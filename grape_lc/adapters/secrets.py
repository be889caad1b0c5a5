"""Names of what must not be told: environment variables, fields and options that hold secrets."""

from __future__ import annotations

import re

# Whole words of a name: KEY in OPENAI_API_KEY, but not in KEYBOARD or MONKEY.
_SECRET = re.compile(
    r"(?:^|_)(?:API_?KEY|KEY|KEYS|TOKEN|TOKENS|SECRET|SECRETS|PASSWORD|PASSWD|PASS|PASSPHRASE"
    r"|CREDENTIAL|CREDENTIALS|AUTH|COOKIE|DSN|PAT)(?:_|$)|_PWD$",
    re.IGNORECASE,
)
# URLs of services often carry a password.
_ADDRESS = re.compile(r"://[^/\s]*:[^/\s]*@")


def is_secret_name(name: str) -> bool:
    """Whether something of this name is likely to be a secret."""
    return _SECRET.search(name) is not None


def holds_secret(name: str, value: str) -> bool:
    """Whether a variable of the environment is likely to hold one."""
    return is_secret_name(name) or _ADDRESS.search(value) is not None
