"""The migration: a deployment's custom resource, which brings the schema of its database up to date."""

import logging
from collections.abc import Mapping
from typing import Any

from . import wiring
from .sandbox import Sandbox

_log = logging.getLogger(__name__)

sandbox = Sandbox(wiring.migrated_database)


def handler(event: Mapping[str, Any], context: object) -> dict[str, Any]:
    """Migrate at ``Create`` and ``Update``, and leave everything as it is at ``Delete``; a repeat changes nothing.

    The resource's properties may name the database role of the functions (``Role``) and the IAM roles that may connect
    as it (``IamRoleArns``). It answers as the provider framework of the CDK has it: an error fails the deployment.

    Raises:
        Misconfigured: the environment cannot be used, or its database user may not do that.
        StoreUnavailable: the database cannot be reached; the deployment may be tried again.
    """
    data: dict[str, Any] = {}
    if event["RequestType"] != "Delete":
        properties = event.get("ResourceProperties", {})
        role, arns = properties.get("Role"), properties.get("IamRoleArns", ())
        migrated = sandbox.run(lambda migrate: migrate(role, arns))
        _log.info("the schema is at version %d; applied: %s", migrated.version, migrated.applied or "nothing")
        data = {"Version": migrated.version}
    return {"PhysicalResourceId": "infinity-schema", "Data": data}
