"""``python -m infinity_agents.cli`` is ``infinity``."""

from . import main

main()
