"""What is known of a graph's prompts, for each tenant apart.

What runs teach are texts: a literal text of a template is what two runs had in common. So a
tenant's templates are learned from its own runs, and what was declared or traced holds for all.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from grape_lc.adapters.conversations import Conversations
from grape_lc.adapters.templates import Templates

MOST_TENANTS = 256
"""That are remembered, those with runs last; another one's runs teach anew."""


@dataclass(frozen=True, slots=True)
class Lore:
    """What one tenant's runs taught, and what all may know. Usable from any thread."""

    templates: Templates
    conversations: Conversations = field(default_factory=Conversations)


class TenantTemplates:
    """The lore of every tenant. Usable from any thread.

    templates: those of runs without a tenant, the only ones that are kept between processes.
    """

    def __init__(self, templates: Templates, most: int = MOST_TENANTS) -> None:
        self.nobodys = Lore(templates)
        self._most = most
        self._lore: OrderedDict[str, Lore] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._lore)

    def of(self, tenant: str) -> Lore:
        """The lore of a tenant; of a new one, what was declared and traced."""
        if not tenant:
            return self.nobodys
        with self._lock:
            lore = self._lore.get(tenant)
            if lore is None:
                lore = self._lore[tenant] = Lore(self.nobodys.templates.untaught())
                if len(self._lore) > self._most:
                    self._lore.popitem(last=False)
            else:
                self._lore.move_to_end(tenant)
            return lore
