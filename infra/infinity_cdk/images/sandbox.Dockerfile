# The sandbox server's image: Lambda's own Python, with git, and what people build with.
FROM amazon/aws-lambda-python:3.13
RUN dnf install -y git gcc gcc-c++ make tar gzip unzip findutils procps-ng which nodejs && dnf clean all
COPY requirements.lock .
RUN pip install --no-cache-dir --require-hashes --requirement requirements.lock
COPY infinity_agents ${LAMBDA_TASK_ROOT}/infinity_agents
CMD ["infinity_agents.aws.sandbox_server.handler"]
# SandboxToolSet(jj=...) adds a line that copies that file to /usr/local/bin.
