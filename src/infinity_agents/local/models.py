"""The models that an agent on this machine can speak with, by their names."""

from ..adapters.anthropic import AnthropicModel
from ..adapters.bedrock import BedrockModel
from ..adapters.demo_model import DemoModel
from ..adapters.openai import OpenAIModel
from ..errors import Misconfigured, without_user
from ..ports.model import Model
from ..runtime.models import RoutedModels

Provider = DemoModel | OpenAIModel | AnthropicModel | BedrockModel


def models_for(name: str, base_url: str | None = None) -> RoutedModels:
    """Return every model of this machine, with ``name`` for new threads; old ones go on with the model they have.

    Raises:
        Misconfigured: as ``provider_of`` has it.
    """
    chosen = provider_of(name, base_url)
    others: dict[str, Model] = {
        "demo": DemoModel(),
        "openai": OpenAIModel("NAME"),
        "anthropic": AnthropicModel("NAME"),
        "bedrock": BedrockModel("NAME"),
    }
    return RoutedModels({**others, name.partition(":")[0]: chosen}, name)


def provider_of(name: str, base_url: str | None = None) -> Provider:
    """Return what speaks as ``name``: ``demo``, ``openai:NAME``, ``anthropic:NAME`` or ``bedrock:NAME``.

    ``base_url`` is the endpoint where it is not the provider's own. Nothing is sent yet.

    Raises:
        Misconfigured: there is no such model, or its SDK, its key or a usable ``base_url`` is missing.
    """
    prefix, _, bare = name.partition(":")
    provider: OpenAIModel | AnthropicModel | BedrockModel
    if prefix == "openai" and bare:
        provider = OpenAIModel(name, base_url=base_url)
    elif prefix == "anthropic" and bare:
        provider = AnthropicModel(name, base_url=base_url)
    elif prefix == "bedrock" and bare:
        provider = BedrockModel(name, base_url=base_url)
    elif name != "demo":
        raise Misconfigured(f"there is no model {name!r}; a model is demo, openai:NAME, anthropic:NAME or bedrock:NAME")
    elif base_url is not None:
        raise Misconfigured(
            f"the demo model has no endpoint, and the base URL is {without_user(base_url)!r}; name a model besides"
        )
    else:
        return DemoModel()
    provider.check()
    return provider
