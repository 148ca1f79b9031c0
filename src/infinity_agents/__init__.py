"""A durable agent runtime: an agent is a conversation in a database, and a message wakes it for one short step."""
