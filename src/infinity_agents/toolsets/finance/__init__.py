"""The finance server: prices, news, and trading with paper money.

``python -m infinity_agents.toolsets.finance --file finance.db`` serves it.
"""
