"""What a leader may invoke in Bedrock: its model and no other."""

import re
from collections.abc import Sequence

from aws_cdk import Stack

from .arguments import Spelt

_PROFILE = re.compile(r"(?:global|[a-z]{2,4}(?:-gov)?)\.(?=[a-z0-9-]+\.)")
DEMO_MODEL = "demo"
MODEL_ID = Spelt(
    r"(?!(?:openai|anthropic|bedrock):)[A-Za-z0-9:/._-]{1,2048}",
    "a model or an inference profile of Bedrock as AWS spells it, or 'demo'",
)


def model_arns(stack: Stack, model_id: str) -> Sequence[str]:
    """Return the ARNs that invoking ``model_id`` needs: a profile's own, and its model's wherever it may route to.

    Raises:
        ValueError: ``model_id`` does not tell which model it stands for; the text says what to do.
    """
    if model_id == DEMO_MODEL:
        return []
    if ":foundation-model/" in model_id:
        return [model_id]
    if model_id.startswith("arn:"):
        raise ValueError(
            f"model_id {model_id!r} does not tell which models it routes to; name in model_arns all that the leader "
            "needs: the profile's ARN, and the ARN of its model in each region (`aws bedrock get-inference-profile`)"
        )
    partition = f"arn:{stack.partition}:bedrock"
    profile = _PROFILE.match(model_id)
    if profile is None:
        return [f"{partition}:{stack.region}::foundation-model/{model_id}"]
    model = model_id[profile.end() :]
    return [
        f"{partition}:{stack.region}:{stack.account}:inference-profile/{model_id}",
        # Which regions a profile routes to is AWS's to change; the model is named.
        f"{partition}:*::foundation-model/{model}",
        *([f"{partition}:::foundation-model/{model}"] if profile.group() == "global." else []),
    ]
