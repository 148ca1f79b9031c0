"""The tool of docs/tools.md, as it stands there, packaged as a project's tool server and run as a Lambda function."""

import re
from pathlib import Path

import pytest

from infinity_agents.adapters.httpx_client import HttpxClient
from infinity_agents.rap.conformance import check
from infinity_agents.testing.aws.lambda_runtime import FunctionUrl, LambdaFunction, LambdaService
from infinity_cdk import packages
from tests.aws_adapters.conftest import aws, clients, deployed, pauses, running_aws
from tests.infra_packages.conftest import HERE

__all__ = ["aws", "clients", "deployed", "pauses", "running_aws"]

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).parents[2] / "docs" / "tools.md"


async def test_the_documented_tool_runs_from_its_package(tmp_path, aws, clients, deployed):
    text = re.search(r"<!-- file: tool.py -->\n```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[1]
    assert len([line for line in text.splitlines() if line]) < 15
    project, package = tmp_path / "project", tmp_path / "package"
    project.mkdir()
    (project / "tool.py").write_text(text)
    packages.build_project(project, None, HERE, package)
    service, http = LambdaService(), HttpxClient()
    told = {
        "AWS_ENDPOINT_URL": aws.url,
        "AWS_ENDPOINT_URL_LAMBDA": service.url,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "CLAIMS_TABLE_NAME": deployed.table,
    }
    function = LambdaFunction("tools", "tool.handler", environment=told, python_path=[package])
    service.add(function)
    url = FunctionUrl(function, iam=False)
    try:
        findings = await check(url.url, http=http, examples={"price": {"fruit": "apples"}}, patience=30.0)
    finally:
        await http.aclose()
        for closing in (url, function, service):
            closing.close()
    assert [finding for finding in findings if finding.verdict == "broken"] == [], function.log
    assert "price: 1 result(s) for 3 posts" in {finding.seen for finding in findings}
