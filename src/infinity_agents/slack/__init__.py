"""Slack as the front end: what people say there goes to the input queue, and what they are told comes back."""
