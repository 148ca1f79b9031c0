"""Any MCP server as a tool server of ours: over stdio or Streamable HTTP, with OAuth where a server asks for it.

``proxy`` makes a ``ToolServer`` of one. Importing its module takes a second, because the MCP SDK does: do it late.
"""
