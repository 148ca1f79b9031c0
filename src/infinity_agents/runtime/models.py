"""Several providers of models as one: each thread goes on with the model that it was given when it was made."""

from collections.abc import AsyncIterator, Mapping

from ..conversation.turn import ModelEvent
from ..errors import Misconfigured
from ..ports.model import Model, ModelRequest


class RoutedModels:
    """Sends each request to the provider that its model's name begins with, as ``openai:NAME``; ``demo`` is whole.

    New threads are given ``default``. A provider is handed the whole name.
    """

    def __init__(self, providers: Mapping[str, Model], default: str) -> None:
        """Take the providers by their prefixes.

        Raises:
            Misconfigured: there is no provider for ``default``.
        """
        self._providers = providers
        self._default = default
        self._of(default)

    @property
    def name(self) -> str:
        """The model that new threads are given."""
        return self._default

    def context_window(self, model: str) -> int:
        """Return the window of ``model`` in tokens.

        Raises:
            Misconfigured: there is no provider for ``model``.
        """
        return self._of(model).context_window(model)

    def reads_images(self, model: str) -> bool:
        """Tell whether ``model`` takes images.

        Raises:
            Misconfigured: there is no provider for ``model``.
        """
        return self._of(model).reads_images(model)

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Return what the provider of ``request.model`` says.

        Raises:
            Misconfigured: there is no provider for ``request.model``.
        """
        return self._of(request.model).stream(request)

    def _of(self, model: str) -> Model:
        prefix, _, name = model.partition(":")
        provider = self._providers.get(prefix)
        if provider is not None and (name or provider.name == model):
            return provider
        known = ", ".join(
            prefix if provider.name == prefix else f"{prefix}:NAME" for prefix, provider in self._providers.items()
        )
        raise Misconfigured(f"there is no model {model!r} here: a model is one of {known}")
