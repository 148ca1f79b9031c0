"""The Lambda functions: entry points, one short file each, and the wiring that builds the adapters once per sandbox."""
