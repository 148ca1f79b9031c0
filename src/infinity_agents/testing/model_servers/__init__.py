"""Stand-ins for the services of models: each speaks one protocol over HTTP and refuses what the real service refuses.

What they say comes from a script, as with the ``ScriptedModel``::

    async with serving(ModelServer(AnthropicProtocol(), script)) as url:
        model = AnthropicModel("claude-sonnet-4-6", api_key=KEY, base_url=url)
"""

from .anthropic import AnthropicProtocol
from .bedrock import BedrockProtocol
from .openai import OpenAIProtocol
from .serving import KEY, Fault, ModelServer, Refused, WireProtocol, serving

__all__ = [
    "KEY",
    "AnthropicProtocol",
    "BedrockProtocol",
    "Fault",
    "ModelServer",
    "OpenAIProtocol",
    "Refused",
    "WireProtocol",
    "serving",
]
