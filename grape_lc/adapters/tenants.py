"""On whose behalf a run or a call is: the ``tenant`` in the metadata of a LangChain config.

    app.invoke(inputs, config={"metadata": {"tenant": "acme"}})

A config is handed down to everything inside the run. A call may say it itself, which counts more
(``llm.invoke(x, tenant="acme")``, ``llm.bind(tenant="acme")``), and a model may have a tenant of
its own, which counts less.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks.manager import BaseRunManager
from langchain_core.runnables.config import (
    ensure_config,
    get_config_list,
    var_child_runnable_config,
)

from grape_lc.errors import RequestError

KEY = "tenant"


def tenant_in(metadata: Mapping[str, Any] | None) -> str | None:
    """The tenant that the metadata of a config name; None: they name none.

    Raises RequestError for what is no name: to take it for none would mix tenants.
    """
    value = (metadata or {}).get(KEY)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise RequestError(
        f"tenant={value!r:.60} in the metadata of a config: a tenant is named by a text or a "
        "whole number"
    )


def current_tenant(run_manager: BaseRunManager | None) -> str | None:
    """The tenant of the config under which a call is made here and now.

    Raises what ``tenant_in`` raises.
    """
    if run_manager is not None and (found := tenant_in(run_manager.metadata)) is not None:
        return found
    return tenant_in((var_child_runnable_config.get() or {}).get("metadata"))


def with_tenant(config: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Options of a call with the tenant that its config names, unless they name one."""
    if KEY not in options and (tenant := tenant_in(ensure_config(config)["metadata"])) is not None:
        return {**options, KEY: tenant}
    return options


class TenantCalls:
    """Turns the tenant of a config into an option of the call.

    LangChain does not show a stream's config to the model. And what is an option is part of the
    key of LangChain's own cache of answers, which is then apart for each tenant, too.
    """

    if not TYPE_CHECKING:  # the types are those of LangChain's classes, which come next

        def invoke(self, input, config=None, **options):  # noqa: A002 - LangChain's name
            """As LangChain's."""
            return super().invoke(input, config, **with_tenant(config, options))

        async def ainvoke(self, input, config=None, **options):  # noqa: A002
            """As LangChain's."""
            return await super().ainvoke(input, config, **with_tenant(config, options))

        def stream(self, input, config=None, **options):  # noqa: A002
            """As LangChain's."""
            return super().stream(input, config, **with_tenant(config, options))

        def astream(self, input, config=None, **options):  # noqa: A002
            """As LangChain's."""
            return super().astream(input, config, **with_tenant(config, options))


class OwnTenant:
    """Lets a call be made by a copy of the model that has the tenant of the call for its own.

    Of models for plain text LangChain's cache knows the fields alone, and a batch is one call: it
    has one tenant.
    """

    if not TYPE_CHECKING:

        def invoke(self, input, config=None, **options):  # noqa: A002
            """As LangChain's."""
            return super(OwnTenant, self._owned(config, options)).invoke(input, config, **options)

        async def ainvoke(self, input, config=None, **options):  # noqa: A002
            """As LangChain's."""
            model = super(OwnTenant, self._owned(config, options))
            return await model.ainvoke(input, config, **options)

        def stream(self, input, config=None, **options):  # noqa: A002
            """As LangChain's."""
            return super(OwnTenant, self._owned(config, options)).stream(input, config, **options)

        def astream(self, input, config=None, **options):  # noqa: A002
            """As LangChain's."""
            return super(OwnTenant, self._owned(config, options)).astream(input, config, **options)

        def batch(self, inputs, config=None, **options):
            """As LangChain's; raises RequestError for several tenants."""
            model = super(OwnTenant, self._owned(config, options, len(inputs)))
            return model.batch(inputs, config, **options)

        async def abatch(self, inputs, config=None, **options):
            """As LangChain's; raises RequestError for several tenants."""
            model = super(OwnTenant, self._owned(config, options, len(inputs)))
            return await model.abatch(inputs, config, **options)

        def _owned(self, config, options, calls=1):
            configs = get_config_list(config, calls)
            said = dict.fromkeys(with_tenant(one, options).get(KEY) for one in configs)
            if len(said) > 1:
                raise RequestError(
                    f"a batch for several tenants ({', '.join(map(repr, said))}): make one for each"
                )
            tenant = next(iter(said), None)
            return self if tenant in (None, self.tenant) else _copy(self, tenant)


def _copy(model: Any, tenant: object) -> Any:
    if not isinstance(tenant, str):
        raise RequestError(f"tenant={tenant!r:.60}: a tenant is named by a text")
    return model.model_copy(update={KEY: tenant})
